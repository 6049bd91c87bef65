"""GPU exporters as PromQL with one set of labels: signals, and the workload that holds each GPU.

DCGM's exporter comes in two spellings of names (newer DCGM: `*_UTIL_RATIO`), two worlds of labels (`pod` with
honorLabels, else `exported_pod` beside the exporter's own `pod`), `Hostname` or `hostname`, whole GPUs or MIG
instances (`GPU_I_ID`; GPU_UTIL says nothing of them), for pods or for Slurm (`hpc_job`). jobstats' exporter
says the job as label `jobid`, before 0.2.2 as the value of `nvidia_gpu_jobId`; its gauges that are named
`*_util_percent` are ratios. slurm-job-exporter serves GPUs of jobs only, without UUIDs.
AMD's device-metrics-exporter serves pods and Slurm jobs (`job_id`), with a UUID only if told to, else with
a serial number.
"""

from collections.abc import Callable, Sequence

from rightsizer_engine.values import immutable
from rightsizer_telemetry.names import HOLDER
from rightsizer_telemetry.promql import Step, constants, relabel, string

_DEVICE = ("pod", "node", "gpu", "uuid", "mig", "model")
"""Labels of one GPU or MIG instance as one pod or job has it."""
_GPU_LABELS = (*HOLDER, *_DEVICE)

_POD_HASH = "[bcdfghjklmnpqrstvwxz2456789]"
"""The letters of generated names (k8s.io/apimachinery, util/rand)."""


@immutable
class Source:
    """One exporter: the prefix and suffix of its metric names, and the signals we read."""

    name: str
    prefix: str
    signals: tuple[str, ...]
    suffix: str = ""

    def names(self) -> str:
        """A regular expression of its metrics' names; its group is the signal."""
        return f"{self.prefix}({'|'.join(self.signals)}){self.suffix}"

    def metric(self, signal: str) -> str:
        """A signal's metric."""
        return f"{self.prefix}{signal}{self.suffix}"

    def select(self, matcher: str) -> str:
        """The family's series, each with its signal's name as a label, without NaN and negative values."""
        regex = self.names()
        every = f"{{__name__=~{string(regex)},{matcher}}}"
        return f"({relabel(every, [('signal', '$1', '__name__', regex)])} >= 0)"


DCGM = Source(
    name="dcgm",
    prefix="DCGM_FI_",
    signals=(
        "PROF_GR_ENGINE_ACTIVE",
        "PROF_GR_ENGINE_UTIL_RATIO",
        "PROF_SM_ACTIVE",
        "PROF_SM_UTIL_RATIO",
        "PROF_PIPE_TENSOR_ACTIVE",
        "PROF_TENSOR_UTIL_RATIO",
        "PROF_DRAM_ACTIVE",
        "PROF_DRAM_UTIL_RATIO",
        "DEV_GPU_UTIL",
        "DEV_FB_USED",
        "DEV_FB_FREE",
        "DEV_FB_RESERVED",
        "DEV_POWER_USAGE",
    ),
)
JOBSTATS = Source(
    name="jobstats",
    prefix="nvidia_gpu_",
    signals=(
        "graphics_util_percent",
        "duty_cycle",
        "sm_util_percent",
        "any_tensor_util_percent",
        "dram_bw_util_percent",
        "memory_used_bytes",
        "memory_total_bytes",
        "power_usage_milliwatts",
    ),
)
_SLURM_JOB_EXPORTER = Source(
    name="slurm-job-exporter",
    prefix="slurm_job_",
    signals=("utilization", "tensor", "memory_usage", "memory_total", "power"),
    suffix="_gpu",
)
AMD = Source(
    name="amd",
    prefix="gpu_",
    signals=(
        "gfx_activity",
        "prof_tensor_active_percent",
        "used_vram",
        "total_vram",
        "package_power",
        "average_package_power",
    ),
)
SOURCES = (DCGM, JOBSTATS, _SLURM_JOB_EXPORTER, AMD)
"""In order of preference if several report the same GPU."""


def samples(source: Source) -> str:
    """Every signal of a source with _GPU_LABELS and `signal`, one series for each GPU, holder and signal."""
    branches = {
        DCGM.name: _dcgm,
        JOBSTATS.name: _jobstats,
        _SLURM_JOB_EXPORTER.name: _slurm_job_exporter,
        AMD.name: _amd,
    }
    labelled = "\nor\n".join(branches[source.name](source))
    return f"max by ({', '.join((*_GPU_LABELS, 'signal'))}) (\n{labelled}\n)"


