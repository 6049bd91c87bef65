"""An outsider who reaches the rendezvous store's port attacks real agents, with and without a key."""

import base64
import contextlib
import os
import pickle
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rightsizer_launch.argv.torchrun import Torchrun, environment
from rightsizer_launch.worker.progress import ENV_RENDEZVOUS_KEY_FILE
from rightsizer_launch.worker.rendezvous import free_port

pytestmark = pytest.mark.torchrun


class Payload:
    """An attacker's value in the store: unpickled, it runs a command."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self):
        return os.system, (f"id > {self.proof}",)


@pytest.fixture
def store():
    """A running rendezvous store; its port."""
    pytest.importorskip("torch")
    port = free_port()
    argv = [sys.executable, "-m", "rightsizer_launch.worker.rendezvous", f"--port={port}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        with contextlib.closing(process.stdout) as output:
            assert "rendezvous store" in output.readline()
            yield port
        process.terminate()


@pytest.fixture
def agents(tmp_path, store):
    """agents(number, key): that many agents of a job for two, started."""
    run = Torchrun(name="run", attempt=1, endpoint=f"127.0.0.1:{store}", min_nodes=2, max_nodes=2,
                   last_call_s=1, max_restarts=0, local_address="127.0.0.1")  # fmt: skip
    script = tmp_path / "train.py"
    script.write_text("import torch.distributed as d\nd.init_process_group('gloo')\nd.barrier()\n")
    started = []

    def start(number: int, key: Path | None):
        signed = {ENV_RENDEZVOUS_KEY_FILE: str(key)} if key else {}
        argv = [sys.executable, "-m", "rightsizer_launch.worker.entrypoint", script]
        for _ in range(number):
            variables = os.environ | environment(run) | signed | {"GLOO_SOCKET_IFNAME": "lo"}
            started.append(subprocess.Popen(argv, env=variables, stderr=subprocess.PIPE, text=True))
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "rendezvous.key"
    path.write_bytes(secrets.token_bytes(32))
    return path


def overwrite(port: int, value: bytes, *, within_s: float = 30.0) -> int:
    """Write the value over each rendezvous state that the store lists; how many there were."""
    from torch.distributed import TCPStore  # noqa: PLC0415 -- seconds of import

    store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        states = [name for name in store.list_keys() if "torch.rendezvous." in name]
        for name in states:
            store.set(name.removeprefix("/"), base64.b64encode(value).decode())
        if states:
            return len(states)
        time.sleep(0.1)
    return 0


def appears(path: Path, *, within_s: float) -> bool:
    until = time.monotonic() + within_s
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.1)
    return path.exists()


def test_without_a_key_an_outsider_runs_code_in_the_workers(tmp_path, store, agents):
    """The attack is real: it works on torch's own rendezvous. Otherwise the next test would prove nothing."""
    agents(1, None)
    assert overwrite(store, pickle.dumps(Payload(tmp_path / "proof")))
    assert appears(tmp_path / "proof", within_s=20)


def test_with_a_key_a_forged_state_is_dropped_before_it_is_unpickled_and_the_job_trains(
    tmp_path, store, agents, key
):
    agents(1, key)
    assert overwrite(store, pickle.dumps(Payload(tmp_path / "proof")))
    both = agents(1, key)
    assert [agent.wait(timeout=90) for agent in both] == [0, 0]
    assert any("is not signed with this attempt's key" in agent.stderr.read() for agent in both)
    assert not (tmp_path / "proof").exists()


def test_a_worker_with_another_key_does_not_join(tmp_path, agents, key):
    other = tmp_path / "other.key"
    other.write_bytes(secrets.token_bytes(32))
    agents(1, key)
    with pytest.raises(subprocess.TimeoutExpired):
        agents(1, other)[1].wait(timeout=20)


def test_a_key_that_cannot_be_read_ends_the_worker_with_its_reason(tmp_path, agents):
    (agent,) = agents(1, tmp_path / "none")
    assert "cannot read the rendezvous key" in agent.communicate(timeout=60)[1]
    assert agent.returncode == os.EX_USAGE
