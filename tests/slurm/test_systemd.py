import socket
from pathlib import Path

import pytest

from rightsizer_slurm import systemd


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_systemd_hears_that_the_daemon_is_alive(tmp_path: Path, abstract: bool) -> None:
    address = f"@{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address.replace("@", "\0") if abstract else address)
        receiver.settimeout(5)
        systemd.notify("WATCHDOG=1", address=address)
        assert receiver.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "/nowhere/socket"])
def test_without_systemd_nothing_is_sent(address: str) -> None:
    systemd.notify("READY=1", address=address)
