"""Give the machine's loopback a door to the API server: relay.py NAMESPACE ADDRESS PORT_FILE [PORT].

A socket keeps the network namespace that it was made in. So listen here, on a port that the kernel chooses,
then enter the namespace, where outgoing connections are made. kubectl and tests then need no namespace.
"""

import asyncio
import ctypes
import os
import socket
import sys
from pathlib import Path

API_PORT = 6443
CLONE_NEWNET = 0x40000000


def _enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(handle, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
    os.close(handle)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


async def _serve(listener: socket.socket, address: str, port: int) -> None:
    async def relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            up_source, up_sink = await asyncio.open_connection(address, port)
        except OSError:  # the API server is down: the client sees a closed connection
            sink.close()
            return
        await asyncio.gather(_pump(source, up_sink), _pump(up_source, sink))

    async with await asyncio.start_server(relay, sock=listener) as server:
        await server.serve_forever()


def main(namespace: str, address: str, port_file: str, port: str = str(API_PORT)) -> None:
    """Listen, say where, enter, serve."""
    listener = socket.create_server(("127.0.0.1", int(_last_port(port_file))), backlog=512)
    written = Path(f"{port_file}.new")
    written.write_text(str(listener.getsockname()[1]))
    written.rename(port_file)
    _enter(namespace)
    asyncio.run(_serve(listener, address, int(port)))


def _last_port(port_file: str) -> str:
    """A relay that is started again listens where kubeconfigs already point; 0 lets the kernel choose."""
    path = Path(port_file)
    return path.read_text() if path.exists() else "0"


if __name__ == "__main__":
    main(*sys.argv[1:])
