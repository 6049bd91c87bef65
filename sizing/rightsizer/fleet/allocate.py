"""Several plans, one inventory: who gets how many GPUs, who waits and why. Pure.

Every claim first gets its minimum satisfactory share, the fewest GPUs with which its deadline holds (the
term is ElasticFlow's, Gu et al., ASPLOS 2023): running claims before waiting ones, then whoever must start
soonest. What is left goes where it helps most: to claims that are late or have no deadline, each step to the
one whose time falls most for each GPU-hour added.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from statistics import NormalDist

from rightsizer.estimate.parameters import Parameters, load_resize
from rightsizer.resize.types import Size
from rightsizer.units import format_duration
from rightsizer.values import immutable

__all__ = ["Allocation", "Claim", "Share", "Wait", "allocate", "satisfactory"]


@immutable
class Claim:
    """One plan's wish. `sizes` are what it could run as, ascending in GPUs, within its own limits.

    `tokens_left` and `deadline_left_s` (None: no deadline) as a `Running` job's. `present_gpus` is 0 while it
    waits, since `waited_s`; a running claim is changed only if `movable`. `restart_s` is what a start, or a
    change of size, takes.
    """

    key: str
    sizes: tuple[Size, ...]
    tokens_left: float
    deadline_left_s: float | None = None
    confidence: float = 0.9
    present_gpus: int = 0
    movable: bool = True
    waited_s: float = 0.0
    restart_s: float = 0.0


@immutable
class Share:
    """What one claim gets: GPUs, the size they make, whether its deadline holds with them, and why."""

    key: str
    size: Size
    in_time: bool
    reason: str


@immutable
class Wait:
    """A claim that gets nothing now: the fewest GPUs it could use, and why it waits."""

    key: str
    needs_gpus: int
    reason: str


@immutable
class Allocation:
    """The shares by key, those who wait by key, and the GPUs that nobody uses."""

    shares: Mapping[str, Share] = field(default_factory=dict)
    waiting: Mapping[str, Wait] = field(default_factory=dict)
    free_gpus: int = 0


@immutable
class _Wish:
    """A claim with its minimum satisfactory share; `late` where no size is in time."""

    claim: Claim
    size: Size
    late: bool
    slack_s: float


def satisfactory(claim: Claim, parameters: Parameters | None = None) -> tuple[Size, bool]:
    """The fewest GPUs with which the deadline holds, and whether there are such.

    Without a deadline, or where no size is in time: the fewest GPUs that are about as fast as the fastest.
    """
    p = parameters or load_resize()
    if claim.deadline_left_s is not None:
        for size in claim.sizes:
            if _seconds(claim, size, sure=True) <= claim.deadline_left_s:
                return size, True
    soonest_s = min(_seconds(claim, size) for size in claim.sizes)
    near = (s for s in claim.sizes if _seconds(claim, s) <= soonest_s * (1.0 + p.hopeless_slower))
    return next(near), claim.deadline_left_s is None


def allocate(
    claims: Sequence[Claim],
    *,
    gpus: int,
    patience_s: float = 3600.0,
    parameters: Parameters | None = None,
) -> Allocation:
    """Divide `gpus` among claims. One that has waited `patience_s` is not overtaken by smaller ones."""
    p = parameters or load_resize()
    shares: dict[str, Share] = {}
    waiting: dict[str, Wait] = {}
    wishes = sorted((_wish(claim, p) for claim in claims if claim.sizes), key=_urgency)
    free = gpus - sum(w.claim.present_gpus for w in wishes)
    blocker = ""
    for wish in wishes:
        present = wish.claim.present_gpus
        size = _kept(wish) if present and not wish.claim.movable else wish.size
        if size.gpus > free + present or (blocker and not present):
            if present:
                size = _kept(wish)
            else:
                waiting[wish.claim.key] = _waits(wish, free, blocker)
                if wish.claim.waited_s >= patience_s:
                    blocker = blocker or wish.claim.key
                continue
        free += present - size.gpus
        shares[wish.claim.key] = _share(wish, size)
    if not waiting:
        free = _spread(wishes, shares, free, p)
    return Allocation(shares=shares, waiting=waiting, free_gpus=free)


def _wish(claim: Claim, p: Parameters) -> _Wish:
    size, good = satisfactory(claim, p)
    left_s = math.inf if claim.deadline_left_s is None else claim.deadline_left_s
    return _Wish(claim=claim, size=size, late=not good, slack_s=left_s - _seconds(claim, size, sure=True))


def _urgency(wish: _Wish) -> tuple[bool, bool, float, float]:
    """Running claims first; then those in time before the late, by the latest moment they can start."""
    claim = wish.claim
    return not claim.present_gpus, wish.late, 0.0 if wish.late else wish.slack_s, -claim.waited_s


def _kept(wish: _Wish) -> Size:
    """The size that a running claim has."""
    claim = wish.claim
    return next((s for s in claim.sizes if s.gpus == claim.present_gpus), wish.size)


def _seconds(claim: Claim, size: Size, *, sure: bool = False) -> float:
    """To the claim's end with a size: the median, or the quantile at its confidence."""
    z = _quantile(claim.confidence) if sure else 0.0
    start_s = 0.0 if size.gpus == claim.present_gpus else claim.restart_s
    return start_s + claim.tokens_left / (size.tokens_per_s * size.goodput) * math.exp(z * size.sigma)


