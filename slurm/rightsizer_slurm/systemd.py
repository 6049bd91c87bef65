"""systemd's notifications, sd_notify(3): the daemon is ready; the daemon is alive."""

import contextlib
import os
import socket


def notify(state: str, *, address: str | None = None) -> None:
    """Send "READY=1" or "WATCHDOG=1" to systemd; nothing without it."""
    address = os.environ.get("NOTIFY_SOCKET", "") if address is None else address
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode("ascii"), address.replace("@", "\0", 1) if address[0] == "@" else address)
