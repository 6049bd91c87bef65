"""The recording rules: one family of series for all sources of GPU and training metrics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.hardware import Gpu
from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.values import immutable
from rightsizer_telemetry.names import HOLDER
from rightsizer_telemetry.promql import any_of, constants, relabel, string
from rightsizer_telemetry.sources import SOURCES, Source, of_slurm, one_source, samples, workload_steps

INTERVAL_S = 30
"""How often the rules are evaluated: the interval of recorded samples. Also DCGM's default."""


@immutable
class RecordingRule:
    """One recording rule."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """The entry in a rule file."""
        labels = {"labels": dict(self.labels)} if self.labels else {}
        return {"record": self.record, "expr": self.expr, **labels}


@immutable
class RuleGroup:
    """Rules evaluated in this order. Each can read what the ones before it recorded."""

    name: str
    rules: tuple[RecordingRule, ...]

    def document(self) -> dict[str, object]:
        """The entry in a rule file."""
        rules = [rule.document() for rule in self.rules]
        return {"name": self.name, "interval": f"{INTERVAL_S}s", "rules": rules}


@immutable
class RawSignals:
    """A family's raw signals: alternative spellings, the factor to our unit, a matcher."""

    signals: tuple[str, ...]
    factor: float = 1.0
    matcher: str = ""


_MIB = 2.0**20
_ROUNDING = 1.02
"""A share a little above 1 is rounding; one far above is DCGM's "blank" or a wrong unit, and is dropped."""
_MAX_W = 3000.0
"""Higher readings are errors: no GPU draws that much."""

SHARES: Mapping[str, tuple[RawSignals, ...]] = {
    "gpu_busy:ratio": (
        RawSignals(signals=("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO")),
        RawSignals(
            signals=("DEV_GPU_UTIL",), factor=0.01, matcher='mig=""'
        ),  # not reported for MIG instances
        RawSignals(signals=("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO")),
        RawSignals(signals=("graphics_util_percent",)),
        RawSignals(signals=("duty_cycle", "utilization", "gfx_activity"), factor=0.01),
    ),
    "gpu_sm_active:ratio": (RawSignals(signals=("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO", "sm_util_percent")),),
    "gpu_tensor_active:ratio": (
        RawSignals(signals=("PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO", "any_tensor_util_percent")),
        RawSignals(signals=("tensor", "prof_tensor_active_percent"), factor=0.01),
    ),
    "gpu_dram_active:ratio": (
        RawSignals(signals=("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO", "dram_bw_util_percent")),
    ),
}
"""Recorded family of a share -> its readings, best first."""

_AMOUNTS: Mapping[str, tuple[RawSignals, ...]] = {
    "gpu_memory_used:bytes": (
        RawSignals(signals=("DEV_FB_USED", "used_vram"), factor=_MIB),
        RawSignals(signals=("memory_used_bytes", "memory_usage")),
    ),
    "gpu_power:watts": (
        RawSignals(signals=("DEV_POWER_USAGE", "package_power", "average_package_power")),
        RawSignals(signals=("power_usage_milliwatts", "power"), factor=0.001),
    ),
}
"""Recorded family of an amount -> its readings, best first."""

_BY_SOURCE = "rightsizer:gpu_by_source:raw"
"""Every signal of every source, in the source's unit; labels `source` and `signal`."""
_RAW = "rightsizer:gpu:raw"
"""The same, from one source per GPU."""


def groups() -> tuple[RuleGroup, ...]:
    """Every recording rule, in groups."""
    return (
        RuleGroup(name="rightsizer-gpus", rules=(*_gpus(), _power_share(), *_workloads())),
        RuleGroup(name="rightsizer-trainings", rules=(*_trainings(), *_plans())),
    )


def _gpus() -> Sequence[RecordingRule]:
    sources = [
        RecordingRule(record=_BY_SOURCE, expr=samples(source), labels={"source": source.name})
        for source in SOURCES
    ]
    families = [RecordingRule(record=name, expr=expr) for name, expr in gpu_families(_recorded).items()]
    return [*sources, RecordingRule(record=_RAW, expr=one_source(_recorded_of, _recorded_of)), *families]


def _recorded_of(source: Source, matcher: str) -> str:
    return f'{_BY_SOURCE}{{source="{source.name}"{_also(matcher)}}}'


def _recorded(signals: Sequence[str], matcher: str) -> str:
    return f"{_RAW}{{signal=~{string('|'.join(signals))}{_also(matcher)}}}"


def _also(matcher: str) -> str:
    return f",{matcher}" if matcher else ""


Select = Callable[[Sequence[str], str], str]
"""PromQL of the samples of some signals that meet a matcher: one source per GPU, in the source's unit."""


