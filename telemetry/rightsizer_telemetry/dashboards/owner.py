"""The pages of who owns trainings: a namespace's workloads and plans, and one plan."""

from rightsizer_telemetry import alerts
from rightsizer_telemetry.dashboards.parts import (
    AGE,
    BAD,
    BUSY,
    FULL,
    GPU_HOURS,
    GPUS,
    IDLE,
    LATE,
    PLAN,
    SHARE,
    TOKENS,
    Dashboard,
    Variable,
    bars,
    firing,
    line,
    of,
    stat,
)

_MINE = 'namespace=~"$namespace"'
_ON_PODS = ('executor="kubernetes"', _MINE)
_MY_GPUS = of("rightsizer:workload_gpus:count", *_ON_PODS)
_MY_BUSY = of("rightsizer:workload_busy:ratio", *_ON_PODS)
_MY_IDLE = of("rightsizer:workload_idle_gpus:count", *_ON_PODS)


def _trained(metric: str, *matchers: str) -> str:
    """A training's metric by plan: its attempts in one series."""
    return f"max by (executor, cluster, namespace, plan) ({of(f'rightsizer:train_{metric}', *matchers)})"


def _progress(*matchers: str) -> str:
    done, target = (_trained(f"{name}_tokens:max", *matchers) for name in ("position", "target"))
    return f"{done} / {target}"


def _checkpoint_age(*matchers: str) -> str:
    """Not below 0: the clock of a node may be ahead of the server's."""
    return f"clamp_min(time() - {_trained('checkpoint_timestamp_seconds:max', *matchers)}, 0)"


NAMESPACE = Dashboard(
    uid="rightsizer-namespace",
    title="rightsizer / My namespace",
    description="For who owns a namespace: its GPUs, what they do, its plans and its alerts.",
    variables=(Variable(name="namespace", selection=of("rightsizer:workload_gpus:count", _ON_PODS[0])),),
    panels=(
        stat("GPUs held", "Allocated to pods of the namespace.", f"sum({_MY_GPUS})"),
        stat(
            "Busy share",
            "Share of time in which kernels ran.",
            f"sum({_MY_BUSY} * {_MY_GPUS}) / sum({_MY_GPUS})",
            SHARE,
            limits=BUSY,
        ),
        stat("GPUs idle", "Allocated and idle now.", f"sum({_MY_IDLE})", limits=IDLE),
        stat(
            "Idle GPU-hours",
            "In the selected range.",
            f"sum(avg_over_time({_MY_IDLE}[$__range])) * $__range_s / 3600",
            GPU_HOURS,
            limits=IDLE,
        ),
        stat("Plans", "Plans with a size.", f"count({of('rightsizer:plan_gpus:count', _MINE)}) or vector(0)"),
        stat(
            "Plans late",
            "Plans that will miss their deadline.",
            f"count({of('rightsizer:plan_margin:seconds', _MINE)} < 0) or vector(0)",
            limits=BAD,
        ),
        bars(
            "Progress of plans",
            "Tokens done as a share of all tokens. A click opens the plan.",
            f"sort({_progress(_MINE)})",
            PLAN,
            SHARE,
            most=1,
        ),
        bars(
            "Deadline minus expected end",
            "At the measured throughput; negative: late. A click opens the plan.",
            f"sort({of('rightsizer:plan_margin:seconds', _MINE)})",
            PLAN,
            "s",
            limits=LATE,
        ),
        line("GPUs by workload", "Allocated.", (_MY_GPUS, "{{workload}}"), unit=GPUS),
        line(
            "Busy share by workload",
            "Mean utilization of each workload's GPUs.",
            (_MY_BUSY, "{{workload}}"),
            unit=SHARE,
            most=1,
            limits=BUSY,
        ),
        bars(
            "Idle GPU-hours by workload",
            "Mean idle GPUs times hours of the selected range.",
            f"sort_desc(avg_over_time({_MY_IDLE}[$__range]) * $__range_s / 3600)",
            "{{workload}}",
            GPU_HOURS,
            limits=IDLE,
        ),
        bars(
            "Memory in use",
            "Of the fullest GPU of each workload, including the allocator's cache.",
            "sort_desc(max by (cluster, namespace, workload) "
            f"({of('rightsizer:gpu_memory_used:ratio', *_ON_PODS)}))",
            "{{workload}}",
            SHARE,
            most=1,
            limits=FULL,
        ),
        bars(
            "Age of the last checkpoint",
            "Work that a failure would lose now. A full bar: the alert fires.",
            f"sort_desc({_checkpoint_age(_MINE)})",
            PLAN,
            "s",
            most=alerts.CHECKPOINT_OLD_S,
            limits=AGE,
        ),
        firing(_MINE),
    ),
)

