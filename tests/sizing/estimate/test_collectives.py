import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.estimate import collectives
from rightsizer_engine.estimate.collectives import Links
from rightsizer_engine.estimate.parameters import load_step_time

P = load_step_time()


def wires(inside: float = 2.4e11, between: float = 2e10, reach: int = 8, *, datagrams: bool = False) -> Links:
    return Links(
        inside_bytes_per_s=np.asarray(inside),
        between_bytes_per_s=np.asarray(between),
        line_bytes_per_s=np.asarray(3e11),
        reach_gpus=np.asarray(reach),
        switched=np.asarray(True),
        datagrams=np.asarray(datagrams),
    )


def case(cluster: Cluster) -> Case:
    return Case(
        architecture=lookup.model("Llama 2 7B"),
        workload=Workload(tokens=1e9, sequence_tokens=512, global_batch_sequences=2),
        cluster=cluster,
        framework=lookup.framework("fsdp2"),
        layout=Layout(dp=2),
    )


def ring(payload: float, ranks: int, stride: int = 1, links: Links | None = None) -> float:
    known = links or wires()
    group = collectives.group(known, np.asarray(ranks), stride)
    return float(collectives.ring_s(np.asarray(payload), group, known, P))


BYTES = st.floats(min_value=1.0, max_value=1e11)


def test_one_rank_sends_nothing() -> None:
    assert ring(1e9, 1) == 0.0


@given(BYTES, st.integers(min_value=2, max_value=1024))
def test_more_bytes_take_longer(payload: float, ranks: int) -> None:
    assert ring(payload * 1.1, ranks) > ring(payload, ranks)


@given(BYTES, st.integers(min_value=2, max_value=1024))
def test_a_faster_network_is_never_slower(payload: float, ranks: int) -> None:
    assert ring(payload, ranks, links=wires(between=4e10)) <= ring(payload, ranks)


def test_a_group_in_one_domain_does_not_touch_the_network() -> None:
    assert ring(1e9, 8, links=wires(between=1.0)) == ring(1e9, 8)


def test_all_nics_of_a_node_carry_a_group_that_fills_it() -> None:
    whole, strided = ring(1e10, 64, stride=1), ring(1e10, 64, stride=8)
    assert whole < strided / 5


@pytest.mark.parametrize(
    ("payload", "measured_s"), [(134217728, 1327.6e-6), (1073741824, 8204.0e-6)], ids=["128 MiB", "1 GiB"]
)
def test_a_measured_all_reduce_is_met(payload: int, measured_s: float) -> None:
    """nccl-tests on 8 A100 SXM, stas00/ml-engineering network/README.md (2026-08)."""
    links = wires(inside=3e11 * P.nvlink_fraction)
    group = collectives.group(links, np.asarray(8))
    found = collectives.ring_s(np.asarray(float(payload)), group, links, P, passes=2.0)
    assert float(found) == pytest.approx(measured_s, rel=0.25)


def test_datagram_networks_are_slow_for_single_messages() -> None:
    fast, slow = (
        collectives.send_s(
            np.asarray(3e7), np.asarray(True), np.asarray(8), wires(between=4e10, datagrams=flag), P
        )
        for flag in (False, True)
    )
    assert float(slow) > 5 * float(fast)


@given(BYTES, st.integers(min_value=2, max_value=256))
def test_an_all_to_all_is_finite_and_grows(payload: float, ranks: int) -> None:
    links = wires()
    group = collectives.group(links, np.asarray(ranks))
    small, large = (
        float(collectives.all_to_all_s(np.asarray(x), np.asarray(x / 2), group, links, P))
        for x in (payload, payload * 2)
    )
    assert 0 < small < large < np.inf


def test_cards_without_peer_to_peer_gather_at_2_to_3_gb_per_s() -> None:
    known = collectives.links(Cases.of(case(lookup.cluster("RTX 3090", gpus_per_node=2))), P)
    gather_s = ring(13.5e9, 2, links=known)  # a 7B model's weights; measured: 4.5 s for both passes
    assert 2e9 < 13.5e9 / 2 / gather_s < 3.2e9
