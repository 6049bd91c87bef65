"""torchrun's honest exit codes, by real agents of a real store."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rightsizer_launch.argv.torchrun import Torchrun, environment
from rightsizer_launch.worker import rendezvous

pytestmark = pytest.mark.torchrun


@pytest.fixture
def agent(tmp_path: Path):
    """agent(code): the exit code of an agent of the one run whose workers end with `code`, and its words."""
    pytest.importorskip("torch")
    port = rendezvous.free_port()
    run = Torchrun(
        name="late",
        attempt=1,
        endpoint=f"127.0.0.1:{port}",
        min_nodes=1,
        max_nodes=2,
        last_call_s=1,
        max_restarts=0,
        local_address="127.0.0.1",
    )
    script = tmp_path / "train.py"
    script.write_text("import sys\nsys.exit(int(sys.argv[1]))\n")
    argv = [sys.executable, "-m", "rightsizer_launch.worker.rendezvous", f"--port={port}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as store, contextlib.closing(store.stdout):
        assert "rendezvous store" in store.stdout.readline()

        def train(code: int) -> tuple[int, str]:
            argv = [sys.executable, "-m", "rightsizer_launch.worker.entrypoint", script, str(code)]
            done = subprocess.run(
                argv, check=False, capture_output=True, text=True, env=os.environ | environment(run)
            )
            return done.returncode, done.stderr

        yield train
        store.terminate()


def test_a_worker_that_comes_when_all_is_trained_has_succeeded_too(agent):
    assert agent(0)[0] == 0
    code, words = agent(1)  # it never gets to fail
    assert code == 0
    assert "the training is already complete" in words


def test_a_worker_that_comes_when_others_have_failed_for_good_has_not(agent):
    assert agent(9)[0] == 9
    code, words = agent(0)
    assert code == os.EX_UNAVAILABLE
    assert "lost the rendezvous" in words


CRASH = (
    "import os, signal, sys\nos.kill(os.getpid(), signal.SIGSEGV) if sys.argv[1] == '139' else sys.exit(64)\n"
)


@pytest.mark.parametrize(
    ("code", "exits", "words"),
    [
        (64, 64, "the script asked for no retry; worker exited with code 64"),
        (139, 78, "3 consecutive failures without a new step; worker killed by signal 11 (SIGSEGV)"),
    ],
    ids=["no retry", "a segfault"],
)
def test_a_pod_whose_worker_fails_ends_with_the_reason(tmp_path, code, exits, words):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(CRASH)
    pod = {"RIGHTSIZER_RESTART_LIMIT": "9", "RIGHTSIZER_RUN_DIRECTORY": str(tmp_path)}
    pod |= {"PET_MAX_RESTARTS": "99", "PET_NNODES": "1", "PET_NPROC_PER_NODE": "1", "PET_STANDALONE": "1"}
    argv = [sys.executable, "-m", "rightsizer_launch.worker.entrypoint", script, str(code)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=os.environ | pod)
    assert done.returncode == exits, done.stderr
    assert done.stderr.splitlines()[-1] == f"rightsizer: {words}"


def test_the_stop_signal_is_taken_for_sigterm(tmp_path):
    code = (
        "import os, signal, time\n"
        "from rightsizer_launch.worker.entrypoint import main\n"
        "from rightsizer_launch.worker.progress import STOP_SIGNAL\n"
        "main([], torchrun=lambda _: (os.kill(os.getpid(), STOP_SIGNAL), time.sleep(60)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, cwd=tmp_path)
    assert done.returncode in {-signal.SIGTERM, 128 + signal.SIGTERM}
