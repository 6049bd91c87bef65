"""The recording rules: whatever reports GPUs and trainings becomes one family of series."""

from collections.abc import Mapping, Sequence
from dataclasses import field

from rightsizer.catalog import lookup
from rightsizer.domain.hardware import Gpu
from rightsizer.estimate.parameters import load_resize
from rightsizer.values import immutable
from rightsizer_telemetry.names import HOLDER
from rightsizer_telemetry.promql import any_of, constants, relabel, string
from rightsizer_telemetry.sources import SOURCES, of_slurm, samples, workload_steps

__all__ = ["AMOUNTS", "INTERVAL_S", "SHARES", "Group", "Rule", "groups"]

INTERVAL_S = 30
"""How often the rules are evaluated, and so how often a recorded series has a sample. DCGM's default too."""


@immutable
class Rule:
    """One recording rule."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """As a rule file has it."""
        labels = {"labels": dict(self.labels)} if self.labels else {}
        return {"record": self.record, "expr": self.expr, **labels}


@immutable
class Group:
    """Rules that are evaluated in this order, each seeing what those before it recorded."""

    name: str
    rules: tuple[Rule, ...]

    def document(self) -> dict[str, object]:
        """As a rule file has it."""
        rules = [rule.document() for rule in self.rules]
        return {"name": self.name, "interval": f"{INTERVAL_S}s", "rules": rules}


@immutable
class Way:
    """One way to read a family: signals (spellings of the same thing), the factor to our unit, a matcher."""

    signals: tuple[str, ...]
    factor: float = 1.0
    matcher: str = ""


_MIB = 2.0**20
_ROUNDING = 1.02
"""A share a little above 1 is rounding; one far above is DCGM's "blank" or a wrong unit, and is dropped."""
_MOST_W = 3000.0
"""No GPU draws as much."""

SHARES: Mapping[str, tuple[Way, ...]] = {
    "gpu_busy:ratio": (
        Way(signals=("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO")),
        Way(signals=("DEV_GPU_UTIL",), factor=0.01, matcher='mig=""'),  # says nothing of MIG instances
        Way(signals=("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO")),
        Way(signals=("graphics_util_percent",)),
        Way(signals=("duty_cycle", "utilization"), factor=0.01),
    ),
    "gpu_sm_active:ratio": (Way(signals=("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO", "sm_util_percent")),),
    "gpu_tensor_active:ratio": (
        Way(signals=("PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO", "any_tensor_util_percent")),
        Way(signals=("tensor",), factor=0.01),
    ),
    "gpu_dram_active:ratio": (
        Way(signals=("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO", "dram_bw_util_percent")),
    ),
}
"""Recorded family of a share -> the ways to read it, best first."""

AMOUNTS: Mapping[str, tuple[Way, ...]] = {
    "gpu_memory_used:bytes": (
        Way(signals=("DEV_FB_USED",), factor=_MIB),
        Way(signals=("memory_used_bytes", "memory_usage")),
    ),
    "gpu_power:watts": (
        Way(signals=("DEV_POWER_USAGE",)),
        Way(signals=("power_usage_milliwatts", "power"), factor=0.001),
    ),
}
"""Recorded family of an amount -> the ways to read it."""

BY_SOURCE = "rightsizer:gpu_by_source:raw"
"""Every signal as each source has it, in its own unit; labels `source` and `signal`."""
RAW = "rightsizer:gpu:raw"
"""The same from one source for each GPU."""


def groups() -> tuple[Group, ...]:
    """Every recording rule, in groups."""
    return (
        Group(name="rightsizer-gpus", rules=(*_gpus(), *_shares(), *_workloads())),
        Group(name="rightsizer-trainings", rules=(*_trainings(), *_plans())),
    )


