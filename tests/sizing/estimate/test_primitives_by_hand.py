"""Seconds of one matmul, one collective, one message: worked out by hand, exactly.

Every fitted share is 1 and every fitted time 0, unless a test says otherwise.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from rightsizer_engine.estimate import collectives
from rightsizer_engine.estimate.collectives import Links
from rightsizer_engine.estimate.parameters import load_step_time
from rightsizer_engine.estimate.step.kernels import matmul_s, wave_efficiency

FAST = 1e30
SHARES = ("tile_128", "tile_64", "tile_32")
TIMES = ("wave_exponent", "ring_latency_s", "ring_step_s")
PLAIN = load_step_time().replace(**dict.fromkeys(SHARES, 1.0), **dict.fromkeys(TIMES, 0.0))
WIRES = {
    "inside_bytes_per_s": 1e9,
    "between_bytes_per_s": 1e8,
    "line_bytes_per_s": 1e9,
    "reach_gpus": 4,
    "switched": True,
    "datagrams": False,
}


def matmul(m, n, k, *, hbm=FAST, half_k=0.0, **changed):
    known = SimpleNamespace(hbm_bytes_per_s=np.asarray(hbm), multiprocessors=np.asarray(1))
    m_, n_, k_ = (np.asarray(float(x)) for x in (m, n, k))
    rate, half = np.asarray(1e6), np.asarray(half_k)
    parameters = PLAIN.replace(**changed)
    return float(matmul_s(m_, n_, k_, flop_per_s=rate, half_k=half, rates=known, parameters=parameters))


def test_a_matmul_takes_its_flop_its_prologue_and_its_bytes():
    assert matmul(256, 128, 64) == pytest.approx(2 * 256 * 128 * 64 / 1e6, rel=1e-9)
    assert matmul(256, 128, 64, half_k=16.0) == pytest.approx(
        2 * 256 * 128 * 64 * (1 + 16 / 64) / 1e6, rel=1e-9
    )
    moved = 2 * (256 * 64 + 64 * 128 + 256 * 128)
    assert matmul(256, 128, 64, hbm=1e-6) == pytest.approx(moved / 1e-6, rel=1e-9)
    assert matmul(257, 128, 64, wave_exponent=1.0, tile_128=0.1, tile_64=0.1, tile_32=0.1) == pytest.approx(
        2 * 512 * 128 * 64 / 1e6, rel=1e-9
    )  # a second tile of 256 x 128 for one row


@pytest.mark.parametrize(
    ("m", "n", "multiprocessors", "share"),
    [
        (256, 128, 1, 1.0),
        (256, 128, 2, 1.0),  # two tiles of 128 x 128
        (128, 128, 4, 1.0),  # four of 64 x 64
        (256, 256, 3, 8 / 9),  # eight of 128 x 64 in three waves
        (64, 64, 2, 0.5),
    ],
)
def test_wave_efficiency_is_the_useful_share_of_the_best_tiles(m, n, multiprocessors, share):
    found = wave_efficiency(np.asarray(m), np.asarray(n), np.asarray(multiprocessors), PLAIN)
    assert float(found) == pytest.approx(share)


def wires(**changed):
    return Links(**{name: np.asarray(value) for name, value in (WIRES | changed).items()})


@pytest.mark.parametrize(
    ("ranks", "stride", "seconds"),
    [
        (1, 1, 0.0),
        (2, 1, 1 / 2 / 1.0),
        (4, 1, 3 / 4 / 1.0),
        (8, 1, 7 / 8 / 0.4),  # 4 GPUs of a node share a ring over 4 NICs
        (2, 4, 1 / 2 / 0.1),  # one GPU of a node, one NIC
        (4, 2, 3 / 4 / 0.2),
    ],
)
def test_a_ring_moves_n_minus_1_over_n_at_the_rate_that_binds(ranks, stride, seconds):
    known = wires()
    where = collectives.group(known, np.asarray(ranks), stride)
    gather = collectives.ring_s(np.asarray(1e9), where, known, PLAIN)
    reduce = collectives.ring_s(np.asarray(1e9), where, known, PLAIN, passes=2.0)
    assert (float(gather), float(reduce)) == (pytest.approx(seconds), pytest.approx(2 * seconds))


def test_every_pass_of_a_ring_has_its_latency():
    p = PLAIN.replace(ring_latency_s=1.0)
    known = wires()
    where = collectives.group(known, np.asarray(16))
    assert float(collectives.ring_s(np.asarray(0.0), where, known, p, passes=2.0)) == pytest.approx(2.0)


def test_nccl_s_protocol_costs_a_step_for_messages_beyond_12_mb_on_long_rings():
    """Half the constant at 300 GB/s on 8 GPUs; a third of that on 4; the slower link's step is longer."""
    p = PLAIN.replace(ring_step_s=1.0)
    known = wires(inside_bytes_per_s=1e11, line_bytes_per_s=1e11, reach_gpus=8)
    steps = [
        float(collectives.ring_s(np.asarray(1e10), collectives.group(known, np.asarray(n)), known, p))
        - 0.1 * (n - 1) / n
        for n in (2, 4, 8)
    ]
    assert steps == pytest.approx([0.0, 3 / 2 / 3, 3 / 2], abs=1e-9)
    at_knee = collectives.ring_s(np.asarray(12e6), collectives.group(known, np.asarray(8)), known, p)
    assert float(at_knee) == pytest.approx(3 / 2 / 2, rel=1e-3)


