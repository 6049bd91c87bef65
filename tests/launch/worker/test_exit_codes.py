"""The entrypoint's exit code for each end of torchrun, which is a function of the test here."""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from rightsizer_launch.worker.entrypoint import exit_code, main
from rightsizer_launch.worker.progress import ENV_OUTCOME, ENV_RENDEZVOUS_KEY_FILE

# found, not imported: collecting tests takes no torch
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@pytest.mark.parametrize(
    ("worker", "stopped", "code"),
    [(0, False, 0), (9, False, 9), (-15, False, 143), (0, True, 75), (1, True, 75)],
    ids=["complete", "failed", "killed", "stopped", "stopped late"],
)
def test_the_code_is_the_worker_s_unless_it_stopped_on_request(worker, stopped, code):
    assert exit_code(worker=worker, stopped=stopped) == code


@pytest.fixture
def ends(tmp_path, monkeypatch):
    """ends(error, **variables): the exit code when torchrun raises that error."""
    for name in (ENV_OUTCOME, "PET_LOG_DIR", "PET_RDZV_BACKEND"):
        monkeypatch.setenv(name, "")  # restored at the end: the entrypoint sets them
    monkeypatch.setenv("RIGHTSIZER_RUN_DIRECTORY", str(tmp_path))

    def end(error=None, *, stopped=False, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

        def torchrun(arguments):
            assert arguments == ["train.py"]
            if stopped:
                Path(os.environ[ENV_OUTCOME]).write_text("stopped\n")
            if error is not None:
                raise error

        return main(["train.py"], torchrun=torchrun)

    return end


def failed(code, tmp_path):
    """torchrun's error for a worker with this exit code."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure  # noqa: PLC0415

    failure = ProcessFailure(local_rank=0, pid=1, exitcode=code, error_file=str(tmp_path / "none"))
    return ChildFailedError("train.py", {0: failure})


def interrupted(_tmp_path):
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: PLC0415

    return SignalException("asked to stop", signal.SIGTERM)


def lost(_tmp_path):
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError  # noqa: PLC0415

    return RendezvousConnectionError("no store")


def closed(_tmp_path):
    from torch.distributed.elastic.rendezvous import RendezvousClosedError  # noqa: PLC0415

    return RendezvousClosedError("closed")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (lambda _: None, 0),
        (lambda path: failed(9, path), 9),
        (lambda path: failed(-9, path), 137),
        (interrupted, 143),
        (lost, os.EX_UNAVAILABLE),
        (closed, os.EX_UNAVAILABLE),
    ],
    ids=["complete", "worker failed", "worker killed", "SIGTERM", "store lost", "closed"],
)
def test_each_end_of_torchrun_has_its_code(ends, tmp_path, error, code):
    assert ends(error(tmp_path)) == code


def test_a_worker_that_saved_and_stopped_on_request_is_not_a_failure(ends, tmp_path):
    assert ends(failed(1, tmp_path), stopped=True) == 75


def test_without_the_attempt_s_key_torchrun_is_not_started(ends, tmp_path, capsys):
    code = ends(AssertionError("started"), **{ENV_RENDEZVOUS_KEY_FILE: str(tmp_path / "none")})
    assert code == os.EX_USAGE
    assert "cannot read the rendezvous key" in capsys.readouterr().err
