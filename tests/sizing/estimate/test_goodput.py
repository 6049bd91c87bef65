import math

import numpy as np
import pytest

from rightsizer_engine.errors import UnknownNameError
from rightsizer_engine.estimate import goodput
from rightsizer_engine.estimate.goodput import Reliability

BYTES_405B = 405e9 * 14


def _estimate(gpus, **changes):
    return goodput.estimate(np.asarray(gpus), np.asarray(BYTES_405B), Reliability(**changes))


def test_the_parts_of_the_wall_time_sum_to_one():
    good = _estimate([1, 8, 1024, 16384, 131072])
    total = good.productive + good.checkpoint + good.lost_work + good.restart
    np.testing.assert_allclose(total, 1.0)


def test_more_gpus_fail_more_often():
    productive = _estimate([8, 64, 512, 4096, 32768]).productive
    assert np.all(np.diff(productive) < 0)


def test_mean_time_to_failure_is_metas_projection_for_16384_gpus():
    hours = float(_estimate(16384).mean_time_to_failure_s) / 3600
    assert hours == pytest.approx(1.80, abs=0.01)  # arXiv:2410.21680


def test_llama3_spends_over_ninety_percent_of_its_time_training():
    """arXiv:2407.21783, 3.3: 2 TB/s of storage, more than 90 % effective training time."""
    rate = goodput.reliability("llama3").failures_per_1000_node_days
    good = _estimate(16384, failures_per_1000_node_days=rate, checkpoint_bytes_per_s=2e12)
    assert 0.90 < float(good.productive) < 0.96


@pytest.mark.parametrize("mean_s", [1e4, 1e5, 1e6])
def test_daly_is_near_young_for_short_writes(mean_s):
    interval = float(goodput.checkpoint_interval_s(np.asarray(1.0), np.asarray(mean_s)))
    assert interval == pytest.approx(math.sqrt(2 * mean_s), rel=0.02)


def test_the_interval_is_the_best_one_of_its_neighbourhood():
    blocking, mean = 120.0, 115 * 3600.0
    best = float(goodput.checkpoint_interval_s(np.asarray(blocking), np.asarray(mean)))

    def wall(interval):
        return mean * math.expm1((interval + blocking) / mean) / interval

    assert best == pytest.approx(166 * 60, rel=0.02)
    assert wall(best) <= min(wall(best * 0.9), wall(best * 1.1))


@pytest.mark.parametrize(
    ("confidence", "spares"), [(0.5, 0), (0.97, 2), (0.995, 3)], ids=["median", "97", "99.5"]
)
def test_spares_follow_poisson_for_32_nodes(confidence, spares):
    assert goodput.spare_nodes(32, 8, Reliability(), confidence=confidence) == spares


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="llama3"):
        goodput.reliability("perfect")


def _whole_run(gpus, days, productive=1.0, **told):
    return goodput.whole_run(np.asarray(gpus), np.asarray(days) * 86400.0, np.asarray(productive), **told)


def test_large_whole_runs_lose_what_no_formula_lists_and_short_ones_hardly():
    found = _whole_run([8, 2048], [1 / 24, 60.0])
    assert found.unplanned[0] < 0.001
    assert 0.09 < found.unplanned[1] < 0.1


def test_whole_runs_scatter_alike_whatever_their_size():
    found = _whole_run([8, 2048], [1 / 24, 60.0])
    assert found.sigma_ln[0] == found.sigma_ln[1] > goodput.stays_ln()


def test_what_failures_take_is_part_of_the_time_that_is_not_effective():
    found = _whole_run(16384, 80.0, [1.0, 0.95, 0.87]).unplanned
    np.testing.assert_allclose(found, [0.1, 0.05, 0.0], atol=1e-4)


def test_other_nodes_wait_for_stragglers_and_a_single_one_does_not():
    found = _whole_run([1, 8, 16, 128, 16384], 1.0).stragglers
    assert np.all(found[:2] == 0)
    assert found[2] == pytest.approx(found[4] / 2, rel=0.01)
    assert found[3] > 0.9 * found[4]