def gpu_families(select: Select) -> Mapping[str, str]:
    """The recorded families of one GPU, each as PromQL over the samples that `select` names."""
    shares = {f"rightsizer:{name}": _first(readings, 1.0, select) for name, readings in SHARES.items()}
    amounts = {
        f"rightsizer:{name}": _first(readings, _MAX_W if name.endswith("watts") else None, select)
        for name, readings in _AMOUNTS.items()
    }
    return {**shares, **amounts, "rightsizer:gpu_memory_used:ratio": _memory_share(select)}


def _first(readings: Sequence[RawSignals], max_value: float | None, select: Select) -> str:
    return "\nor ".join(_scaled(reading, max_value, select) for reading in readings)


def _scaled(reading: RawSignals, max_value: float | None, select: Select) -> str:
    """One reading in our unit, without values above the possible maximum."""
    selected = select(reading.signals, reading.matcher)
    if max_value is not None:
        selected = f"({selected} <= {max_value * _ROUNDING / reading.factor:g})"
    single = f"max without (source, signal) ({selected})"
    scaled = single if reading.factor == 1 else f"{single} * {reading.factor:.12g}"
    return scaled if max_value is None else f"clamp_max({scaled}, {max_value:g})"


def _memory_share(select: Select) -> str:
    used = "rightsizer:gpu_memory_used:bytes"

    def amount(*signals: str, factor: str = "") -> str:
        return f"max without (source, signal) ({select(signals, '')}){factor}"

    mib = f" * {_MIB:.12g}"
    free, reserved = amount("DEV_FB_FREE", factor=mib), amount("DEV_FB_RESERVED", factor=mib)
    stated = f"{amount('memory_total_bytes', 'memory_total')} or {amount('total_vram', factor=mib)}"
    total = f"({stated} or ({used} + {free} + ({reserved} or {used} * 0)))"
    return f"({used} / ({total} > 0)) <= 1"


def _power_share() -> RecordingRule:
    powers = "\nor ".join(
        f"rightsizer:gpu_power:watts{{model=~{string(any_of(models))}}} / {tdp_w:g}"
        for tdp_w, models in sorted(_models_by_tdp().items())
    )
    return RecordingRule(record="rightsizer:gpu_power:ratio", expr=powers)


def _models_by_tdp() -> dict[float, list[str]]:
    """Names as nvidia-smi prints them, by TDP in watts. Names with several TDPs are left out."""
    tdps: dict[str, set[float]] = {}
    for gpu in lookup.gpus():
        for alias in _printed(gpu):
            tdps.setdefault(alias, set()).add(gpu.tdp_w)
    groups: dict[float, list[str]] = {}
    for alias, values in tdps.items():
        if len(values) == 1 and (tdp_w := next(iter(values))) > 0:
            groups.setdefault(tdp_w, []).append(alias)
    return groups


def _printed(gpu: Gpu) -> Sequence[str]:
    return [
        alias
        for alias in gpu.aliases
        if alias.split(" ")[0] in {"NVIDIA", "Tesla", "Quadro", "GRID"} and " " in alias
    ]


def _workloads() -> Sequence[RecordingRule]:
    busy = 'rightsizer:gpu_busy:ratio{executor!=""}'
    by = f"by ({', '.join(HOLDER)})"
    return (
        RecordingRule(record="rightsizer:workload_gpus:count", expr=f"count {by} ({busy})"),
        RecordingRule(record="rightsizer:workload_busy:ratio", expr=f"avg {by} ({busy})"),
        RecordingRule(record="rightsizer:workload_busy:max", expr=f"max {by} ({busy})"),
        RecordingRule(
            record="rightsizer:workload_idle_gpus:count",
            expr=f"count {by} ({busy} < {load_resize().idle_busy:g}) or count {by} ({busy}) * 0",
        ),
        RecordingRule(
            record="rightsizer:workload_tensor:ratio",
            expr=f'avg {by} (rightsizer:gpu_tensor_active:ratio{{executor!=""}})',
        ),
        RecordingRule(record="rightsizer:workload_requested_gpus:count", expr=_requested()),
        RecordingRule(record="rightsizer:workload_owner:info", expr=_owners()),
    )


def _owners() -> str:
    """The owner of a Slurm job: from our daemon, else slurm-job-exporter, else the uid from jobstats."""
    who, job = f"by ({', '.join((*HOLDER, 'user', 'account'))})", f"on ({', '.join(HOLDER)})"
    uid = [("user", "uid $1", "userid", "(.+)")]
    by_name = of_slurm("slurm_job_utilization_gpu", "slurmjobid")
    by_number = relabel(of_slurm('nvidia_gpu_jobUid{jobid=~"[1-9][0-9]*"}', "jobid"), uid)
    ours = of_slurm("rightsizer_slurm_job_info", "jobid")
    return f"group {who} ({ours})\nor {job} group {who} ({by_name})\nor {job} group {who} ({by_number})"


