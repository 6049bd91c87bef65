"""A sample day of an invented fleet, as its exporters would have reported it: for pictures and their test.

Kubernetes cluster `east`: 40 H100, a plan that is late and grows, one that stays late, a server, two idle
notebooks, a pod that no exporter reports. Slurm cluster `hpc`: 12 A100, a plan, and a job that uses a quarter
of its GPUs. Names and labels of the series are the real exporters'; the numbers are made up.
"""

import functools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

MINUTES = 1500
"""A day, and an hour before it."""
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
EAST = {"cluster": "east"}
Shape = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """GPUs of one host (the first index, a count) that a pod holds from one minute to another."""

    namespace: str
    pod: str
    host: int
    first: int
    gpus: int
    busy: Shape
    tensor: float = 0.45
    memory: float = 0.8
    begins: int = 0
    ends: int = MINUTES + 1


def wave(mean: float, swing: float, key: str) -> Shape:
    """A mean with two slow waves and a quick one; the key shifts them."""
    shift = zlib.crc32(key.encode()) % 1000

    def at(minute: float) -> float:
        slow = math.sin((minute + shift) / 131) + 0.5 * math.sin((minute + 3 * shift) / 37)
        return mean + swing * (slow + 0.4 * math.sin((minute + shift) * 1.7)) / 1.9

    return at


def until(minute: int, before: Shape, after: Shape) -> Shape:
    return lambda now: before(now) if now < minute else after(now)


def steady(value: float) -> Shape:
    return lambda _: value


GROWN = 1000
"""The minute at which the late plan gets 16 GPUs for 8; six minutes pass until it trains."""
RESUMED = GROWN + 6
_CHAT = wave(0.0, 0.04, "chat")
_FULL, _STARVED = wave(0.94, 0.02, "llama"), wave(0.52, 0.08, "vit")
TENANCIES = (
    Tenancy(namespace="nlp", pod="llama-8b-a1-0-x7k2p", host=1, first=0, gpus=8, busy=_FULL, ends=GROWN),
    Tenancy(namespace="nlp", pod="llama-8b-a2-0-q9d4m", host=1, first=0, gpus=8, busy=_FULL, begins=RESUMED),
    Tenancy(namespace="nlp", pod="llama-8b-a2-1-h2v8c", host=2, first=0, gpus=8, busy=_FULL, begins=RESUMED),
    Tenancy(namespace="nlp", pod="tokenize-k7d2x", host=2, first=0, gpus=4, busy=wave(0.35, 0.1, "t"),
            tensor=0.02, memory=0.3, begins=760, ends=980),
    Tenancy(namespace="vision", pod="vit-l-a1-0-m4n5b", host=3, first=0, gpus=8, busy=_STARVED, tensor=0.2),
    Tenancy(namespace="vision", pod="notebook-mia-0", host=4, first=0, gpus=2, tensor=0.1, memory=0.05,
            busy=until(830, wave(0.6, 0.2, "mia"), steady(0.0)), begins=700),
    Tenancy(namespace="vision", pod="notebook-leo-0", host=4, first=2, gpus=1, busy=steady(0.0), memory=0.02),
    Tenancy(namespace="serving", pod="chat-6d5f7c9b8f-c2x4z", host=4, first=4, gpus=4, tensor=0.15,
            memory=0.9, busy=lambda m: 0.3 + 0.2 * math.sin(2 * math.pi * m / MINUTES) + _CHAT(m)),
)  # fmt: skip
HOSTS = 5
SLURM_JOBS = (
    ("48211", "ada", "physics", 4, lambda gpu: wave(0.83, 0.04, f"ada{gpu}")),
    ("48230", "grace", "chemistry", 8, lambda gpu: wave(0.7, 0.1, f"g{gpu}") if gpu < 2 else steady(0.0)),
)

Sample = tuple[str, Mapping[str, str], float]


def samples(minute: int) -> Iterator[Sample]:
    """A scrape of all exporters at this minute of the day; times are seconds since its start."""
    yield from _dcgm(minute)
    yield from _jobstats(minute)
    yield from _kube_state_metrics(minute)
    yield from _trainings(minute)
    yield from _operator(minute)
    yield from _slurm(minute)


def _dcgm(minute: int) -> Iterator[Sample]:
    held = {
        (one.host, gpu): one
        for one in TENANCIES
        if one.begins <= minute < one.ends
        for gpu in range(one.first, one.first + one.gpus)
    }
    for host in range(1, HOSTS + 1):
        for gpu in range(8):
            one = held.get((host, gpu))
            yield from _gpu(minute, f"gpu-{host:02}", gpu, one)


