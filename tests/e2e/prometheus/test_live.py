"""The client, the readings and the report against a real Prometheus with live data."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rightsizer_engine.domain.reading import Phase, Reading
from rightsizer_telemetry.client import FailedQuery
from rightsizer_telemetry.coverage import NoData, look
from rightsizer_telemetry.readings import MonitoredJob, read
from rightsizer_telemetry.usage import collect, owners

pytestmark = pytest.mark.prometheus

INTERVAL_S = 5


def job(name, executor="kubernetes", namespace="team", **more):
    return MonitoredJob(key=name, executor=executor, namespace=namespace, workload=name, window_s=60, **more)


def test_a_healthy_plan_is_read_correctly(live):
    with live.client() as client:
        found = read(client, [job("llama-a1", gpus=4)], interval_s=INTERVAL_S)["llama-a1"]
    assert found.gpu_busy_mean == pytest.approx(0.9)
    assert (found.tensor_active, found.power_fraction) == pytest.approx((0.4, 600 / 700))
    assert (found.phase, found.gpus, found.memory_used_fraction) == (Phase.TRAINING, 4, 0.75)
    assert found.tokens_per_s == pytest.approx(1000, rel=0.2)
    assert found.data_wait_fraction == pytest.approx(0.3, rel=0.5)
    assert found.checkpoint_age_s == pytest.approx(30, abs=60)
    assert found.coverage > 0.1
    assert found.age_s < 60
    assert found.window_steps > 5
    assert any('workload="llama-a1"' in query and query.endswith("= 0.9") for query in found.queries)


def test_jobs_of_both_executors_are_read_at_once_and_apart(live):
    slurm = {"executor": "slurm", "namespace": ""}
    jobs = [job("llama-a1"), job("notebook", namespace="play"), job("101", **slurm), job("102", **slurm)]
    with live.client() as client:
        found = read(client, jobs, interval_s=INTERVAL_S)
    assert {key: round(one.gpu_busy_mean, 2) for key, one in found.items()} == {
        "llama-a1": 0.9,
        "notebook": 0,
        "101": 0.4,
        "102": 0.4,
    }
    assert (found["notebook"].gpu_busy_max, found["101"].gpu_busy_max) == (0, 0.8)
    assert found["notebook"].tokens_per_s is None


def test_a_job_with_an_unreported_gpu_has_less_coverage(live):
    with live.client() as client:
        whole, half = (
            read(client, [job("llama-a1", gpus=gpus)], interval_s=INTERVAL_S)["llama-a1"].coverage
            for gpus in (4, 8)
        )
    assert half == pytest.approx(whole / 2, rel=0.5)


@pytest.mark.parametrize(
    "name",
    [
        "liar",
        "absent",
        'a"} or vector(1) or x{a="',
        "a|.*",
        "%s",
        "%r",
        "\\",
        "\n",
        "\u00fcn\u00efcode \u2713",
    ],
    ids=["lies", "absent", "injection", "regex", "template", "window", "backslash", "newline", "unicode"],
)
def test_invalid_values_are_unknown(live, name):
    namespace = "liar" if name == "liar" else name
    with live.client() as client:
        found = read(client, [job(name, namespace=namespace)], interval_s=INTERVAL_S)[name]
    assert found == Reading(window_s=60)


def test_a_name_that_needs_escaping_is_found(live):
    with live.client() as client:
        found = read(client, [job('quo"te\\ness', namespace="odd")], interval_s=INTERVAL_S)
    assert found['quo"te\\ness'].gpu_busy_mean == pytest.approx(0.7)


def test_a_wrong_query_fails_with_its_reason(live):
    with live.client() as client:
        answer = client.instant("sum(")
    assert isinstance(answer, FailedQuery)
    assert "parse error" in answer.reason


NEEDS = {
    "llama-a1": 4,
    "notebook": 0,
    "server": 1,
    'quo"te\\ness': 1,
    "101": 2,
    "102": 1,
    "unseen": None,
}


def needs(report):
    return {use.workload: use.needs_gpus for use in report.workloads if use.workload != "small"}


def test_the_report_names_the_holders_of_gpus(live):
    with live.client() as client:
        found = collect(client, window_s=60, price_usd_per_gpu_h=3.0)
    uses = {use.workload: use for use in found.workloads}
    assert needs(found) == NEEDS
    assert (uses["101"].owner, uses["102"].owner) == ("lab/ada", "physics/bob")
    assert uses["101"].idle_gpu_h == pytest.approx(uses["101"].held_gpu_h / 2, rel=0.3)
    assert uses["llama-a1"].plan == "llama"
    assert uses["unseen"].used_gpu_h is None
    assert uses["unseen"].gpus == 8
    play = next(owner for owner in owners(found) if owner.name == "play")
    assert play.idle_usd == pytest.approx(3.0 * play.held_gpu_h)
    assert found.free_gpu_h > 0
    assert max(value for _, value in found.curves["held"]) >= 13


def test_a_server_without_our_rules_gives_the_same_report_from_raw_series(live, bare):
    with live.client() as ruled, bare.client() as unruled:
        recorded, raw = collect(ruled, window_s=60), collect(unruled, window_s=60)
    assert (recorded.coverage.recorded, raw.coverage.recorded) == (True, False)
    assert needs(raw) == NEEDS
    figures = [
        {
            use.workload: (use.owner, use.plan, use.models, use.tensor_active, use.memory_used_max)
            for use in uses
        }
        for uses in (recorded.workloads, raw.workloads)
    ]
    assert figures[0] == figures[1]
    assert raw.free_gpu_h == pytest.approx(recorded.free_gpu_h)
    assert [len(raw.curves[name]) for name in ("held", "busy", "free")] == [3, 3, 3]


def test_a_window_longer_than_the_data_is_reported(live):
    with live.client() as client:
        found = collect(client, window_s=30 * 86400)
    assert found.coverage.gpu_s < 86400
    assert "of the 30d asked" in found.coverage.notes[0]


def test_a_server_that_scrapes_no_gpus_is_no_data(bare):
    with bare.client() as client:
        past_s = float(client.instant("vector(time())")[0].value) - 7 * 86400
        assert isinstance(look(client, start_s=past_s, end_s=past_s + 600, step_s=30), NoData)


def rightsizer(*arguments):
    command = [Path(sys.executable).with_name("rightsizer"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


def test_the_command_prints_a_table_json_and_a_page(live, tmp_path):
    page = tmp_path / "report.html"
    where = ["--prometheus", live.url, "--window", "2m", "--price", "3"]
    table = rightsizer("report", *where, "--html", str(page))
    assert table.returncode == 0, table.stderr
    assert "notebook" in table.stdout
    assert "GPU-hours idle" in table.stdout.splitlines()[0]
    found = json.loads(rightsizer("report", *where, "--json").stdout)
    assert {"play", "team", "lab/ada"} <= {owner["name"] for owner in found["owners"]}
    text = page.read_text()
    assert "quo&#34;te" in text
    assert 'quo"te' not in text
    assert text.count("<svg") == 3
    assert "http" not in text


def test_a_server_that_goes_away_is_unknown_and_comes_back(live):
    jobs = [job("llama-a1")]
    with live.client(timeout_s=5.0) as client:
        assert read(client, jobs, interval_s=INTERVAL_S)["llama-a1"].gpu_busy_mean is not None
        live.stop()
        assert read(client, jobs, interval_s=INTERVAL_S)["llama-a1"] == Reading(window_s=60)
        live.start()
    end_s = time.monotonic() + 120
    with live.client() as client:
        while read(client, jobs, interval_s=INTERVAL_S)["llama-a1"].gpu_busy_mean is None:
            assert time.monotonic() < end_s
            time.sleep(2)
