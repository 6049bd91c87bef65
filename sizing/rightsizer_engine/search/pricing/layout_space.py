"""The search space: every legal layout of a model on a number of GPUs, as integer columns.

A *family* is a layout without the data-parallel size: tp x pp x vpp x cp x ep x sharding x micro-batch x
recompute. A GPU count completes it: dp = gpus / (tp * pp * cp), and micro_batches follows.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from rightsizer_engine.domain.architecture import Architecture, Family
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import Method, Recompute, Workload
from rightsizer_engine.values import immutable

_MIN_TOKENS_PER_CP_RANK = 4096
"""Fewest tokens per context-parallel rank, unless cp is pinned: cp is for long sequences."""

_MAX_TOKENS_PER_MICRO_BATCH = 65536
"""Largest micro-batch searched, in tokens of one rank. Matmuls saturate far below it."""

_LARGEST_ODD = 6
"""The largest micro-batch searched that is not a power of two. Above it the next power of two is close."""

_FULL_ENOUGH = 1.125
"""Stage counts that are not powers of two are searched if they waste at most an eighth of a step."""

_PLAIN = Columns.of(Layout())
_Pins = Mapping[str, int]
_AXES = ("tp", "pp", "vpp", "cp", "ep", "micro_batch", "recompute", "sharding", "shard_group", "offload")


@immutable
class Families:
    """n families: an integer column of shape (n,) for each axis, and `unit`, the GPUs of a model replica.

    Families with the same `sibling` number differ only in recompute. They are adjacent, the least first.
    """

    axes: Mapping[str, Array]
    unit: Array
    sibling: Array

    def __len__(self) -> int:
        return int(self.unit.size)

    def take(self, index: Array) -> "Families":
        """The families at `index`."""
        return Families(
            axes={k: v[index] for k, v in self.axes.items()},
            unit=self.unit[index],
            sibling=self.sibling[index],
        )


def families(
    architecture: Architecture,
    workload: Workload,
    cluster: Cluster,
    framework: Framework,
    *,
    pinned: Mapping[str, int] | None = None,
) -> Families:
    """All legal families, each once, those that use host memory included. `pinned` fixes axes."""
    return families_within(domain_gpus(cluster), architecture, workload, framework, pinned=pinned)


def domain_gpus(cluster: Cluster) -> int:
    """GPUs per node or per NVLink domain, the larger. Families depend on nothing else of the cluster."""
    return max(cluster.nvlink_domain_gpus, cluster.gpus_per_node)


def families_within(
    domain: int,
    architecture: Architecture,
    workload: Workload,
    framework: Framework,
    *,
    pinned: Mapping[str, int] | None = None,
) -> Families:
    """The families on clusters with domains of `domain` GPUs."""
    pins = dict(pinned or {})
    values = {
        "tp": _tp(architecture, domain, framework, pins),
        "cp": _cp(architecture, workload, framework, pins),
        "ep": _ep(architecture, framework, pins),
        "micro_batch": _micro_batch(workload, pins),
        "recompute": _recompute(workload, framework, pins),
    }
    stages = np.asarray(_stages(architecture, framework, pins), dtype=np.int64).reshape(-1, 2)
    shards = np.asarray(_shards(domain, workload, framework, pins), dtype=np.int64).reshape(-1, 3)
    tokens = np.asarray(values["micro_batch"]) * workload.sequence_tokens
    legal = tokens <= _MAX_TOKENS_PER_MICRO_BATCH * np.asarray(values["cp"])[:, None, None]
    legal |= np.asarray(values["micro_batch"]) == min(values["micro_batch"], default=1)
    sizes = [len(stages), len(shards), *(len(v) for v in values.values())]
    grid = np.nonzero(np.broadcast_to(legal[..., None], sizes))
    axes: dict[str, Array] = {"pp": stages[grid[0], 0], "vpp": stages[grid[0], 1]}
    for column, name in enumerate(("sharding", "shard_group", "offload")):
        axes[name] = shards[grid[1], column]
    for position, (name, options) in enumerate(values.items(), start=2):
        axes[name] = np.asarray(options, dtype=np.int64)[grid[position]]
    unit = axes["tp"] * axes["pp"] * axes["cp"]
    return Families(axes=axes, unit=unit, sibling=np.arange(unit.size) // max(1, sizes[-1]))


def layouts(
    families: Families, gpus: Array, workload: Workload, *, batch_tolerance: float = 0.0
) -> tuple[Columns, Array]:
    """Layouts of families on `gpus` (shape (n,), one count per family), and which of them are legal.

    The global batch is rounded to the nearest divisible one. A change beyond `batch_tolerance` is illegal.
    """
    axes = families.axes
    dp = gpus // families.unit
    legal = dp * families.unit == gpus
    dp = np.maximum(dp, 1)
    passes, divides = micro_batches(dp * axes["micro_batch"], workload, batch_tolerance=batch_tolerance)
    legal &= divides
    legal &= (axes["vpp"] == 1) | (passes % axes["pp"] == 0)
    legal &= (dp * axes["cp"] * axes["tp"]) % axes["ep"] == 0
    legal &= _shards_legal(axes, dp)
    columns = _PLAIN.replace(
        **{name: axes[name] for name in _AXES},
        dp=dp,
        micro_batches=passes,
        sequence_parallel=axes["tp"] > 1,
    )
    return columns, legal


def micro_batches(per_pass: Array, workload: Workload, *, batch_tolerance: float) -> tuple[Array, Array]:
    """Micro-batches a step, nearest to the global batch; and whether they change it by the tolerance at most.

    `per_pass`: sequences of one micro-batch on all replicas.
    """
    batch = workload.global_batch_sequences
    passes = np.maximum(1, np.rint(batch / per_pass).astype(np.int64))
    change = np.abs(per_pass * passes / batch - 1.0)
    return passes, np.asarray(change <= batch_tolerance + 1e-12)


def complexity(layout: Columns) -> Array:
    """Layout complexity: kinds of parallelism weigh most, then host memory, then recompute."""
    weights = {"tp": 1.0, "ep": 1.0, "pp": 1.2, "cp": 1.3}
    kinds = np.asarray(0.5 * (layout.vpp > 1) + 0.5 * (layout.sharding == Sharding.HSDP))
    for name, weight in weights.items():
        kinds = kinds + weight * (getattr(layout, name) > 1)
    kinds = kinds + 2.0 * (layout.offload > 0)
    return np.asarray(kinds + 0.1 * layout.recompute + 0.01 * layout.sharding)


def _shards_legal(axes: Mapping[str, Array], dp: Array) -> Array:
    """A single replica cannot shard; HSDP needs at least two whole shard groups of whole sequences."""
    replicas = dp * axes["cp"]
    sharding, group = axes["sharding"], np.maximum(axes["shard_group"], 1)
    alone = (replicas == 1) & (sharding != np.min(sharding, initial=Sharding.HSDP)) & (axes["offload"] == 0)
    hsdp = sharding == Sharding.HSDP
    whole_groups = (replicas % group == 0) & (replicas > group) & (group % axes["cp"] == 0)
    return np.asarray(~alone & (~hsdp | whole_groups))


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _powers(limit: int) -> list[int]:
    return [1 << k for k in range(max(1, limit).bit_length())]


def _round(limit: int) -> list[int]:
    """Powers of two, and three times a power of two, up to the limit."""
    return sorted(n for power in _powers(limit) for n in (power, 3 * power) if n <= limit)


def _pin(name: str, options: Iterable[int], pins: Mapping[str, int]) -> list[int]:
    """The options, or only the pinned one if it is legal."""
    listed = sorted(set(options))
    return [o for o in listed if o == pins[name]] if name in pins else listed


def _tp(architecture: Architecture, domain: int, framework: Framework, pins: Mapping[str, int]) -> list[int]:
    """Tp divides widths and heads (or replicates kv heads) and stays within a node or NVLink domain."""
    if not framework.can_tensor_parallel:
        return _pin("tp", [1], pins)
    reach = max(domain, pins.get("tp", 1))
    kv = max(1, architecture.kv_heads)
    widths = [w for w in (architecture.ffn_hidden, architecture.hidden) if w]
    options = [
        t
        for t in _divisors(max(1, architecture.heads))
        if t <= reach
        and max(architecture.linear_heads, t) % t == 0
        and (kv % t == 0 or t % kv == 0)
        and all(w % t == 0 for w in widths)
    ]
    return _pin("tp", options, pins)


def _stages(architecture: Architecture, framework: Framework, pins: _Pins) -> list[tuple[int, int]]:
    """(pp, vpp) with equal chunks. Frameworks with uneven stages may count both ends or have short stages."""
    layers = architecture.layers + architecture.mtp_layers
    if not framework.can_pipeline or architecture.family is Family.ENCODER_DECODER:
        return [(1, 1)] if pins.get("pp", 1) == 1 and pins.get("vpp", 1) == 1 else []
    uneven, powers = framework.can_stage_unevenly, set(_powers(layers))
    totals = [layers, layers + 2] if uneven else [layers]
    stages = {(p, 1) for total in totals for p in _divisors(total) if p <= layers}
    if uneven:
        stages |= {
            (p, 1) for p in _round(layers) if p in powers or -(-layers // p) * p <= _FULL_ENOUGH * layers
        }
    if framework.can_interleave:
        stages |= {
            (p, chunks // p)
            for total in totals
            for chunks in _divisors(total)
            if chunks <= layers + 2
            for p in _divisors(chunks)
            if 1 < p < chunks
        }
    if framework.can_interleave and uneven:
        stages |= {
            (p, chunks // p)
            for chunks in _powers(layers)
            if -(-layers // chunks) * chunks <= _FULL_ENOUGH * layers
            for p in _powers(chunks // 2)[1:]
        }
    return [s for s in sorted(stages) if s[0] == pins.get("pp", s[0]) and s[1] == pins.get("vpp", s[1])]


def _cp(
    architecture: Architecture, workload: Workload, framework: Framework, pins: Mapping[str, int]
) -> list[int]:
    """Cp splits the sequence into 2 * cp equal parts (zigzag order balances the causal mask)."""
    decoder = architecture.family is Family.DECODER
    if not framework.can_context_parallel or not decoder:
        return _pin("cp", [1], pins)
    sequence = workload.sequence_tokens
    fewest = 1 if "cp" in pins else _MIN_TOKENS_PER_CP_RANK
    options = [c for c in _powers(sequence // fewest) if c == 1 or sequence % (2 * c) == 0]
    return _pin("cp", options, pins)


def _ep(architecture: Architecture, framework: Framework, pins: Mapping[str, int]) -> list[int]:
    """Ep divides the number of experts. Dense models have ep 1."""
    experts = architecture.experts if framework.can_expert_parallel else 1
    return _pin("ep", _divisors(max(1, experts)), pins)


def _micro_batch(workload: Workload, pins: Mapping[str, int]) -> list[int]:
    """Powers of two up to the batch; 3 and 6 if they divide it; any pinned size up to it.

    Beside a reference model both answers of a pair are in one micro-batch (DPO).
    """
    batch = workload.global_batch_sequences
    if "micro_batch" in pins:
        return [pins["micro_batch"]] if 1 <= pins["micro_batch"] <= batch else []
    powers = set(_powers(batch))
    usual = (b for b in _round(batch) if b in powers or (b <= _LARGEST_ODD and batch % b == 0))
    return [b for b in usual if b % 2 == 0 or not workload.reference_model]


def _recompute(workload: Workload, framework: Framework, pins: Mapping[str, int]) -> list[int]:
    """The workload's mode; AUTO searches all modes that the framework supports."""
    if "recompute" in pins:
        return [pins["recompute"]]
    if workload.recompute is not Recompute.AUTO:
        return [int(workload.recompute)]
    modes = [Recompute.NONE, Recompute.FULL]
    if framework.can_selective_recompute:
        modes.insert(1, Recompute.SELECTIVE)
    return [int(mode) for mode in modes]