def _gpu(minute: int, host: str, gpu: int, one: Tenancy | None) -> Iterator[Sample]:
    labels = {**EAST, "Hostname": host, "modelName": H100, "gpu": str(gpu), "UUID": f"GPU-{host}-{gpu}"}
    if one is not None:
        labels |= {"namespace": one.namespace, "pod": one.pod, "container": "main"}
    straggling = 0.97 if gpu == 5 else 1.0
    busy = min(1.0, max(0.0, one.busy(minute + gpu))) * straggling if one else 0.0
    used = 80_000 * one.memory if one else 500.0
    yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, busy
    yield "DCGM_FI_PROF_SM_ACTIVE", labels, 0.92 * busy
    yield "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", labels, busy * (one.tensor if one else 0.0)
    yield "DCGM_FI_PROF_DRAM_ACTIVE", labels, 0.55 * busy
    yield "DCGM_FI_DEV_FB_USED", labels, used
    yield "DCGM_FI_DEV_FB_FREE", labels, 81_000 - used
    yield "DCGM_FI_DEV_POWER_USAGE", labels, 70 + 600 * busy


def _jobstats(minute: int) -> Iterator[Sample]:
    for place, (job, _, _, gpus, shape) in enumerate(SLURM_JOBS):
        for gpu in range(gpus):
            labels = {"cluster": "hpc", "instance": f"a{place}:9445", "jobid": job, "name": A100}
            labels |= {"minor_number": str(gpu), "uuid": f"GPU-a{place}-{gpu}", "userid": "1000"}
            busy = shape(gpu)(minute)
            yield "nvidia_gpu_duty_cycle", labels, 100 * busy
            yield "nvidia_gpu_memory_used_bytes", labels, 62e9 if busy else 1e9
            yield "nvidia_gpu_memory_total_bytes", labels, 80e9
            yield "nvidia_gpu_power_usage_milliwatts", labels, 1000 * (60 + 300 * busy)


