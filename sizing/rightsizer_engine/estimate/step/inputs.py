"""The inputs of a layer's and of a step's time: work, kernels and links, computed once."""

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.estimate.collectives import Links, links
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.estimate.step.attention import AttentionTimes, attention
from rightsizer_engine.estimate.step.kernels import GpuRates, KernelTimes, kernels, rates
from rightsizer_engine.estimate.work import LayerWork, layer_work
from rightsizer_engine.values import immutable


@immutable
class StepInputs:
    """The inputs of a layer's or a step's time."""

    cases: Cases
    work: LayerWork
    kernels: KernelTimes
    attention: AttentionTimes
    rates: GpuRates
    links: Links
    parameters: Parameters


def step_inputs(cases: Cases, parameters: Parameters) -> StepInputs:
    """Shapes, kernels, rates and links of the cases."""
    work, speed = layer_work(cases), rates(cases, parameters)
    return StepInputs(
        cases=cases,
        work=work,
        kernels=kernels(cases, work, speed, parameters),
        attention=attention(cases, work, speed, parameters),
        rates=speed,
        links=links(cases, parameters),
        parameters=parameters,
    )
