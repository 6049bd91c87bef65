import json

import pytest

from rightsizer_launch.worker.restart_monitor import RestartMonitor, last_error, write_termination_message


@pytest.fixture
def pod(tmp_path, monkeypatch):
    """A pod's folders with a budget of two failures an hour; what happens when they are used up."""
    monkeypatch.setenv("RIGHTSIZER_RESTART_LIMIT", "2")
    monkeypatch.setenv("RIGHTSIZER_RESTART_WITHIN_S", "3600")
    monkeypatch.setenv("RIGHTSIZER_RUN_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("RIGHTSIZER_START_TIMEOUT_S", "1000")
    told = []
    watch = RestartMonitor(tmp_path / "logs", give_up=lambda: told.append(True), began_s=0)

    def restarts(count, now_s, *, step=0):
        (tmp_path / "logs" / "run_x" / f"attempt_{count}").mkdir(parents=True)
        if step:
            with (tmp_path / "progress.jsonl").open("a") as file:
                file.write(json.dumps({"event": "step", "time": 0, "step": step}) + "\n")
        watch.poll(now_s)
        return watch.reason, len(told)

    return restarts


def test_failures_beyond_the_budget_give_up_once(pod):
    assert [pod(n, 10.0 * n)[1] for n in (0, 1, 2, 3, 4)] == [0, 0, 0, 1, 1]


def test_a_stop_for_another_pod_s_sake_is_no_failure(pod, tmp_path):
    for count in range(6):
        (tmp_path / "come-backs").write_bytes(b"." * count)
        assert pod(count, 10.0 * count) == ("", 0)


def test_old_failures_are_forgotten(pod):
    assert [pod(n, 2000.0 * n)[1] for n in range(6)] == [0] * 6


def test_failures_without_a_new_step_give_up_sooner(pod, monkeypatch):
    reasons = [pod(n, 4000.0 * n, step=5)[0] for n in range(4)]
    assert reasons[:3] == ["", "", ""]
    assert "without a new step" in reasons[3]


def test_restarts_between_two_polls_are_counted_up_to_the_limit(pod):
    assert pod(7, 10.0) == ("3 failures within 3600 s; the plan allows 2", 1)


def test_the_newest_error_that_can_be_read_is_the_last_word(tmp_path):
    for attempt, text in enumerate(['{"message": {"message": "OSError: disk"}}', "torn {"]):
        folder = tmp_path / "run" / f"attempt_{attempt}" / "0"
        folder.mkdir(parents=True)
        (folder / "error.json").write_text(text)
    assert last_error(tmp_path) == "OSError: disk"
    assert last_error(tmp_path / "nothing") == ""


def test_a_word_is_left_only_where_kubernetes_looks_for_it(tmp_path):
    log = tmp_path / "termination-log"
    write_termination_message("gone", path=log)
    assert not log.exists()
    log.touch()
    write_termination_message("x" * 9000 + "end", path=log)
    assert log.read_text().endswith("end\n")
    assert len(log.read_text()) <= 4096
