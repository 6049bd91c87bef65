"""Diagnose one window of a job: idle, input-bound, memory-bound, healthy or unknown."""

from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.estimate.parameters import Parameters, load_resize
from rightsizer_engine.resize.types import Bottleneck
from rightsizer_engine.values import immutable


@immutable
class Diagnosis:
    """The bottleneck and the measurement that shows it, as text."""

    bottleneck: Bottleneck
    because: str


def diagnose(reading: Reading, parameters: Parameters | None = None) -> Diagnosis:
    """The worst bottleneck with evidence. Missing measurements never decide. `reading` must be cleaned."""
    p = parameters or load_resize()
    for rule in (_idle, _input, _memory, _healthy):
        diagnosis = rule(reading, p)
        if diagnosis is not None:
            return diagnosis
    return Diagnosis(bottleneck=Bottleneck.UNKNOWN, because=_unexplained(reading, p))


def _idle(r: Reading, p: Parameters) -> Diagnosis | None:
    """Idle: the busiest GPU is idle, does not draw active power, and no progress was measured."""
    if r.gpu_busy_max is None or r.gpu_busy_max >= p.idle_busy:
        return None
    if r.power_fraction is not None and r.power_fraction >= p.idle_power_veto:
        return None
    if r.tensor_active or (r.tokens_per_s or 0.0) > 0:
        return None
    power = f", drawing {r.power_fraction:.0%} of its power" if r.power_fraction is not None else ""
    return Diagnosis(
        bottleneck=Bottleneck.IDLE, because=f"its busiest GPU is {r.gpu_busy_max:.0%} busy{power}"
    )


def _input(r: Reading, p: Parameters) -> Diagnosis | None:
    if r.data_wait_fraction is None or r.data_wait_fraction < p.data_wait:
        return None
    because = f"{r.data_wait_fraction:.0%} of step time waits for data"
    return Diagnosis(bottleneck=Bottleneck.INPUT, because=because)


def _memory(r: Reading, p: Parameters) -> Diagnosis | None:
    if r.memory_active is None or r.tensor_active is None:
        return None
    if r.memory_active < p.memory_active or r.tensor_active >= p.memory_tensor:
        return None
    because = f"memory is {r.memory_active:.0%} busy, tensor cores {r.tensor_active:.0%}"
    return Diagnosis(bottleneck=Bottleneck.MEMORY, because=because)


def _healthy(r: Reading, p: Parameters) -> Diagnosis | None:
    """Healthy: tensor cores are busy or, if those were not measured, kernels run."""
    if r.tensor_active is not None:
        good, because = r.tensor_active >= p.low_tensor, f"tensor cores are {r.tensor_active:.0%} busy"
    elif r.gpu_busy_mean is not None:
        good, because = r.gpu_busy_mean > p.low_busy, f"GPUs are {r.gpu_busy_mean:.0%} busy on average"
    else:
        return None
    return Diagnosis(bottleneck=Bottleneck.HEALTHY, because=because) if good else None


def _unexplained(r: Reading, p: Parameters) -> str:
    """Low utilisation without a measured cause, or no measurement at all."""
    if r.gpu_busy_max is not None and r.gpu_busy_max < p.idle_busy:
        return "counters show idle GPUs, but the job draws power or makes progress"
    if r.gpu_busy_mean is not None and r.gpu_busy_mean <= p.low_busy:
        return f"GPUs are {r.gpu_busy_mean:.0%} busy on average; no measurement shows the cause"
    if r.tensor_active is not None:
        return f"tensor cores are {r.tensor_active:.0%} busy; no measurement shows the cause"
    return "GPU utilisation was not measured"
