"""The exits of torchrun's workers, which torchrun does not report while it restarts them."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OOM_COUNTERS = ("memory.events", "memory/memory.oom_control")
"""Files that count the kernel's OOM kills in a cgroup: version 2, version 1."""


def report(failed: Callable[[int], None]) -> None:
    """Let torchrun's agent call `failed` with its first failed worker's exit code, before it restarts."""
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.launcher import api

    class ReportingAgent(LocalElasticAgent):
        def _monitor_workers(self, worker_group: Any) -> Any:
            result = super()._monitor_workers(worker_group)
            if result.failures:
                failed(min(result.failures.values(), key=lambda failure: failure.timestamp).exitcode)
            return result

    api.LocalElasticAgent = ReportingAgent  # type: ignore[attr-defined]  # launch_agent has no parameter for it


def describe_exit(code: int, *, out_of_memory: bool = False) -> str:
    """A worker's end in words; a negative code is a signal."""
    if code >= 0:
        return f"worker exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    why = ", OOMKilled: the container reached its memory limit" if out_of_memory else ""
    return f"worker killed by signal {-code} ({name}{why})"


def oom_kills(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """OOM kills in this container's cgroup so far; 0 if the kernel does not count them.

    With cgroup version 1 the kernel kills one process, so the container lives on and Kubernetes reports
    nothing. With version 2 the kubelet lets it kill the whole container, and reports OOMKilled itself.
    """
    for counter in _OOM_COUNTERS:
        path = cgroup / counter
        found = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE) if path.exists() else None
        if found:
            return int(found[1])
    return 0