def _shards(
    domain: int, workload: Workload, framework: Framework, pins: Mapping[str, int]
) -> list[tuple[int, int, int]]:
    """(sharding, shard group, offload). HSDP groups span one NVLink domain or a few nodes.

    Quantised weights stay on the GPU: bitsandbytes' kernels read them there, in every stack that uses it.
    """
    moves_weights = framework.can_offload_parameters and workload.method is not Method.QLORA
    rows: list[tuple[int, int, int]] = []
    for sharding in _shardings(framework):
        groups = [0]
        if sharding == Sharding.HSDP:
            groups = [ranks for ranks in (domain, 4 * domain, 16 * domain) if ranks > 1]
        rows += [(int(sharding), group, 0) for group in groups]
        if sharding == Sharding.ZERO3 and framework.can_offload_optimizer:
            rows.append((int(sharding), 0, int(Offload.OPTIMIZER)))
        if sharding == Sharding.ZERO3 and moves_weights:
            rows.append((int(sharding), 0, int(Offload.OPTIMIZER | Offload.PARAMETERS)))
    names = ("sharding", "shard_group", "offload")
    return [row for row in rows if all(row[i] == pins.get(name, row[i]) for i, name in enumerate(names))]


def _shardings(framework: Framework) -> list[Sharding]:
    able = {
        Sharding.ZERO1: framework.can_zero1,
        Sharding.ZERO2: framework.can_zero2,
        Sharding.ZERO3: framework.can_zero3,
        Sharding.HSDP: framework.can_hsdp,
    }
    return [Sharding.NONE, *(sharding for sharding, can in able.items() if can)]
