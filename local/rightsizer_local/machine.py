"""This machine as a cluster for the engine: its GPUs from NVML, else its CPU cores, measured once.

A CPU "device" is a worker's share of the cores. Its rates are measured (`cpu_probe`), then scaled so that the
engine's prediction for the probe's reference model equals the measured step time: the engine has efficiency
curves for GPUs only.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import field
from importlib import metadata
from pathlib import Path

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.hardware import Cluster, Gpu
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Precision, Workload
from rightsizer_engine.errors import InputError, UnknownNameError
from rightsizer_engine.estimate import prediction
from rightsizer_engine.values import immutable
from rightsizer_launch.worker.progress import write_json
from rightsizer_local.cpu_probe import REFERENCE, REFERENCE_BATCH, REFERENCE_SEQUENCE

_MOST_CPU_WORKERS = 8  # more gloo workers cost more communication than they gain
_PROBE_VERSION = 2
_WATTS_PER_THREAD = 8.0  # a guess; server parts spend 3 to 10 W a core


@immutable
class Machine:
    """The available one-node clusters, and how a worker uses its device.

    CPU workers slow each other down, so there is one cluster for each number of workers.
    """

    clusters: tuple[Cluster, ...]
    cuda: bool
    threads_per_worker: int
    description: str
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """The largest number of workers, one per device."""
        return max(cluster.max_gpus for cluster in self.clusters)


def detect(*, cache: Path | None = None, again: bool = False) -> Machine:
    """The machine; `cache` is the folder of measurements (default: the user's), `again` repeats them."""
    names = nvml_names()
    if names:
        return _gpus(names)
    cores = usable_cores()
    threads = max(1, cores // _MOST_CPU_WORKERS)
    workers = cores // threads
    measured = _measured(workers, threads, cache or _cache_folder(), again=again)
    clusters = tuple(
        cpu_cluster(measured, workers=count, most=workers, memory_bytes=_available_bytes() / workers)
        for count in range(1, workers + 1)
    )
    rate = measured["matmul_flop_per_s"] / 1e9
    description = (
        f"{_cpu_name()}: {workers} x {threads} core(s), no GPU; {rate:.0f} GFLOP/s measured per worker"
    )
    return Machine(
        clusters=clusters, cuda=False, threads_per_worker=threads, description=description, measured=measured
    )


def cpu_cluster(measured: Mapping[str, float], *, workers: int, most: int, memory_bytes: float) -> Cluster:
    """`workers` of `most` CPU devices, scaled to the measured reference step.

    The slow-down is interpolated as a power of the number of workers.
    """
    slow_down = measured["together_step_s"] / measured["alone_step_s"]
    wanted_s = measured["alone_step_s"] * slow_down ** (math.log(workers) / math.log(most) if most > 1 else 0)
    low, high = 1e-3, 1e3
    for _ in range(20):  # bisection in the logarithm, to 1e-5: the prediction falls as the scale grows
        scale = (low * high) ** 0.5
        cluster = _scaled(measured, scale, workers=workers, memory_bytes=memory_bytes)
        slower = reference_s(cluster) > wanted_s
        low, high = (scale, high) if slower else (low, scale)
    return cluster


def _scaled(measured: Mapping[str, float], scale: float, *, workers: int, memory_bytes: float) -> Cluster:
    flop_per_s = measured["matmul_flop_per_s"] * scale
    link = measured["all_reduce_bytes_per_s"] or measured["copy_bytes_per_s"]
    gpu = Gpu(
        name="CPU",
        architecture="cpu",
        compute_capability=0.0,
        memory_bytes=memory_bytes,
        memory_bytes_per_s=measured["copy_bytes_per_s"] * scale,
        bf16_flop_per_s=flop_per_s,
        fp16_flop_per_s=flop_per_s,
        fp8_flop_per_s=0.0,
        fp4_flop_per_s=0.0,
        tf32_flop_per_s=flop_per_s,
        fp32_flop_per_s=flop_per_s,
        nvlink_bytes_per_s=0.0,
        pcie_bytes_per_s=link,
        tdp_w=_WATTS_PER_THREAD * max(1, usable_cores() // workers),
        streaming_multiprocessors=1,
        gpus_per_node=workers,
        source="measured on this machine",
    )
    return Cluster(
        gpu=gpu,
        gpus_per_node=workers,
        nvlink_domain_gpus=1,
        intra_bytes_per_s=link,
        inter_bytes_per_s=link,
        inter_link="loopback",
        inter_known=True,
        max_gpus=workers,
    )


def reference_s(cluster: Cluster) -> float:
    """The engine's step time for the probe's reference model on one device."""
    workload = Workload(
        tokens=1e6,
        sequence_tokens=REFERENCE_SEQUENCE,
        global_batch_sequences=REFERENCE_BATCH,
        precision=Precision.FP32,
    )
    case = Case(
        architecture=Architecture(name="reference", **REFERENCE),
        workload=workload,
        cluster=cluster,
        framework=framework("ddp"),
        layout=Layout(micro_batch=REFERENCE_BATCH),
    )
    return float(prediction.predict(Cases.of(case)).step_time.total_s)


def _gpus(names: list[str]) -> Machine:
    """The GPUs of this machine, which must be of one type."""
    kinds = sorted(set(names))
    if len(kinds) > 1:
        raise InputError(
            "machine", value=kinds, remedy="has several GPU types; set CUDA_VISIBLE_DEVICES to one"
        )
    try:
        cluster = lookup.cluster(kinds[0], gpus_per_node=len(names))
    except UnknownNameError as error:
        known = ", ".join(error.candidates)
        raise InputError(
            "machine", value=kinds[0], remedy=f"is not in the GPU catalog; nearest: {known}"
        ) from None
    cluster = dataclasses.replace(cluster, max_gpus=len(names))
    threads = max(1, usable_cores() // len(names))
    return Machine(
        clusters=(cluster,),
        cuda=True,
        threads_per_worker=threads,
        description=f"{len(names)} x {cluster.gpu.name}",
    )


def nvml_names() -> list[str]:
    """Names of the GPUs that this process may use; empty without NVML, driver or GPU."""
    try:
        import pynvml  # an optional extra
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        names = [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return names
    return [names[int(i)] for i in visible.split(",") if i.strip().isdigit() and int(i) < len(names)]


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _measured(workers: int, threads: int, cache: Path, *, again: bool) -> dict[str, float]:
    """The probe's result, cached from an earlier run if possible."""
    key = "|".join([_cpu_name(), str(workers), str(threads), _torch_version(), str(_PROBE_VERSION)])
    path = cache / f"machine-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    if not again:
        with contextlib.suppress(OSError, ValueError, KeyError):
            known = json.loads(path.read_text())
            return {name: float(value) for name, value in known["measured"].items()}
    measured = _probe(workers, threads)
    with contextlib.suppress(OSError):  # with a read-only home every run measures again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"machine": key, "measured": measured})
    return measured


def _probe(workers: int, threads: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as folder:
        argv = [
            sys.executable,
            "-m",
            "rightsizer_local.cpu_probe",
            f"--world={workers}",
            f"--threads={threads}",
        ]
        argv += [f"--meet={folder}/meet"]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
        probes = [
            subprocess.Popen(
                [*argv, f"--rank={rank}"],
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(workers)
        ]
        outputs = [probe.communicate() for probe in probes]
    failed = [errors for probe, (_, errors) in zip(probes, outputs, strict=True) if probe.returncode]
    if failed:
        last = failed[0].strip().splitlines()[-1] if failed[0].strip() else "no message"
        raise InputError("machine", value=last, remedy="could not be measured; is torch installed here?")
    measured: dict[str, float] = json.loads(outputs[0][0].splitlines()[-1])
    return measured


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise InputError(
            "torch", value="missing", remedy="install it to run here: pip install 'rightsizer[examples]'"
        ) from None


def _cpu_name() -> str:
    return cpu("model name") or platform.processor() or platform.machine()


def cpu(field: str) -> str:
    """A field of the first processor in /proc/cpuinfo, such as "model name"; empty if unknown."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    return ""


def _available_bytes() -> float:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return float(line.split()[1]) * 1024
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rightsizer"
