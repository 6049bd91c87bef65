"""Starts operators by fork, so that each start costs milliseconds instead of imports.

Reads one JSON line for each: {"kubeconfig": ..., "log": ..., "port": ..., "lease": ..., "namespaces": [...],
"settings": {...}};
answers with its pid. All of them end with this process.
"""

import json
import os
import signal
import sys

from rightsizer_launch.worker.process_end import die_with_parent
from rightsizer_operator.runtime.main import OperatorOptions, run
from rightsizer_operator.values.settings import OperatorSettings


def _become(order: dict) -> None:
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a child may get what is number 0
    os.environ["KUBECONFIG"] = order["kubeconfig"]
    options = OperatorOptions(
        namespaces=tuple(order["namespaces"]),
        port=order["port"],
        lease_namespace=order["lease"],
        settings=OperatorSettings(**order["settings"]),
    )
    os._exit(run(options))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
