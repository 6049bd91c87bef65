"""The GPU metrics of a server, by the families that a stand-in reports."""

import httpx
import pytest

from rightsizer_engine.errors import InputError
from rightsizer_telemetry.client import Prometheus, PrometheusSettings
from rightsizer_telemetry.coverage import NoData, look
from rightsizer_telemetry.sources import DCGM

RULES, UTIL, REQUESTED = "rightsizer:gpu_busy:ratio", "DCGM_FI_DEV_GPU_UTIL", "requested"
BEST = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def found(**families):
    """Coverage of 1,000 s in steps of 10 s; each family with the seconds that it lasts, up to now."""

    def answer(_):
        result = [
            {
                "metric": {"family": name},
                "values": [[at, "1"] for at in range(1000, 1000 - seconds - 1, -10)],
            }
            for name, seconds in families.items()
        ]
        data = {"resultType": "matrix", "result": result}
        return httpx.Response(200, json={"status": "success", "data": data})

    access = PrometheusSettings(url="http://prometheus.test")
    with Prometheus(access, transport=httpx.MockTransport(answer)) as client:
        return look(client, start_s=0, end_s=1000, step_s=10)


def test_recorded_series_are_preferred():
    coverage = found(**{RULES: 1000, BEST: 1000, REQUESTED: 1000})
    assert (coverage.recorded, coverage.gpu_s, coverage.notes) == (True, 1000, ())


@pytest.mark.parametrize("seconds", [None, 300], ids=["no rules", "rules since lately"])
def test_raw_series_that_cover_more_win(seconds):
    coverage = found(**{BEST: 1000, REQUESTED: 1000}, **({} if seconds is None else {RULES: seconds}))
    assert not coverage.recorded
    assert coverage.sources[DCGM] == {"PROF_GR_ENGINE_ACTIVE"}
    assert coverage.gpu_s == 1000
    assert "recording-rules.yaml" in coverage.notes[0]


def test_a_partial_window_is_reported():
    coverage = found(**{RULES: 100, REQUESTED: 1000})
    assert coverage.gpu_s == 100
    assert coverage.notes == ("GPU metrics cover 1m40s of the 16m40s asked",)


def test_requests_alone_leave_the_idle_share_unknown():
    coverage = found(**{REQUESTED: 1000})
    assert coverage.gpu_s == 0
    assert "no exporter reports how busy" in coverage.notes[0]


def test_signals_without_mig_are_reported():
    assert any("MIG" in note for note in found(**{UTIL: 1000, REQUESTED: 1000}).notes)


def test_gpus_without_an_exporter_may_be_missing():
    assert any("kube-state-metrics" in note for note in found(**{RULES: 1000}).notes)


def test_nothing_is_no_data_with_a_remedy():
    coverage = found()
    assert isinstance(coverage, NoData)
    assert "DCGM_FI_" in coverage.reason
    assert "dcgm-exporter" in coverage.remedy


def test_a_server_that_fails_is_an_error():
    access = PrometheusSettings(url="http://prometheus.test")
    transport = httpx.MockTransport(lambda _: httpx.Response(503))
    with Prometheus(access, transport=transport) as client, pytest.raises(InputError, match="address"):
        look(client, start_s=0, end_s=1000, step_s=10)
