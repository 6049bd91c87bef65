"""GPU counters (DCGM, AMD's exporter) in the reading of a job. Pure."""

from dataclasses import fields, replace

from rightsizer_engine.domain.reading import Reading

_GPU_COUNTERS = (
    "gpu_busy_mean",
    "gpu_busy_max",
    "tensor_active",
    "memory_active",
    "power_fraction",
    "memory_used_fraction",
)


def with_gpu_counters(own: Reading, counters: Reading | None) -> Reading:
    """The job's own reading, its unknown GPU metrics filled from the counters."""
    if counters is None:
        return own
    known = {f.name for f in fields(Reading) if getattr(own, f.name) is not None}
    filled = {name: getattr(counters, name) for name in _GPU_COUNTERS if name not in known}
    joined: Reading = replace(own, **filled, queries=(*own.queries, *counters.queries))
    return joined
