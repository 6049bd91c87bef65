"""The rendezvous store's process, and what its clients do without one."""

import os
import subprocess
import sys

import pytest

from rightsizer_launch.worker import rendezvous

LONG_S = 90.0  # on a busy machine; nothing here waits for it


@pytest.mark.parametrize(
    "endpoint",
    ["", "nowhere", "host:port", "127.0.0.1:{port}"],
    ids=["none", "no port", "no number", "refused"],
)
def test_without_a_store_nothing_is_recorded_and_nothing_was_complete(endpoint):
    variables = {"PET_RDZV_ENDPOINT": endpoint.format(port=rendezvous.free_port()), "PET_RDZV_ID": "run"}
    rendezvous.mark_complete(variables)
    assert not rendezvous.was_complete(variables)


@pytest.mark.slow
def test_a_store_serves_until_the_process_that_it_belongs_to_ends():
    pytest.importorskip("torch")
    port = rendezvous.free_port()
    argv = [sys.executable, "-m", "rightsizer_launch.worker.rendezvous", f"--port={port}"]
    with subprocess.Popen(["sleep", "1000"]) as owner:
        variables = os.environ | {"RIGHTSIZER_DIE_WITH_PARENT": "1"}
        with subprocess.Popen(
            [*argv, f"--until={owner.pid}"], stdout=subprocess.PIPE, env=variables
        ) as store:
            assert store.stdout.readline() == f"rendezvous store on 127.0.0.1:{port}\n".encode()
            assert rendezvous.reachable("127.0.0.1", port)
            owner.kill()
            owner.wait()
            assert store.wait(LONG_S) == 0
    assert not rendezvous.reachable("127.0.0.1", port)