def test_an_unnamed_stack_takes_its_share_of_the_remainder():
    named, unnamed = _whole_run(2048, 60.0), _whole_run(2048, 60.0, slower_stack_ln=0.123)
    assert named.slower_stack == 0
    assert unnamed.unplanned == named.unplanned
    assert (1 - named.lost) / (1 - unnamed.lost) == pytest.approx(np.exp(0.123), rel=1e-6)


@pytest.mark.parametrize(
    ("blocking_s", "mean_s", "interval_s"),
    [
        (
            72.0,
            3600.0,
            720 * (1 + 0.1 / 3 + 0.01 / 9) - 72,
        ),  # x = 72 / 7200 = 0.01, sqrt(2 * 72 * 3600) = 720
        (2 * 7200.0, 7200.0, 7200.0),  # a write as long as twice the mean: x = 1
        (1.0, 50.0, 60.0),  # sqrt(100) = 10: the shortest interval instead
    ],
)
def test_daly_s_interval(blocking_s, mean_s, interval_s):
    found = goodput.checkpoint_interval_s(np.asarray(blocking_s), np.asarray(mean_s))
    assert float(found) == pytest.approx(interval_s, rel=1e-12)


def test_failures_checkpoints_and_restarts_share_what_daly_s_wall_time_loses():
    """8 nodes at one failure a node-day fail every 3 h; 8 writers of 1e9 B/s take 10 s for 80e9 bytes."""
    rate = goodput.Reliability(
        failures_per_1000_node_days=1000.0, restart_s=90.0, checkpoint_bytes_per_s_per_node=1e9
    )
    found = goodput.estimate(np.asarray(64), np.asarray(80e9), rate)
    mean, delta, restart = 3 * 3600.0, 10.0, 90.0 + 10.0
    x = delta / 2 / mean
    tau = np.sqrt(2 * delta * mean) * (1 + np.sqrt(x) / 3 + x / 9) - delta
    wall = mean * np.exp(restart / mean) * (np.exp((tau + delta) / mean) - 1) / tau
    parts = np.asarray([delta / tau, (tau + delta) / 2 / mean, restart / mean])
    assert float(found.mean_time_to_failure_s) == pytest.approx(mean)
    assert float(found.productive) == pytest.approx(1 / wall, rel=1e-12)
    lost = np.asarray([found.checkpoint, found.lost_work, found.restart], dtype=float)
    assert lost == pytest.approx((1 - 1 / wall) * parts / parts.sum(), rel=1e-12)


def test_one_storage_limits_all_writers():
    fast = goodput.Reliability(failures_per_1000_node_days=1000.0, checkpoint_bytes_per_s=2e9)
    slow = goodput.Reliability(failures_per_1000_node_days=1000.0, checkpoint_bytes_per_s_per_node=2e9 / 8)
    both = [goodput.estimate(np.asarray(64), np.asarray(80e9), r).interval_s for r in (fast, slow)]
    assert both[0] == both[1]


def test_a_checkpoint_without_bytes_blocks_for_a_millisecond():
    rate = goodput.Reliability(failures_per_1000_node_days=1000.0)
    assert float(goodput.estimate(np.asarray(64), np.asarray(0.0), rate).checkpoint) < 1e-4


def test_medians_of_what_runs_measured_replace_the_assumptions_and_zeros_do_not():
    assumed = goodput.Reliability()
    assert goodput.measured(assumed, start_s=[0.0], write_bytes_per_s=[]) == assumed
    found = goodput.measured(assumed, start_s=[60.0, 0.0, 20.0, 30.0], write_bytes_per_s=[5e9])
    assert found.restart_s == 330.0, "detection and rescheduling stay"
    assert found.checkpoint_bytes_per_s_per_node == 5e9