def _gpus() -> Sequence[Rule]:
    sources = [
        Rule(record=BY_SOURCE, expr=samples(source), labels={"source": source.name}) for source in SOURCES
    ]
    shares = [Rule(record=f"rightsizer:{name}", expr=_first(ways, 1.0)) for name, ways in SHARES.items()]
    amounts = [
        Rule(record=f"rightsizer:{name}", expr=_first(ways, _MOST_W if name.endswith("watts") else None))
        for name, ways in AMOUNTS.items()
    ]
    return [*sources, Rule(record=RAW, expr=_one_source()), *shares, *amounts]


def _one_source() -> str:
    """One source for each GPU: a GPU with a holder before the same GPU without, then the order of SOURCES.

    slurm-job-exporter has no UUIDs: the job, or node and index, tell that it is the same GPU.
    """
    dcgm, jobstats, exporter = (f'{BY_SOURCE}{{source="{source.name}"' for source in SOURCES)
    others = f'{BY_SOURCE}{{source!="{SOURCES[-1].name}",executor="slurm"}}'
    held, free, device, place = 'executor!=""}', 'executor=""}', "on (uuid, mig)", "on (node, gpu)"
    return "\nor ".join(
        (
            f"{dcgm},{held}",
            f"({jobstats},{held} unless {device} {dcgm},{held})",
            f"({exporter}}} unless on (cluster, workload) {others})",
            f"(({dcgm},{free} unless {device} {jobstats},{held}) unless {place} {exporter}}})",
            f"(({jobstats},{free} unless {device} {dcgm}}}) unless {place} {exporter}}})",
        )
    )


def _first(ways: Sequence[Way], most: float | None) -> str:
    return "\nor ".join(_way(way, most) for way in ways)


def _way(way: Way, most: float | None) -> str:
    """One way in our unit, without values above the most that can be true."""
    matcher = f"signal=~{string('|'.join(way.signals))}{',' if way.matcher else ''}{way.matcher}"
    found = f"{RAW}{{{matcher}}}"
    if most is not None:
        found = f"({found} <= {most * _ROUNDING / way.factor:g})"
    single = f"max without (source, signal) ({found})"
    scaled = single if way.factor == 1 else f"{single} * {way.factor:.12g}"
    return scaled if most is None else f"clamp_max({scaled}, {most:g})"


def _shares() -> Sequence[Rule]:
    used = "rightsizer:gpu_memory_used:bytes"

    def amount(*signals: str, factor: str = "") -> str:
        return f"max without (source, signal) ({RAW}{{signal=~{string('|'.join(signals))}}}){factor}"

    mib = f" * {_MIB:.12g}"
    free, reserved = amount("DEV_FB_FREE", factor=mib), amount("DEV_FB_RESERVED", factor=mib)
    total = (
        f"({amount('memory_total_bytes', 'memory_total')} or ({used} + {free} + ({reserved} or {used} * 0)))"
    )
    powers = "\nor ".join(
        f"rightsizer:gpu_power:watts{{model=~{string(any_of(models))}}} / {tdp_w:g}"
        for tdp_w, models in sorted(_models_by_tdp().items())
    )
    return (
        Rule(record="rightsizer:gpu_memory_used:ratio", expr=f"({used} / ({total} > 0)) <= 1"),
        Rule(record="rightsizer:gpu_power:ratio", expr=powers),
    )


def _models_by_tdp() -> dict[float, list[str]]:
    """Names as nvidia-smi prints them, by TDP in watts; a name that two GPUs of unlike TDP have is none."""
    tdps: dict[str, set[float]] = {}
    for gpu in lookup.gpus():
        for alias in _printed(gpu):
            tdps.setdefault(alias, set()).add(gpu.tdp_w)
    groups: dict[float, list[str]] = {}
    for alias, found in tdps.items():
        if len(found) == 1 and (tdp_w := next(iter(found))) > 0:
            groups.setdefault(tdp_w, []).append(alias)
    return groups


def _printed(gpu: Gpu) -> Sequence[str]:
    return [
        alias
        for alias in gpu.aliases
        if alias.split(" ")[0] in {"NVIDIA", "Tesla", "Quadro", "GRID"} and " " in alias
    ]