def one_source(kept: Callable[[Source, str], str], seen: Callable[[Source, str], str]) -> str:
    """One source per GPU: a series with a holder wins over one without, then the order of SOURCES decides.

    `kept(source, matcher)` is PromQL of the samples to choose from, `seen` of those that tell which GPUs a
    source reports; both are empty for an absent source. slurm-job-exporter has no UUIDs: its GPUs are matched
    by job, or by node and index. No other source sees AMD's GPUs.
    """
    held, free, every = 'executor!=""', 'executor=""', ""

    def unless(part: str, *others: tuple[str, str]) -> str:
        """A part without what the others have; each with the labels to compare."""
        for labels, other in others:
            part = f"({part} unless on ({labels}) {other})" if part and other else part
        return part

    device, place, job = "uuid, mig", "node, gpu", "executor, cluster, workload"
    exporter = (place, seen(_SLURM_JOB_EXPORTER, every))
    branches = (
        kept(DCGM, held),
        unless(kept(JOBSTATS, held), (device, seen(DCGM, held))),
        unless(kept(_SLURM_JOB_EXPORTER, every), (job, seen(DCGM, held)), (job, seen(JOBSTATS, held))),
        unless(kept(DCGM, free), (device, seen(JOBSTATS, held)), exporter),
        unless(kept(JOBSTATS, free), (device, seen(DCGM, every)), exporter),
        kept(AMD, every),
    )
    return "\nor ".join(branch for branch in branches if branch)


def workload_steps() -> tuple[Step, ...]:
    """The workload from a pod's name: what Indexed Jobs, Deployments, Jobs and StatefulSets append comes off.

    The last match wins: the most specific form is last.
    """
    tails = (
        "",
        "-[0-9]+",
        f"-{_POD_HASH}{{5}}",
        f"-{_POD_HASH}{{6,10}}-{_POD_HASH}{{5}}",
        f"-[0-9]+-{_POD_HASH}{{5}}",
    )
    return tuple(("workload", "$1", "pod", f"(.+){tail}") for tail in tails)


def of_slurm(expression: str, job: str) -> str:
    """The expression as something of the Slurm job that the label `job` names."""
    steps = (*constants({"executor": "slurm"}), ("workload", "$1", job, "(.+)"))
    return relabel(f"max without (namespace, pod) ({expression})", steps)


def _of_nobody(expression: str) -> str:
    return f"max without (namespace, pod, workload, executor) ({expression})"


def _dcgm(source: Source) -> Sequence[str]:
    labels = {"uuid": "UUID", "mig": "GPU_I_ID", "model": "modelName"}
    return _of_pods_and_jobs(source, "hpc_job", _device(labels, hosts=("Hostname", "hostname")))


def _amd(source: Source) -> Sequence[str]:
    device = _device({"gpu": "gpu_id", "uuid": "serial_number", "model": "card_series"}, hosts=("hostname",))
    return _of_pods_and_jobs(source, "job_id", (*device, ("uuid", "$1", "gpu_uuid", "(.+)")))


def _of_pods_and_jobs(source: Source, job: str, device: Sequence[Step]) -> Sequence[str]:
    """The GPUs of pods and Slurm jobs (label `job`), and those without a holder.

    A GPU without a pod still shows one where Prometheus attaches the target's labels: the exporter's own,
    which `up` of the same target carries too.
    """
    own = "on (job, instance, namespace, pod) up"
    exported = source.select(f'{job}="",exported_pod!=""')
    plain = source.select(f'{job}="",exported_pod="",pod!=""')
    bare = source.select(f'{job}="",exported_pod="",pod=""')
    named = (("pod", "$1", "exported_pod", "(.+)"), ("namespace", "$1", "exported_namespace", "(.+)"))
    return (
        relabel(
            f"({exported} or ({plain} unless {own}))",
            (*named, *constants({"executor": "kubernetes"}), *workload_steps(), *device),
        ),
        relabel(of_slurm(source.select(f'{job}!=""'), job), device),
        relabel(_of_nobody(f"{bare} or ({plain} and {own})"), device),
    )


def _jobstats(source: Source) -> Sequence[str]:
    """Jobs by label, jobs by value (before 0.2.2), and GPUs without a job."""
    device = _device({"gpu": "minor_number", "mig": "GPU_I_ID", "model": "name"})
    unlabelled = source.select('jobid=~"|0"')
    where = "instance, uuid"
    jobs_by_value = f'count_values by ({where}) ("workload", nvidia_gpu_jobId{{jobid=""}} > 0)'
    by_value = f"{unlabelled} * on ({where}) group_left (workload) {jobs_by_value}"
    free = f"{unlabelled} unless on ({where}) (nvidia_gpu_jobId > 0)"
    return (
        relabel(of_slurm(source.select('jobid=~"[1-9][0-9]*"'), "jobid"), device),
        relabel(of_slurm(by_value, "workload"), device),
        relabel(_of_nobody(free), device),
    )


def _slurm_job_exporter(source: Source) -> Sequence[str]:
    """Jobs; a MIG instance is named by its UUID in `gpu`."""
    device = (*_device({"model": "gpu_type"}), ("uuid", "$1", "gpu", "((?:MIG|GPU)-.+)"))
    return (relabel(of_slurm(source.select('slurmjobid!=""'), "slurmjobid"), device),)


def _device(renamed: dict[str, str], *, hosts: Sequence[str] = ()) -> tuple[Step, ...]:
    """Steps for the labels of a device from a source's own; `hosts` name the node, else its address does.

    A node is named without its domain, as Slurm does; an IP address stays whole.
    """
    return (
        *((ours, "$1", theirs, "(.*)") for ours, theirs in renamed.items()),
        ("node", "$1", "instance", "(.+?)(?::[0-9]+)?"),
        *(("node", "$1", host, "(.+)") for host in hosts),
        ("node", "$1", "node", "([A-Za-z][^.:]*).*"),
    )
