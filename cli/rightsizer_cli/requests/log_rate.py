"""The training rate in a log, read from the lines that the common stacks write; the newest lines count."""

import itertools
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping

from rightsizer_cli.requests.flags import FASTEST_TOKENS_PER_S, SLOWEST_TOKENS_PER_S
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable

_NUMBER = r"([0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
_STEP = re.compile(r"(?:\bstep|\biteration|\biter)\b[\"']?\s*[:= ]\s*([0-9]{1,18})(?![0-9])", re.IGNORECASE)
_MOST_LINES = 200
"""Newest lines with a rate that count: about an hour of a usual log."""

_RATES: Mapping[str, tuple[re.Pattern[str], Callable[[float, float, int], float]]] = {
    "Megatron-LM's iteration time": (
        re.compile(rf"elapsed time per iteration \(ms\):\s*{_NUMBER}"),
        lambda value, batch, gpus: batch / value * 1e3,
    ),
    "torchtitan's tokens/s of a GPU": (
        re.compile(rf"\btps:\s*{_NUMBER}"),
        lambda value, batch, gpus: value * gpus,
    ),
    "tokens/s of a GPU": (
        re.compile(rf"tok(?:en)?s?(?:/s|_per_sec(?:ond)?)(?:/gpu|_per_gpu)\D{{0,3}}{_NUMBER}", re.IGNORECASE),
        lambda value, batch, gpus: value * gpus,
    ),
    "tokens/s": (
        re.compile(rf"tok(?:en)?s?(?:/s(?:ec)?|_per_sec(?:ond)?)\b\D{{0,3}}{_NUMBER}", re.IGNORECASE),
        lambda value, batch, gpus: value,
    ),
    "tqdm's seconds a step": (
        re.compile(rf"[,<]\s*{_NUMBER}s/it\b"),
        lambda value, batch, gpus: batch / value,
    ),
    "tqdm's steps a second": (
        re.compile(rf"[,<]\s*{_NUMBER}it/s\b"),
        lambda value, batch, gpus: batch * value,
    ),
    "a step's milliseconds": (
        re.compile(rf"\b(?:dt|step_time|time/step)\b\D{{0,3}}{_NUMBER}\s*ms\b"),
        lambda value, batch, gpus: batch / value * 1e3,
    ),
}
"""What a line says, in the order in which it is believed; the rate of the whole job from it."""


@immutable
class LogRate:
    """A job's rate: the median of `lines` lines; `step` is the last step number, None if no line has one."""

    tokens_per_s: float
    said: str
    lines: int
    step: int | None


def rate_of(text: str, *, batch_tokens: float, gpus: int) -> LogRate:
    """The rate in a log. InputError if no line of it says one."""
    for said, (pattern, convert) in _RATES.items():
        every = (convert(value, batch_tokens, gpus) for value in _values(pattern, text.splitlines()))
        rates = list(_newest(rate for rate in every if SLOWEST_TOKENS_PER_S <= rate <= FASTEST_TOKENS_PER_S))
        if rates:
            return LogRate(
                tokens_per_s=statistics.median(rates), said=said, lines=len(rates), step=_last_step(text)
            )
    remedy = f"has no line with a rate ({'; '.join(_RATES)}); give --tokens-per-second"
    raise InputError("--log", value="", remedy=remedy)


def _values(pattern: re.Pattern[str], lines: Iterable[str]) -> Iterator[float]:
    """Positive numbers, one for each line: tqdm rewrites its line many times."""
    for line in lines:
        found = pattern.findall(line)
        if found and (value := float(found[-1].replace(",", ""))) > 0:
            yield value


def _newest(values: Iterator[float]) -> Iterable[float]:
    """The newest ones without the first, which warms up."""
    every = list(values)
    return itertools.islice(every, max(len(every) > 1, len(every) - _MOST_LINES), None)


def _last_step(text: str) -> int | None:
    steps = _STEP.findall(text)
    return int(steps[-1]) if steps else None
