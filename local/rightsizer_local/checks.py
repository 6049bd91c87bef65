"""Checks of this machine: torch and its backends, GPUs, disk, shared memory, open files."""

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.units import format_bytes
from rightsizer_engine.values import immutable
from rightsizer_launch.findings import Finding, missing, note, ok
from rightsizer_local.machine import nvml_names

_TORCH_TIMEOUT_S = 120.0
_FEWEST_DISK_BYTES = 20 * 2**30
"""A checkpoint of a 1B model with optimizer state is 12 GB. A guess at the least that is useful."""
_FEWEST_SHARED_BYTES = 2**30
"""NCCL and data loaders keep their buffers in /dev/shm; a container's default is 64 MiB."""
_FEWEST_FILES = 4096
_SHARED = Path("/dev") / "shm"
_ASK_TORCH = """
import json, torch, torch.distributed as d
cuda = torch.cuda.is_available()
nccl = ".".join(map(str, torch.cuda.nccl.version())) if cuda and d.is_nccl_available() else ""
print(json.dumps({
    "version": torch.__version__, "build": torch.version.cuda or torch.version.hip or "", "gpus":
    torch.cuda.device_count() if cuda else 0, "nccl": nccl, "gloo": d.is_gloo_available()}))
"""


@immutable
class Torch:
    """The torch of this Python; `build` is its CUDA or ROCm, empty for a CPU build."""

    version: str
    build: str
    gpus: int
    nccl: str
    gloo: bool


@immutable
class Facts:
    """The input of the checks. `torch` is None with the reason in `torch_error`."""

    torch: Torch | None
    torch_error: str
    gpus: Sequence[str]
    disk_bytes: int
    shared_bytes: int | None
    open_files: int


def look(folder: Path) -> Facts:
    """This machine, with the disk of `folder`."""
    torch, reason = _torch()
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Facts(
        torch=torch,
        torch_error=reason,
        gpus=nvml_names(),
        disk_bytes=shutil.disk_usage(folder).free,
        shared_bytes=shutil.disk_usage(_SHARED).total if _SHARED.is_dir() else None,
        open_files=2**31 if limit == resource.RLIM_INFINITY else limit,
    )


def _torch() -> tuple[Torch | None, str]:
    """Asked in a process of its own: the import takes seconds, and a broken driver may crash it."""
    command = [sys.executable, "-c", _ASK_TORCH]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TORCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None, f"its import takes longer than {_TORCH_TIMEOUT_S:.0f} s"
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Torch(**json.loads(done.stdout.splitlines()[-1])), ""


def findings(facts: Facts) -> Iterator[Finding]:
    """Every check of this machine."""
    yield _gpus(facts.gpus, seen_by_torch=facts.torch.gpus if facts.torch else 0)
    yield from _stack(facts)
    yield _room("disk here", facts.disk_bytes, _FEWEST_DISK_BYTES, "checkpoints go to launch.checkpoint.path")
    if facts.shared_bytes is not None:
        remedy = "start the container with a larger /dev/shm (--shm-size)"
        yield _room(str(_SHARED), facts.shared_bytes, _FEWEST_SHARED_BYTES, remedy)
    if facts.open_files < _FEWEST_FILES:
        yield note("open files", f"at most {facts.open_files}", f"raise the limit: ulimit -n {_FEWEST_FILES}")


def _gpus(names: Sequence[str], *, seen_by_torch: int) -> Finding:
    kinds = sorted(set(names))
    if not kinds and seen_by_torch:
        return missing("GPUs", f"torch sees {seen_by_torch}, NVML none", "pip install 'rightsizer[gpu]'")
    if not kinds:
        remedy = "with GPUs, install the driver and pip install 'rightsizer[gpu]'"
        return note("GPUs", "none seen; rightsizer run trains on the CPU", remedy)
    if len(kinds) > 1:
        return missing("GPUs", f"several types: {', '.join(kinds)}", "set CUDA_VISIBLE_DEVICES to one type")
    try:
        known = lookup.gpu(kinds[0])
    except RightsizerError as error:
        return missing("GPUs", f"{len(names)} x {kinds[0]}", f"not in the catalog: {error}")
    return ok("GPUs", f"{len(names)} x {known.name}")


def _stack(facts: Facts) -> Iterator[Finding]:
    torch = facts.torch
    if torch is None:
        yield missing("torch", facts.torch_error, "rightsizer run needs it: pip install torch")
        return
    yield ok("torch", f"{torch.version}" + (f", built for {torch.build}" if torch.build else ", a CPU build"))
    if facts.gpus and not torch.gpus:
        remedy = "install a torch build for this driver, or unset CUDA_VISIBLE_DEVICES"
        yield missing("torch", f"sees none of {len(facts.gpus)} GPUs", remedy)
    elif facts.gpus and not torch.nccl:
        yield missing("NCCL", "this torch has none", "install torch's own wheel for CUDA")
    elif facts.gpus:
        yield ok("NCCL", torch.nccl)
    elif not torch.gloo:
        yield missing("gloo", "this torch has none, and workers on CPUs need it", "install torch's own wheel")


def _room(subject: str, size: int, least: int, remedy: str) -> Finding:
    if size >= least:
        return ok(subject, format_bytes(size))
    return note(subject, f"{format_bytes(size)}, less than {format_bytes(least)}", remedy)