_PLAN = (_MINE, 'plan=~"$plan"')
_JOB = (*_ON_PODS, 'workload=~"($plan)-a[0-9]+"')
_SIZED = "rightsizer:plan_gpus:count"


def _plan(metric: str) -> str:
    return of(f"rightsizer:{metric}", *_PLAN)


def _gpu(over: str, metric: str) -> str:
    return f"{over} by (cluster, workload) ({of(f'rightsizer:gpu_{metric}:ratio', *_JOB)})"


_STEP_S = f"{_trained('step_seconds:rate2m', *_PLAN)} / {_trained('steps:rate2m', *_PLAN)}"
_LAYOUT = f"* on (executor, cluster, namespace, plan) group_left (layout) {_plan('plan:info')}"

PLANS = Dashboard(
    uid="rightsizer-plan",
    title="rightsizer / Plan",
    description="One training: throughput, deadline, size, restarts, memory.",
    variables=(
        Variable(name="namespace", selection=of(_SIZED)),
        Variable(name="plan", selection=of(_SIZED, _MINE)),
    ),
    panels=(
        line(
            "Tokens per second",
            "Predicted at sizing, and measured.",
            (_plan("plan_predicted:tokens_per_second"), "predicted {{plan}}"),
            (_plan("plan_measured:tokens_per_second"), "measured {{plan}}"),
            (_trained("tokens_per_second:max", *_PLAN), "now {{plan}}"),
            unit=TOKENS,
        ),
        line(
            "Tokens per second by layout",
            "Measured throughput of each layout that has run.",
            (f"{_plan('plan_measured:tokens_per_second')} {_LAYOUT}", "{{plan}}: {{layout}}"),
            unit=TOKENS,
        ),
        line(
            "Deadline minus expected end",
            "At the measured throughput; negative: late.",
            (_plan("plan_margin:seconds"), PLAN),
            unit="s",
            limits=LATE,
        ),
        line(
            "Progress",
            "Tokens done as a share of all tokens.",
            (_progress(*_PLAN), PLAN),
            unit=SHARE,
            most=1,
        ),
        line(
            "Size",
            "GPUs of the plan, GPUs that its measured throughput asks for, and workers that train.",
            (_plan("plan_gpus:count"), "GPUs {{plan}}"),
            (f"max by (plan) ({of('rightsizer_plan_recommended_gpus', _PLAN[1])})", "recommended {{plan}}"),
            (_trained("workers:max", *_PLAN), "workers {{plan}}"),
            unit=GPUS,
        ),
        line(
            "Attempts and restarts",
            "Each new size or layout is an attempt. Restarts of workers are counted within it.",
            (f"max by (plan) ({of('rightsizer_plan_attempt', _PLAN[1])})", "attempt {{plan}}"),
            (_plan("plan_restarts:count"), "restarts {{plan}}"),
        ),
        line("Step", "Seconds per optimizer step.", (_STEP_S, PLAN), unit="s"),
        line(
            "Loss",
            "Training loss of the last step, reported by rank 0.",
            (_trained("loss:max", *_PLAN), PLAN),
        ),
        line(
            "Memory",
            "GPU memory in use on the fullest GPU, including the allocator's cache.",
            (_gpu("max", "memory_used"), "{{workload}}"),
            unit=SHARE,
            most=1,
            limits=FULL,
        ),
        line(
            "GPU activity",
            "Mean over the plan's GPUs.",
            (_gpu("avg", "busy"), "busy {{workload}}"),
            (_gpu("avg", "tensor_active"), "tensor {{workload}}"),
            (_gpu("avg", "dram_active"), "memory {{workload}}"),
            (_gpu("avg", "power"), "power {{workload}}"),
            unit=SHARE,
            most=1,
        ),
        line(
            "Where time goes",
            "Data loading, if the script measures it, and checkpoints.",
            (_trained("data_wait:ratio", *_PLAN), "data {{plan}}"),
            (_trained("checkpoint:ratio", *_PLAN), "checkpoint {{plan}}"),
            unit=SHARE,
            most=1,
        ),
        line(
            "Age of the last checkpoint",
            "Work that a failure would lose now.",
            (_checkpoint_age(*_PLAN), PLAN),
            unit="s",
            limits=AGE,
        ),
        line(
            "Slowest against fastest GPU",
            "Range of SM activity within the job; shows stragglers.",
            (_gpu("max", "sm_active"), "most {{workload}}"),
            (_gpu("min", "sm_active"), "least {{workload}}"),
            unit=SHARE,
            most=1,
        ),
    ),
)
