"""Recorded families as PromQL over raw series; tests/e2e/prometheus has both on a real server."""

import pytest

from rightsizer_telemetry.raw import families, inline
from rightsizer_telemetry.sources import DCGM, JOBSTATS

KNOWN = {"rightsizer:a:count": "count (rightsizer:b:ratio)", "rightsizer:b:ratio": "b"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("rightsizer:b:ratio", "(b)"),
        ("rightsizer:a:count * 2", "(count ((b))) * 2"),
        ('rightsizer:b:ratio{x=""}', "((b) and on (x) vector(1))"),
        ('rightsizer:b:ratio{x!=""}', "((b) unless on (x) vector(1))"),
        ("max_over_time(rightsizer:b:ratio[60s])", "max_over_time((b)[60s:30s])"),
        ("up", "up"),
    ],
    ids=["name", "nested", "without", "with", "range", "other"],
)
def test_a_recorded_family_becomes_its_expression(query, expected):
    assert inline(query, KNOWN, step="30s") == expected


def test_a_value_to_match_becomes_a_join():
    joined = '((b) and on (x) label_replace(vector(1), "x", "y", "", ""))'
    assert inline('rightsizer:b:ratio{x="y"}', KNOWN, step="30s") == joined


def test_only_signals_that_were_seen_are_read():
    busy = families({DCGM: frozenset({"DEV_GPU_UTIL"}), JOBSTATS: frozenset()})["rightsizer:gpu_busy:ratio"]
    assert "DEV_GPU_UTIL" in busy
    assert "GR_ENGINE" not in busy
    assert "nvidia_gpu" not in busy


def test_a_family_without_a_signal_is_empty():
    tensor = families({DCGM: frozenset({"DEV_GPU_UTIL"})})["rightsizer:gpu_tensor_active:ratio"]
    assert "(vector(0) > 0)" in tensor
    assert "DCGM" not in tensor


def test_several_sources_count_a_gpu_once():
    both = {DCGM: frozenset({"DEV_GPU_UTIL"}), JOBSTATS: frozenset({"duty_cycle"})}
    assert "unless on (uuid, mig)" in families(both)["rightsizer:gpu_busy:ratio"]