def _workloads() -> Sequence[Rule]:
    busy = 'rightsizer:gpu_busy:ratio{executor!=""}'
    by = f"by ({', '.join(HOLDER)})"
    return (
        Rule(record="rightsizer:workload_gpus:count", expr=f"count {by} ({busy})"),
        Rule(record="rightsizer:workload_busy:ratio", expr=f"avg {by} ({busy})"),
        Rule(record="rightsizer:workload_busy:max", expr=f"max {by} ({busy})"),
        Rule(
            record="rightsizer:workload_idle_gpus:count",
            expr=f"count {by} ({busy} < {load_resize().idle_busy:g}) or count {by} ({busy}) * 0",
        ),
        Rule(
            record="rightsizer:workload_tensor:ratio",
            expr=f'avg {by} (rightsizer:gpu_tensor_active:ratio{{executor!=""}})',
        ),
        Rule(record="rightsizer:workload_requested_gpus:count", expr=_requested()),
        Rule(record="rightsizer:workload_owner:info", expr=_owners()),
    )


def _owners() -> str:
    """Who runs a Slurm job: our daemon's word, else slurm-job-exporter's, else the uid that jobstats has."""
    who, job = f"by ({', '.join((*HOLDER, 'user', 'account'))})", f"on ({', '.join(HOLDER)})"
    uid = [("user", "uid $1", "userid", "(.+)")]
    by_name = of_slurm("slurm_job_utilization_gpu", "slurmjobid")
    by_number = relabel(of_slurm('nvidia_gpu_jobUid{jobid=~"[1-9][0-9]*"}', "jobid"), uid)
    ours = of_slurm("rightsizer_slurm_job_info", "jobid")
    return f"group {who} ({ours})\nor {job} group {who} ({by_name})\nor {job} group {who} ({by_number})"


def _requested() -> str:
    """GPUs that running pods ask for and Slurm jobs hold, whether an exporter sees them or not."""
    by = f"sum by ({', '.join(HOLDER)})"
    resource = 'kube_pod_container_resource_requests{resource=~"nvidia_com_gpu|nvidia_com_mig_.+"}'
    running = 'kube_pod_status_phase{phase="Running"} == 1'
    worlds = (("namespace", "$1", "exported_namespace", "(.+)"), ("pod", "$1", "exported_pod", "(.+)"))
    asked = f"sum by (cluster, namespace, pod) ({relabel(resource, worlds)})"
    live = f"max by (cluster, namespace, pod) ({relabel(running, worlds)})"
    pods = relabel(
        f"({asked} and on (cluster, namespace, pod) {live})",
        (*constants({"executor": "kubernetes"}), *workload_steps()),
    )
    jobs = of_slurm("rightsizer_slurm_job_gpus", "jobid")
    return f"{by} ({pods})\nor {by} ({jobs})"


_TRAINING = "executor, cluster, namespace, workload, plan"
_RATE = "2m"
"""Four samples: one may be missed, and a step of a minute still shows in every rate."""

GAUGES = (
    "tokens_per_second",
    "position_tokens",
    "target_tokens",
    "step",
    "workers",
    "checkpoint_timestamp_seconds",
)
"""The agent's gauges that are kept, one series for each training."""

RATES: Mapping[str, str] = {
    "tokens:rate2m": "tokens_total",
    "steps:rate2m": "step_seconds_count",
    "step_seconds:rate2m": "step_seconds_sum",
    "data_wait:ratio": "data_wait_seconds_total",
    "checkpoint:ratio": "checkpoint_seconds_total",
}
"""Recorded name -> the agent's counter whose rate it is; seconds in a second are a share."""


