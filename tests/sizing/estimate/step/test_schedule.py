import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.estimate.step.schedule import bubble_s, stage_layers


def cases(pp: int, vpp: int = 1, micro_batches: int = 8, model: str = "meta-llama/Llama-3.1-8B") -> Cases:
    return Cases.of(
        Case(
            architecture=lookup.model(model),
            workload=Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=8),
            cluster=lookup.cluster("H100-SXM5-80GB"),
            framework=framework("megatron-core"),
            layout=Layout(pp=pp, vpp=vpp, micro_batches=micro_batches),
        )
    )


def test_without_a_pipeline_one_stage_holds_every_layer() -> None:
    dealt = stage_layers(cases(1))
    assert float(dealt.middle_layers) == float(dealt.last_layers) == 32


@pytest.mark.parametrize(("pp", "layers"), [(2, 16), (4, 8), (8, 4)])
def test_an_even_pipeline_deals_layers_evenly(pp: int, layers: int) -> None:
    assert float(stage_layers(cases(pp)).middle_layers) == layers


def test_126_layers_on_16_stages_leave_the_last_one_shorter() -> None:
    """Llama 3 (arXiv:2407.21783): first and last stage hold one layer fewer."""
    dealt = stage_layers(cases(16, model="meta-llama/Llama-3.1-405B"))
    assert float(dealt.middle_layers) == 8
    assert float(dealt.last_layers) == 7


def test_the_bubble_is_p_minus_1_stages() -> None:
    found = bubble_s(cases(4), np.asarray(1.0), np.asarray(1.0))
    assert float(found) == pytest.approx(3.0)


def test_interleaving_divides_the_bubble() -> None:
    found = bubble_s(cases(4, vpp=2), np.asarray(1.0), np.asarray(1.0))
    assert float(found) == pytest.approx(1.5)


def test_a_heavy_last_stage_waits_for_the_others_once() -> None:
    found = bubble_s(cases(4), np.asarray(1.0), np.asarray(2.0))
    assert float(found) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("pp", "middle", "last"),
    [(12, 3, 2), (5, 7, 4), (24, 2, 1)],
    ids=["several short stages", "one short stage", "more stages than half the layers"],
)
def test_an_uneven_pipeline_is_as_slow_as_its_longest_stage(pp: int, middle: int, last: int) -> None:
    dealt = stage_layers(cases(pp))
    assert (float(dealt.middle_layers), float(dealt.last_layers)) == (middle, last)


def test_short_stages_do_not_lengthen_the_bubble() -> None:
    """32 layers on 12 stages: all of them once, less the longest stage's 3."""
    found = bubble_s(cases(12), np.asarray(3.0), np.asarray(2.0), np.asarray(32.0))
    assert float(found) == pytest.approx(29.0)
