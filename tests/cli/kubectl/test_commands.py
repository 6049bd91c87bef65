import json
import subprocess
import sys

import pytest
from tests.operator.kubectl.conftest import says

from rightsizer_cli.kubectl.main import execute
from rightsizer_cli.kubectl.wait import Wait, resized, resumed, suspended


def changed(plan, **change):
    return {**plan, "metadata": {**plan["metadata"], **change.pop("metadata", {})}, **change}


def waited(done, *plans, timeout_s=60.0):
    """The exit code and the reported lines for a sequence of observed plans."""
    observed, lines, now = iter(plans), [], [0.0]
    last = [plans[0]]

    def read_plan():
        last[0] = next(observed, last[0])
        return last[0]

    def sleep(seconds):
        now[0] += seconds

    wait = Wait(
        read_plan=read_plan,
        report=lines.append,
        timeout_s=timeout_s,
        sleep=sleep,
        clock=lambda: now[0],
    )
    return wait.until(done), lines


def test_a_resize_is_done_when_every_worker_of_the_new_size_is_there(plan):
    unobserved = changed(plan, metadata={"generation": 3})
    changing = changed(plan, status={**plan["status"], "conditions": []})
    says(changing, Ready=("False", "Resizing", "1 of 2 workers"))
    lines = ["waiting for the operator", "Resizing: 1 of 2 workers", "Running"]
    assert waited(resized(2), unobserved, changing, plan) == (0, lines)


def test_an_impossible_size_exits_with_3_and_its_reason(plan):
    says(plan, Ready="Running", Sized=("False", "InsufficientGPUs", "needs 16"))
    assert waited(resized(16), plan) == (3, ["InsufficientGPUs: needs 16"])


def test_a_wait_that_takes_too_long_exits_with_4(plan):
    code, lines = waited(resized(4), plan, timeout_s=3)
    assert (code, lines[-1]) == (4, "timed out; the operator continues the change")


@pytest.mark.parametrize(
    ("done", "state", "code"),
    [
        (suspended, "Suspended", 0),
        (suspended, "Failed", 1),
        (resumed, "Running", 0),
        (resumed, "Queued", 0),
        (resized(2), "Complete", 1),
    ],
)
def test_waits_end_with_the_state_they_wait_for(plan, done, state, code):
    assert waited(done, says(plan, Ready=("False", state, "")))[0] == code


def test_help_is_quick_and_imports_nothing_heavy():
    script = (
        "import json, sys; from rightsizer_cli.kubectl.main import execute\n"
        "code = execute(['why', '--help'])\n"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    code, modules = json.loads(done.stderr)
    assert code == 0
    assert not {"numpy", "pydantic", "kubernetes", "kopf", "rich", "yaml"} & set(modules)


def test_a_request_without_a_change_is_one_line_of_error(capsys):
    assert execute(["resize", "demo"]) == 2
    assert capsys.readouterr().err.startswith("error: --gpus: give --gpus, or the limits")