@cache
def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(confidence)


def _share(wish: _Wish, size: Size) -> Share:
    claim, end_s = wish.claim, _seconds(wish.claim, size, sure=True)
    if claim.deadline_left_s is None:
        return Share(
            key=claim.key, size=size, in_time=True, reason="has no deadline; more GPUs hardly speed it up"
        )
    spare_s = claim.deadline_left_s - end_s
    if spare_s >= 0:
        why = f"the fewest that are in time, with {format_duration(spare_s)} to spare"
        return Share(key=claim.key, size=size, in_time=True, reason=why)
    why = f"late by {format_duration(-spare_s)} with these; no size it may have is in time"
    return Share(key=claim.key, size=size, in_time=False, reason=why)


def _waits(wish: _Wish, free: int, blocker: str) -> Wait:
    needs = wish.size.gpus
    why = f"needs {needs} GPUs, {max(free, 0)} are free"
    if blocker and needs <= free:
        why = f"{blocker} has waited longest and goes first"
    return Wait(key=wish.claim.key, needs_gpus=needs, reason=why)


def _spread(wishes: Sequence[_Wish], shares: dict[str, Share], free: int, p: Parameters) -> int:
    """Give what is left to the late and those without a deadline; what then is free still."""
    able = [w for w in wishes if (w.late or w.claim.deadline_left_s is None) and w.claim.movable]
    while free > 0:
        steps = [s for s in (_step(w, shares[w.claim.key], free) for w in able) if s is not None]
        gain, wish, size = max(steps, key=lambda step: step[0], default=(0.0, None, None))
        if wish is None or size is None or gain < p.least_spare_gain:
            return free
        share = shares[wish.claim.key]
        free -= size.gpus - share.size.gpus
        why = f"{share.reason}; GPUs that nobody needs speed it up"
        shares[wish.claim.key] = Share(key=share.key, size=size, in_time=share.in_time, reason=why)
    return free


def _step(wish: _Wish, share: Share, free: int) -> tuple[float, _Wish, Size] | None:
    """The next larger size that fits, and the share of the added GPU-hours that it turns into speed."""
    now = share.size
    larger = [s for s in wish.claim.sizes if now.gpus < s.gpus <= now.gpus + free]
    if not larger:
        return None
    size = larger[0]
    faster = (size.tokens_per_s * size.goodput) / (now.tokens_per_s * now.goodput) - 1.0
    return faster / (size.gpus / now.gpus - 1.0), wish, size