def test_an_all_to_all_sends_all_but_its_own_share_and_to_each_node_once():
    known = wires()
    p = PLAIN.replace(ring_latency_s=1.0)
    where = collectives.group(known, np.asarray(8))
    found = collectives.all_to_all_s(np.asarray(1e9), np.asarray(3e8), where, known, p)
    assert float(found) == pytest.approx(3 / 4 + 3 + 2 * 1.0)


def test_messages_take_their_bytes_and_a_latency():
    p = PLAIN.replace(ring_latency_s=1.0)
    sent = [
        float(collectives.send_s(np.asarray(1e9), np.asarray(far), np.asarray(4), wires(), p))
        for far in (False, True)
    ]
    assert sent == pytest.approx([1 + 1, 1e9 / 1e8 + 1])


@pytest.mark.parametrize(("sharing", "seconds"), [(1, 25.0), (4, 100.0)])
def test_messages_of_a_node_share_one_rate_on_a_network_of_datagrams(sharing, seconds):
    """1 GB at 40 MB/s takes 25 s; four senders get 10 MB/s each."""
    p = PLAIN.replace(p2p_srd_bytes_per_s=4e7)
    sent = collectives.send_s(
        np.asarray(1e9), np.asarray(True), np.asarray(sharing), wires(datagrams=True), p
    )
    assert float(sent) == pytest.approx(seconds)


@pytest.mark.parametrize(("domain", "share"), [(1, 0.25), (2, 0.5)], ids=["PCIe", "NVLink of two GPUs"])
def test_a_domain_of_one_gpu_has_pcie_and_a_larger_one_nvlink(domain, share):
    """100 GB/s, of which the fits say that PCIe reaches a quarter and NVLink half; a node has 8 GPUs."""
    cluster = {"nvlink_domain_gpus": domain, "gpus_per_node": 8, "intra_bytes_per_s": 1e11}
    cluster |= {"inter_bytes_per_s": 1e10, "inter_link": ""}
    machine = SimpleNamespace(**{name: np.asarray(value) for name, value in cluster.items()})
    p = PLAIN.replace(nvlink_fraction=0.5, pcie_fraction=0.25)
    known = collectives.links(SimpleNamespace(cluster=machine), p)
    assert float(known.inside_bytes_per_s) == share * 1e11
    assert (bool(known.switched), int(known.reach_gpus)) == (domain > 1, 2 if domain > 1 else 8)
