"""The agent in processes of its own: it keeps state, and takes signals."""

import json
import os
import subprocess
import sys
import urllib.request

import pytest

from rightsizer_launch.worker import metrics
from rightsizer_launch.worker.progress import ProgressReader
from rightsizer_launch.worker.rendezvous import free_port

LOOP = """
import os, signal, sys
import rightsizer_launch.agent as agent
agent.start(step=3, tokens=300.0)
for n in range(5):
    if n == int(sys.argv[1]):
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    agent.step(tokens=100.0, loss=2.0)
    if agent.should_checkpoint():
        agent.checkpointed("somewhere")
    if agent.should_stop():
        break
else:
    agent.finish()
"""


def run(code, *arguments, **variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RIGHTSIZER_")}
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(
        command, env=clean | variables, capture_output=True, text=True, timeout=60, check=False
    )


def records(folder):
    return ProgressReader(folder / "progress.jsonl").read()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_stops_at_the_next_step_boundary_saved(tmp_path, name):
    outcome = tmp_path / "outcome"
    done = run(LOOP, "2", name, RIGHTSIZER_RUN_DIRECTORY=str(tmp_path), RIGHTSIZER_OUTCOME_FILE=str(outcome))
    assert done.returncode == 0, done.stderr
    assert [record.event for record in records(tmp_path)] == ["start", "step", "step", "step", "checkpoint"]
    assert records(tmp_path)[-1].step == 6
    assert outcome.read_text() == "stopped\n"


def test_an_undisturbed_run_finishes(tmp_path):
    run(LOOP, "9", "SIGTERM", RIGHTSIZER_RUN_DIRECTORY=str(tmp_path))
    assert records(tmp_path)[-1].event == "finish"
    assert json.loads((tmp_path / "done.json").read_text())["tokens"] == 800.0


TWICE = """
from rightsizer_launch import agent as script
from rightsizer_launch.worker import agent
stack = object()
def by_script():
    script.start()
    script.step(tokens=1.0)
def by_stack():
    if agent.start(reporter=stack):
        agent.step(tokens=100.0)
for act in {order}:
    act()
print(script.should_stop(), script.should_checkpoint())
"""


@pytest.mark.parametrize(
    ("order", "tokens"),
    [("(by_stack, by_script)", 100.0), ("(by_script, by_stack)", 1.0)],
    ids=["the stack starts first", "the script starts first"],
)
def test_a_script_that_reports_in_an_observed_stack_is_counted_once(tmp_path, order, tokens):
    run(TWICE.format(order=order), RIGHTSIZER_RUN_DIRECTORY=str(tmp_path))
    assert [(r.event, r.tokens) for r in records(tmp_path)] == [("start", 0.0), ("step", tokens)]


def test_without_rightsizer_it_does_nothing(tmp_path):
    code = LOOP + "print(agent.active(), agent.layout().dp, agent.target_tokens(7), 'torch' in sys.modules)"
    done = run(code, "9", "SIGTERM", HOME=str(tmp_path))
    assert (done.stdout.split(), list(tmp_path.iterdir())) == (["False", "1", "7.0", "False"], [])


def test_the_interval_triggers_checkpoints(tmp_path):
    run(LOOP, "9", "SIGTERM", RIGHTSIZER_RUN_DIRECTORY=str(tmp_path), RIGHTSIZER_CHECKPOINT_INTERVAL_S="0")
    assert [record.event for record in records(tmp_path)].count("checkpoint") == 5


def test_the_first_checkpoint_may_come_before_the_interval_has_passed(tmp_path):
    early = {"RIGHTSIZER_FIRST_CHECKPOINT_S": "0", "RIGHTSIZER_CHECKPOINT_INTERVAL_S": "3600"}
    run(LOOP, "9", "SIGTERM", RIGHTSIZER_RUN_DIRECTORY=str(tmp_path), **early)
    assert [record.event for record in records(tmp_path)][:4] == ["start", "step", "checkpoint", "step"]
    assert sum(record.event == "checkpoint" for record in records(tmp_path)) == 1


def test_the_layout_follows_the_real_world_size():
    code = "import rightsizer_launch.agent as a; x = a.layout(); print(x.dp, x.tp, a.model()['hidden'])"
    shape = {"RIGHTSIZER_LAYOUT_TP": "2", "RIGHTSIZER_LAYOUT_DP": "4", "RIGHTSIZER_MODEL_HIDDEN": "64"}
    assert run(code, **shape, WORLD_SIZE="6").stdout.split() == ["3", "2", "64"]


def test_a_crash_is_reported_in_torchruns_own_form(tmp_path):
    code = "import rightsizer_launch.agent; raise ValueError('no data')"
    known = {"RIGHTSIZER_RUN_DIRECTORY": str(tmp_path), "TORCHELASTIC_RUN_ID": "x"}
    done = run(code, **known, TORCHELASTIC_ERROR_FILE=str(tmp_path / "error.json"))
    told = json.loads((tmp_path / "error.json").read_text())["message"]
    assert (done.returncode, told["message"]) == (1, "ValueError: no data")
    assert "Traceback" in told["extraInfo"]["py_callstack"]


def test_every_metric_is_served_as_prometheus_text():
    found = metrics.TrainMetrics()
    found.observe(tokens=5.0, step_s=0.5)
    found.set(loss=2.5)
    port = free_port()
    server = metrics.serve(found, port=port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    missing = [name for name in metrics.NAMES if f"\n{name}" not in text]
    assert (missing, "rightsizer_train_loss 2.5" in text) == ([], True)


WAITS = """
import re, time
import rightsizer_launch.worker.agent as agent
from prometheus_client import generate_latest
def phase():
    return re.findall(r'phase="(\\w+)"} 1.0', generate_latest(agent._state.metrics.registry).decode())
agent.start()
seen = phase()
with agent.waiting_for_data():
    time.sleep(0.02)
agent.step(tokens=1.0)
seen += phase()
agent.checkpointed("somewhere")
seen += phase()
with agent.evaluating():
    seen += phase()
text = generate_latest(agent._state.metrics.registry).decode()
waited = re.search(r"data_wait_seconds_total ([0-9.e-]+)", text)[1]
print(*seen, float(waited) >= 0.02)
"""


def test_the_metrics_have_the_phase_and_the_wait_for_data(tmp_path):
    known = {"RIGHTSIZER_RUN_DIRECTORY": str(tmp_path), "RIGHTSIZER_METRICS_PORT": str(free_port())}
    done = run(WAITS, **known, RIGHTSIZER_CHECKPOINT_INTERVAL_S="0")
    assert done.stdout.split() == ["startup", "checkpoint", "training", "evaluation", "True"], done.stderr
    step = next(r for r in ProgressReader(tmp_path / "progress.jsonl").read() if r.event == "step")
    assert step.data_wait_s >= 0.02