def _trainings() -> Sequence[Rule]:
    """The agent's word by holder and plan: a pod's label, else its Job's name without "-a<N>"."""
    templates = {
        **{f"{name}:max": ("max", f"rightsizer_train_{name}{{%s}}") for name in GAUGES},
        **{
            name: ("sum", f"rate(rightsizer_train_{counter}{{%s}}[{_RATE}])")
            for name, counter in RATES.items()
        },
    }
    rules = [
        Rule(record=f"rightsizer:train_{name}", expr=f"{over} by ({_TRAINING}) (\n{_training(template)}\n)")
        for name, (over, template) in templates.items()
    ]
    phase = f"max by ({_TRAINING}, phase) (\n{_training('rightsizer_train_phase{%s} == 1')}\n)"
    return [*rules, Rule(record="rightsizer:train_phase:info", expr=phase)]


def _training(template: str) -> str:
    """The agent's series, in pods, in Slurm jobs and elsewhere; the template has a place for matchers."""
    worlds = (("namespace", "$1", "exported_namespace", "(.+)"), ("pod", "$1", "exported_pod", "(.+)"))
    inside = ('jobid="",pod!=""', 'jobid="",pod="",exported_pod!=""')
    pods = relabel(
        f"({' or '.join(template % matcher for matcher in inside)})",
        (*worlds, *constants({"executor": "kubernetes"}), *workload_steps(), *_PLAN_OF_WORKLOAD),
    )
    jobs = of_slurm(template % 'jobid!=""', "jobid")
    local = relabel(
        f"({template % _OUTSIDE})",
        (*constants({"executor": "local"}), ("workload", "$1", "instance", "(.+)")),
    )
    return f"{pods}\nor\n{jobs}\nor\n{local}"


_OUTSIDE = 'jobid="",pod="",exported_pod=""'
_PLAN_OF_WORKLOAD = (
    ("known_plan", "$1", "plan", "(.+)"),
    ("plan", "$1", "workload", "(.+)-a[0-9]+"),
    ("plan", "$1", "known_plan", "(.+)"),
)

PLAN: Mapping[str, tuple[str, str]] = {
    "gpus:count": ("gpus", "sized_gpus"),
    "predicted:tokens_per_second": ("predicted_tokens_per_second", "predicted_tokens_per_second"),
    "measured:tokens_per_second": ("measured_tokens_per_second", "measured_tokens_per_second"),
    "margin:seconds": ("margin_seconds", "margin_seconds"),
    "restarts:count": ("restarts", "restarts"),
}
"""Recorded name -> gauge of the operator and of Slurm's monitor."""


def _plans() -> Sequence[Rule]:
    figures = [
        Rule(record=f"rightsizer:plan_{name}", expr=_by_plan(f"rightsizer_plan_{operator}", slurm))
        for name, (operator, slurm) in PLAN.items()
    ]
    words = ", layout, gpu_type"
    told = _by_plan("rightsizer_plan_info", "layout", words)
    # one only, so that it can be joined: a replica that acts no more may still tell an older layout
    return [*figures, Rule(record="rightsizer:plan:info", expr=f"topk by ({_PLAN}) (1,\n{told}\n)")]


_PLAN = "executor, cluster, namespace, plan"


def _in_pods(metric: str) -> str:
    """What the operator says, in the plan's namespace and not in its own."""
    world = ("namespace", "$1", "exported_namespace", "(.+)")
    return relabel(metric, (world, *constants({"executor": "kubernetes"})))


def _by_plan(operator: str, slurm: str, words: str = "") -> str:
    """A plan's gauge from either executor; on Slurm a job without a plan's name is known by its id."""
    pods = _in_pods(operator)
    info = "max by (cluster, jobid, plan) (rightsizer_slurm_job_info)"
    jobs = relabel(
        f"(rightsizer_slurm_job_{slurm} * on (cluster, jobid) group_left (plan) {info})",
        (
            *constants({"executor": "slurm", "namespace": ""}),
            ("known_plan", "$1", "plan", "(.+)"),
            ("plan", "$1", "jobid", "(.+)"),
            ("plan", "$1", "known_plan", "(.+)"),
        ),
    )
    return f"max by ({_PLAN}{words}) (\n{pods}\nor\n{jobs}\n)"
