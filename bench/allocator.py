"""Unused memory that torch's caching allocator keeps when batches vary in length: a simulation on the CPU.

    python -m bench.allocator

The allocator is CUDACachingAllocator without expandable segments (c10/cuda/CUDACachingAllocator.cpp): sizes
round to 512 bytes; up to 1 MiB come from 2 MiB segments, up to 10 MiB from 20 MiB ones, larger ones from a
segment of their own, rounded to 2 MiB; the best fitting free block is taken and split where more than 1 MiB
remains; neighbours in a segment join when freed; segments are never returned while memory is left. The loop
is fine-tuning with full recomputation and eager cross-entropy, lengths lognormal about `MEAN_TOKENS` and cut
at a limit. Printed: slack over the allocated peak of what is not weights, the source of `variable_slack`'s
prior: where the limit does not cut nearly all to one length, the slack less that of equal lengths.
No published peak is used.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

MIB = 2**20
MEAN_TOKENS = 2000
LAYERS, STEPS = 4, 60
MODELS = ((2048, 5504, 151936), (4096, 11008, 151936), (4096, 11008, 64000), (4096, 14336, 128256))
"""(hidden, feed-forward, vocabulary)."""
LIMITS = (1024, 2048, 4096)
SPREADS = (0.6, 1.2)
"""Standard deviations of ln(length): sets of instructions are about 1, long-document sets less."""

Handle = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class Allocator:
    """Blocks by segment and offset: (bytes, free); free blocks ordered by size, one list for each pool."""

    segments: list[dict[int, tuple[int, bool]]] = field(default_factory=list)
    small: list[bool] = field(default_factory=list)
    free: dict[bool, list[tuple[int, int, int]]] = field(default_factory=lambda: {True: [], False: []})
    live_bytes: int = 0
    peak_bytes: int = 0
    reserved_bytes: int = 0

    def take(self, size: float) -> Handle:
        """A block of at least that size, from the cache or from a new segment."""
        wanted = max(512, -(-int(size) // 512) * 512)
        is_small = wanted <= MIB
        pool = self.free[is_small]
        at = bisect_left(pool, (wanted, -1, -1))
        if at < len(pool):
            whole, segment, offset = pool.pop(at)
        else:
            whole, segment, offset = _segment_bytes(wanted), len(self.segments), 0
            self.segments.append({})
            self.small.append(is_small)
            self.reserved_bytes += whole
        rest = whole - wanted
        if rest >= (512 if is_small else MIB + 1):
            self._add(segment, offset + wanted, rest)
            whole = wanted
        self.segments[segment][offset] = (whole, False)
        self.live_bytes += whole
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return segment, offset

    def give(self, handle: Handle) -> None:
        """Free a block and join it with free neighbours."""
        segment, offset = handle
        blocks = self.segments[segment]
        size = blocks.pop(offset)[0]
        self.live_bytes -= size
        after = blocks.get(offset + size)
        if after and after[1]:
            self._remove(segment, offset + size, after[0])
            size += after[0]
        before = next((o for o, (n, is_free) in blocks.items() if is_free and o + n == offset), None)
        if before is not None:
            joined = blocks[before][0]
            self._remove(segment, before, joined)
            offset, size = before, size + joined
        self._add(segment, offset, size)

    def _add(self, segment: int, offset: int, size: int) -> None:
        self.segments[segment][offset] = (size, True)
        insort(self.free[self.small[segment]], (size, segment, offset))

    def _remove(self, segment: int, offset: int, size: int) -> None:
        del self.segments[segment][offset]
        pool = self.free[self.small[segment]]
        pool.pop(bisect_left(pool, (size, segment, offset)))


def _segment_bytes(size: int) -> int:
    if size <= MIB:
        return 2 * MIB
    return 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB


def _layer(take: Callable[[float], Handle], tokens: int, hidden: int, ffn: int) -> Iterator[Handle]:
    """The tensors of an eager layer in order: norm (fp32 and 16 bits), q, k, v, attention, output, MLP."""
    widths = (4 * hidden, *[2 * hidden] * 7, 4 * hidden, 2 * hidden, *[2 * ffn] * 4, 2 * hidden)
    return (take(width * tokens) for width in widths)


def step(cache: Allocator, tokens: int, hidden: int, ffn: int, vocabulary: int) -> None:
    """One forward and backward pass over one micro-batch."""
    take, give = cache.take, cache.give
    kept = []
    for _ in range(LAYERS):
        kept.append(take(2 * hidden * tokens))
        alive: list[Handle] = []
        for block in _layer(take, tokens, hidden, ffn):
            alive.append(block)
            if len(alive) > 3:
                give(alive.pop(0))
        for block in alive:
            give(block)
    _loss(cache, tokens * vocabulary)
    gradient = take(2 * hidden * tokens)
    while kept:
        saved_activations = list(_layer(take, tokens, hidden, ffn))
        for block in reversed(saved_activations):
            inner = take(2 * hidden * tokens)
            give(block)
            give(inner)
        give(gradient)
        gradient = take(2 * hidden * tokens)
        give(kept.pop())
    give(gradient)


def _loss(cache: Allocator, logits: int) -> None:
    """Logits and shifted logits in 16 bits, in fp32, log-softmax; the logits' fp32 copy; two gradients."""
    take, give = cache.take, cache.give
    raw, shifted, single, soft = take(2 * logits), take(2 * logits), take(4 * logits), take(4 * logits)
    give(single)
    give(shifted)
    output = take(4 * logits)
    give(raw)
    give(output)
    first, second = take(4 * logits), take(4 * logits)
    give(first)
    give(soft)
    half = take(2 * logits)
    give(second)
    padded = take(2 * logits)
    give(half)
    give(padded)


def slack(model: tuple[int, int, int], limit: int, spread: float, seed: int = 0) -> float:
    """(reserved - allocated) / allocated after a loop over lengths of that spread (0: all the limit)."""
    cache, lengths = Allocator(), np.random.default_rng(seed)
    drawn = lengths.lognormal(np.log(MEAN_TOKENS) - spread**2 / 2, spread, STEPS if spread else 3)
    for tokens in np.minimum(limit, drawn) if spread else [limit] * 3:
        step(cache, int(tokens), *model)
    return cache.reserved_bytes / cache.peak_bytes - 1.0


def main() -> None:
    """Print the slack of every model, limit and spread, and the mean over those that vary."""
    print("hidden vocabulary limit  " + "  ".join(f"spread {s:.1f}" for s in (0.0, *SPREADS)))
    varied = []
    for model in MODELS:
        for limit in LIMITS:
            found = np.asarray([slack(model, limit, spread) for spread in (0.0, *SPREADS)])
            varied += list(found[1:] - found[0]) if limit >= MEAN_TOKENS else []
            print(f"{model[0]:6} {model[2]:10} {limit:5}  " + "  ".join(f"{x:10.2f}" for x in found))
    print(f"added where lengths vary: mean {np.mean(varied):.2f}, standard deviation {np.std(varied):.2f}")


if __name__ == "__main__":
    main()