def _kube_state_metrics(minute: int) -> Iterator[Sample]:
    pods = [(one.namespace, one.pod, one.gpus) for one in TENANCIES if one.begins <= minute < one.ends]
    for namespace, pod, gpus in (*pods, ("legacy", "render-0", 2)):
        labels = {**EAST, "namespace": namespace, "pod": pod}
        requested = {**labels, "resource": "nvidia_com_gpu", "unit": "integer"}
        yield "kube_pod_container_resource_requests", requested, gpus
        yield "kube_pod_status_phase", {**labels, "phase": "Running"}, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training: tokens a second at each minute, how far it was at the begin, of how many tokens."""

    labels: Mapping[str, str]
    rate: Shape
    done: float
    target: float
    workers: Shape
    step_tokens: float
    data_wait: float


LLAMA = Training(labels={**EAST, "namespace": "nlp"}, done=22e9, target=60e9, step_tokens=1.05e6,
                 data_wait=0.02,
                 rate=until(GROWN, wave(88e3, 2e3, "r"), wave(171e3, 3e3, "r")),
                 workers=until(GROWN, steady(8), steady(16)))  # fmt: skip
VIT = Training(labels={**EAST, "namespace": "vision", "pod": "vit-l-a1-0-m4n5b"}, done=9e9, target=40e9,
               step_tokens=0.5e6, data_wait=0.34, rate=wave(61e3, 5e3, "v"), workers=steady(8))  # fmt: skip
QCD = Training(labels={"cluster": "hpc", "jobid": "48211"}, done=3e9, target=12e9, step_tokens=0.26e6,
               data_wait=0.05, rate=wave(36e3, 1e3, "q"), workers=steady(4))  # fmt: skip


def _trainings(minute: int) -> Iterator[Sample]:
    if minute < GROWN:
        yield from _training(LLAMA, minute, 0, {"pod": "llama-8b-a1-0-x7k2p"})
    elif minute >= RESUMED:
        yield from _training(LLAMA, minute, RESUMED, {"pod": "llama-8b-a2-0-q9d4m"})
    yield from _training(VIT, minute, 0, {})
    yield from _training(QCD, minute, 0, {})


@functools.cache
def _tokens(rate: Shape, minute: int) -> float:
    """The tokens of the day until this minute; call with ascending minutes."""
    return _tokens(rate, minute - 1) + 60 * rate(minute - 1) if minute else 0.0


def _training(one: Training, minute: int, began: int, pod: Mapping[str, str]) -> Iterator[Sample]:
    rate = one.rate(minute)
    tokens = _tokens(one.rate, minute) - _tokens(one.rate, began)
    missed = (RESUMED - GROWN) * 60 * rate if began else 0.0
    done = one.done + _tokens(one.rate, minute) - missed
    steps, trained_s = tokens / one.step_tokens, 60.0 * (minute - began)
    values = {
        "tokens_total": tokens,
        "position_tokens": done,
        "target_tokens": one.target,
        "step": done / one.step_tokens,
        "step_seconds_sum": 0.97 * trained_s,
        "step_seconds_count": steps,
        "tokens_per_second": rate,
        "loss": 1.75 + 9.0 / (done / 1e9) ** 0.9 + wave(0.0, 0.01, "loss")(minute),
        "workers": one.workers(minute),
        "checkpoint_timestamp_seconds": 60.0 * (minute - (minute - began) % 30),
        "data_wait_seconds_total": one.data_wait * trained_s,
        "checkpoint_seconds_total": 0.012 * trained_s,
    }
    for name, value in values.items():
        yield f"rightsizer_train_{name}", {**one.labels, **pod}, value
    yield "rightsizer_train_phase", {**one.labels, **pod, "phase": "training"}, 1


def _operator(minute: int) -> Iterator[Sample]:
    resized = minute >= RESUMED
    facts = {
        ("nlp", "llama-8b", f"FSDP {16 if resized else 8}, micro-batch 4"): {
            "gpus": 16 if resized else 8, "gpus_saved": 16 if resized else 24, "attempt": 1 + resized,
            "recommended_gpus": 16, "restarts": 0, "predicted_tokens_per_second": 174e3 if resized else 97e3,
            "measured_tokens_per_second": LLAMA.rate(minute), "margin_seconds": 9e3 if resized else -2.6e4},
        ("vision", "vit-l", "DP 8, micro-batch 64"): {
            "gpus": 8, "gpus_saved": 8, "attempt": 1, "recommended_gpus": 8, "restarts": int(minute > 900),
            "predicted_tokens_per_second": 98e3, "measured_tokens_per_second": VIT.rate(minute),
            "margin_seconds": -1.4e4 - 9 * minute},
    }  # fmt: skip
    for (namespace, plan, layout), values in facts.items():
        labels = {**EAST, "namespace": namespace, "plan": plan}
        yield "rightsizer_plan_info", {**labels, "layout": layout, "gpu_type": "H100-SXM5-80GB"}, 1
        for name, value in values.items():
            yield f"rightsizer_plan_{name}", labels, value
    yield "rightsizer_plans", {**EAST, "state": "Running"}, 2
    yield "rightsizer_plans", {**EAST, "state": "Waiting"}, int(minute % 400 < 90)
    reconciled = 25 * minute + 3 * max(0, minute - RESUMED)
    counters = {"launches_total": 4 + resized, "reconcile_failures_total": minute // 200}
    for name, value in {**counters, "leads": 1, "queue": int(minute % 97 == 0)}.items():
        yield f"rightsizer_operator_{name}", EAST, value
    yield "rightsizer_operator_resizes_total", {**EAST, "cause": "late"}, int(resized)
    for method, rate in {"GET": 4, "PATCH": 9, "POST": 1}.items():
        yield "rightsizer_operator_api_requests_total", {**EAST, "method": method}, rate * minute
    yield "rightsizer_operator_api_errors_total", {**EAST, "code": "409"}, minute // 45
    for edge, share in {"0.01": 0.3, "0.05": 0.9, "0.25": 0.99, "1.0": 1.0, "+Inf": 1.0}.items():
        yield "rightsizer_operator_reconcile_seconds_bucket", {**EAST, "le": edge}, share * reconciled
    yield "rightsizer_operator_reconcile_seconds_count", EAST, reconciled
    yield "rightsizer_operator_reconcile_seconds_sum", EAST, 0.021 * reconciled


def _slurm(minute: int) -> Iterator[Sample]:
    hpc = {"cluster": "hpc"}
    for job, user, account, gpus, _ in SLURM_JOBS:
        plan = "qcd-lm" if user == "ada" else ""
        who = {"user": user, "account": account, "partition": "gpu", "plan": plan}
        yield "rightsizer_slurm_job_info", {**hpc, "jobid": job, **who}, 1
        yield "rightsizer_slurm_job_gpus", {**hpc, "jobid": job}, gpus
    sized = {
        "sized_gpus": 4, "predicted_tokens_per_second": 37e3, "measured_tokens_per_second": QCD.rate(minute),
        "restarts": int(minute > 300), "margin_seconds": 3.1e4 + 4 * minute}  # fmt: skip
    for name, value in sized.items():
        yield f"rightsizer_slurm_job_{name}", {**hpc, "jobid": "48211"}, value
    layout = {"jobid": "48211", "layout": "DP 4, micro-batch 8", "gpu_type": "A100-SXM4-80GB"}
    yield "rightsizer_slurm_job_layout", {**hpc, **layout}, 1
    yield "rightsizer_slurm_jobs", {**hpc, "state": "RUNNING"}, 1
    yield "rightsizer_slurm_jobs", {**hpc, "state": "PENDING"}, int(minute % 500 < 90)
    yield "rightsizer_slurm_decisions_total", {"action": "keep"}, minute // 10
    yield "rightsizer_slurm_decisions_total", {"action": "flag"}, minute // 240
    yield "rightsizer_slurm_command_errors_total", {"command": "sacct"}, minute // 333
    yield "rightsizer_slurm_sweep_timestamp_seconds", {}, 60.0 * minute - 8
    yield "rightsizer_slurm_sweep_seconds", {}, 0.4 + wave(0.1, 0.05, "sweep")(minute)