GPU_REQUESTS = (
    'kube_pod_container_resource_requests{resource=~"nvidia_com_gpu|nvidia_com_mig_.+|amd_com_gpu"}',
    "rightsizer_slurm_job_gpus",
)
"""What pods and Slurm jobs ask for, as kube-state-metrics and our Slurm monitor say."""


def _requested() -> str:
    """GPUs that running pods request and Slurm jobs hold, with or without a GPU exporter."""
    by = f"sum by ({', '.join(HOLDER)})"
    resource, slurm = GPU_REQUESTS
    running = 'kube_pod_status_phase{phase="Running"} == 1'
    exported = (("namespace", "$1", "exported_namespace", "(.+)"), ("pod", "$1", "exported_pod", "(.+)"))
    requested = f"sum by (cluster, namespace, pod) ({relabel(resource, exported)})"
    live = f"max by (cluster, namespace, pod) ({relabel(running, exported)})"
    pods = relabel(
        f"({requested} and on (cluster, namespace, pod) {live})",
        (*constants({"executor": "kubernetes"}), *workload_steps()),
    )
    jobs = of_slurm(slurm, "jobid")
    return f"{by} ({pods})\nor {by} ({jobs})"


_TRAINING = "executor, cluster, namespace, workload, plan"
_RATE = "2m"
"""Four samples: a rate survives one missed sample and steps of a minute."""

_GAUGES = (
    "tokens_per_second",
    "position_tokens",
    "target_tokens",
    "step",
    "workers",
    "loss",
    "checkpoint_timestamp_seconds",
)
"""The agent's gauges that are recorded, one series per training."""

RATES: Mapping[str, str] = {
    "tokens:rate2m": "tokens_total",
    "steps:rate2m": "step_seconds_count",
    "step_seconds:rate2m": "step_seconds_sum",
    "data_wait:ratio": "data_wait_seconds_total",
    "checkpoint:ratio": "checkpoint_seconds_total",
}
"""Recorded name -> the agent's counter. The rate of a counter of seconds is a share of time."""


def _trainings() -> Sequence[RecordingRule]:
    """The agent's series by holder and plan. The plan is the pod's label, else the Job's name without -aN."""
    templates = {
        **{f"{name}:max": ("max", f"rightsizer_train_{name}{{%s}}") for name in _GAUGES},
        **{
            name: ("sum", f"rate(rightsizer_train_{counter}{{%s}}[{_RATE}])")
            for name, counter in RATES.items()
        },
    }
    rules = [
        RecordingRule(
            record=f"rightsizer:train_{name}", expr=f"{over} by ({_TRAINING}) (\n{_training(template)}\n)"
        )
        for name, (over, template) in templates.items()
    ]
    phase = f"max by ({_TRAINING}, phase) (\n{_training('rightsizer_train_phase{%s} == 1')}\n)"
    return [*rules, RecordingRule(record="rightsizer:train_phase:info", expr=phase)]


def _training(template: str) -> str:
    """The agent's series in pods, Slurm jobs and local runs. `%s` in the template takes the matchers."""
    exported = (("namespace", "$1", "exported_namespace", "(.+)"), ("pod", "$1", "exported_pod", "(.+)"))
    inside = ('jobid="",pod!=""', 'jobid="",pod="",exported_pod!=""')
    pods = relabel(
        f"({' or '.join(template % matcher for matcher in inside)})",
        (*exported, *constants({"executor": "kubernetes"}), *workload_steps(), *_PLAN_OF_WORKLOAD),
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


def _plans() -> Sequence[RecordingRule]:
    figures = [
        RecordingRule(record=f"rightsizer:plan_{name}", expr=_by_plan(f"rightsizer_plan_{operator}", slurm))
        for name, (operator, slurm) in PLAN.items()
    ]
    info = _by_plan("rightsizer_plan_info", "layout", ", layout, gpu_type")
    # A join needs a single series, and a replica that no longer acts may still export an older layout
    return [*figures, RecordingRule(record="rightsizer:plan:info", expr=f"topk by ({_PLAN}) (1,\n{info}\n)")]


_PLAN = "executor, cluster, namespace, plan"


def _in_pods(metric: str) -> str:
    """A metric of the operator, with the plan's namespace instead of the operator's."""
    world = ("namespace", "$1", "exported_namespace", "(.+)")
    return relabel(metric, (world, *constants({"executor": "kubernetes"})))


def _by_plan(operator: str, slurm: str, labels: str = "") -> str:
    """A plan's gauge from either executor. A Slurm job without a plan gets its job id as plan."""
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
    return f"max by ({_PLAN}{labels}) (\n{pods}\nor\n{jobs}\n)"
