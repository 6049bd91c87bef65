"""Measures this machine's CPU for a few seconds, in one process per worker.

All workers measure at the same time and therefore share memory bandwidth and boost clocks as in a real run.
Rank 0 prints the result as JSON: matmul FLOP/s, copy bytes/s, loopback all-reduce bytes/s, and the step time
of a small reference model, all workers together and one alone. `machine.py` scales the engine's formulas
by it.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

REFERENCE: Mapping[str, Any] = {
    "layers": 2,
    "hidden": 256,
    "ffn_hidden": 704,
    "heads": 4,
    "kv_heads": 4,
    "head_dim": 64,
    "vocab": 256,
}
"""The reference model's dimensions: small enough for a second, large enough to be mostly matmuls."""
REFERENCE_SEQUENCE = 128
REFERENCE_BATCH = 8


def _seconds(work: Callable[[], Any], *, least_s: float = 0.3) -> float:
    """A call's time: the first quartile over `least_s` seconds, after one warm-up call."""
    work()
    times: list[float] = []
    while sum(times) < least_s or len(times) < 4:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.quantiles(times, n=4)[0]


def _matmul_flop_per_s(torch: Any) -> float:
    best = 0.0
    for side in (256, 512, 1024):
        a, b = torch.randn(side, side), torch.randn(side, side)
        best = max(best, 2 * side**3 / _seconds(partial(torch.mm, a, b)))
    return best


def _copy_bytes_per_s(torch: Any) -> float:
    source = torch.zeros(16 * 2**20)
    target = torch.empty_like(source)
    return 2.0 * 4 * float(source.numel()) / _seconds(lambda: target.copy_(source))


def _all_reduce_bytes_per_s(torch: Any, world: int) -> float:
    """Bytes/s per worker and direction of a ring: each moves 2 (n - 1) / n of the message."""
    if world == 1:
        return 0.0
    message = torch.zeros(2 * 2**20)
    times = []
    for _ in range(4):
        torch.distributed.barrier()
        began = time.perf_counter()
        torch.distributed.all_reduce(message)
        times.append(time.perf_counter() - began)
    return 2 * (world - 1) / world * 4 * float(message.numel()) / min(times)


def _reference_step(torch: Any) -> Callable[[], None]:
    """One training step of the reference model: forward, backward, Adam's arithmetic."""
    nn, shape = torch.nn, REFERENCE
    hidden, ffn, heads, vocab = shape["hidden"], shape["ffn_hidden"], shape["heads"], shape["vocab"]

    def linear(rows: int, columns: int) -> Any:
        return nn.Linear(rows, columns, bias=False)

    embedding, head = nn.Embedding(vocab, hidden), linear(hidden, vocab)
    layers = [
        nn.ModuleList(
            [
                nn.RMSNorm(hidden),
                linear(hidden, 3 * hidden),
                linear(hidden, hidden),
                nn.RMSNorm(hidden),
                linear(hidden, ffn),
                linear(hidden, ffn),
                linear(ffn, hidden),
            ]
        )
        for _ in range(shape["layers"])
    ]
    weights = [w for module in (embedding, head, *layers) for w in module.parameters()]
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    tokens = torch.randint(vocab, (REFERENCE_BATCH, REFERENCE_SEQUENCE))

    def forward() -> Any:
        x = embedding(tokens)
        for norm, qkv, out, norm2, gate, up, down in layers:
            shaped = qkv(norm(x)).view(REFERENCE_BATCH, REFERENCE_SEQUENCE, 3, heads, -1)
            q, k, v = shaped.permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out(mixed.transpose(1, 2).reshape(x.shape))
            y = norm2(x)
            x = x + down(nn.functional.silu(gate(y)) * up(y))
        return nn.functional.cross_entropy(head(x).flatten(0, 1), tokens.flatten())

    def step() -> None:
        forward().backward()
        with torch.no_grad():
            for weight, (first, second) in zip(weights, moments, strict=True):
                first.mul_(0.9).add_(weight.grad, alpha=0.1)
                second.mul_(0.95).addcmul_(weight.grad, weight.grad, value=0.05)
                weight.addcdiv_(first, second.sqrt().add_(1e-8), value=-1e-3)
                weight.grad = None

    return step


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as one of `--world` workers."""
    parser = argparse.ArgumentParser(prog="rightsizer_local.cpu_probe", description=__doc__)
    parser.add_argument("--rank", type=int, default=0, help="this worker's number")
    parser.add_argument("--world", type=int, default=1, help="workers that measure together")
    parser.add_argument("--threads", type=int, default=1, help="threads of a worker")
    parser.add_argument("--meet", required=True, help="a file through which the workers find each other")
    options = parser.parse_args(argv)

    import torch  # seconds of import; --help must not pay

    torch.set_num_threads(options.threads)
    distributed = torch.distributed
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{options.meet}",
        rank=options.rank,
        world_size=options.world,
        timeout=timedelta(seconds=120),
    )
    distributed.barrier()
    step = _reference_step(torch)
    measured = {
        "matmul_flop_per_s": _matmul_flop_per_s(torch),
        "copy_bytes_per_s": _copy_bytes_per_s(torch),
        "together_step_s": _seconds(step, least_s=1.5),
    }
    distributed.barrier()
    if options.rank == 0:  # the others wait idle
        measured["alone_step_s"] = _seconds(step, least_s=1.0)
    distributed.barrier()
    measured["all_reduce_bytes_per_s"] = _all_reduce_bytes_per_s(torch, options.world)
    distributed.destroy_process_group()
    if options.rank == 0:
        sys.stdout.write(json.dumps(measured) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
