"""What holds a job back, from one window: idle, bound by input, memory or communication, healthy, unknown."""

from rightsizer.domain.reading import Reading
from rightsizer.estimate.parameters import Parameters, load_resize
from rightsizer.resize.types import Bottleneck
from rightsizer.values import immutable

__all__ = ["Diagnosis", "diagnose"]


@immutable
class Diagnosis:
    """The class and the measurement that says so, in words."""

    bottleneck: Bottleneck
    because: str


def diagnose(reading: Reading, parameters: Parameters | None = None) -> Diagnosis:
    """The first class whose evidence is there, worst first; what was not measured never decides.

    `reading` must be cleaned.
    """
    p = parameters or load_resize()
    for rule in (_idle, _input, _communication, _memory, _healthy):
        diagnosis = rule(reading, p)
        if diagnosis is not None:
            return diagnosis
    return Diagnosis(bottleneck=Bottleneck.UNKNOWN, because=_unexplained(reading, p))


def _idle(r: Reading, p: Parameters) -> Diagnosis | None:
    """The busiest GPU is idle, and no GPU draws power as if it were not."""
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
    because = f"{r.data_wait_fraction:.0%} of a step waits for data"
    return Diagnosis(bottleneck=Bottleneck.INPUT, because=because)


def _communication(r: Reading, p: Parameters) -> Diagnosis | None:
    if r.communication_fraction is None or r.communication_fraction < p.communication:
        return None
    because = f"{r.communication_fraction:.0%} of a step waits for other GPUs"
    return Diagnosis(bottleneck=Bottleneck.COMMUNICATION, because=because)


def _memory(r: Reading, p: Parameters) -> Diagnosis | None:
    if r.memory_active is None or r.tensor_active is None:
        return None
    if r.memory_active < p.memory_active or r.tensor_active >= p.memory_tensor:
        return None
    because = f"memory is {r.memory_active:.0%} busy, tensor cores {r.tensor_active:.0%}"
    return Diagnosis(bottleneck=Bottleneck.MEMORY, because=because)


def _healthy(r: Reading, p: Parameters) -> Diagnosis | None:
    """Tensor cores at work; where those are not measured, kernels."""
    if r.tensor_active is not None:
        good, because = r.tensor_active >= p.low_tensor, f"tensor cores are {r.tensor_active:.0%} busy"
    elif r.gpu_busy_mean is not None:
        good, because = r.gpu_busy_mean > p.low_busy, f"GPUs are {r.gpu_busy_mean:.0%} busy on average"
    else:
        return None
    return Diagnosis(bottleneck=Bottleneck.HEALTHY, because=because) if good else None


def _unexplained(r: Reading, p: Parameters) -> str:
    """Low use whose cause nothing measured, or nothing measured at all."""
    if r.gpu_busy_max is not None and r.gpu_busy_max < p.idle_busy:
        return "counters say idle, but it draws power or makes progress"
    if r.gpu_busy_mean is not None and r.gpu_busy_mean <= p.low_busy:
        return f"GPUs are {r.gpu_busy_mean:.0%} busy on average, and nothing measured says why"
    if r.tensor_active is not None:
        return f"tensor cores are {r.tensor_active:.0%} busy, and nothing measured says why"
    return "use of the GPUs was not measured"
