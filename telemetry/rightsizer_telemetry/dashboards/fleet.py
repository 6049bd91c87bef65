"""The pages of who runs the cluster: what all GPUs do, and what is wasted."""

from rightsizer_telemetry.dashboards.parts import (
    BAD,
    BUSY,
    GPU_HOURS,
    GPUS,
    IDLE,
    LATE,
    PLAN,
    SHARE,
    WHO,
    WORKLOAD,
    Dashboard,
    bars,
    firing,
    line,
    of,
    stat,
)

_GPUS = of("rightsizer:workload_gpus:count")
_BUSY_GPUS = f"{of('rightsizer:workload_busy:ratio')} * {_GPUS}"
_IDLE = of("rightsizer:workload_idle_gpus:count")
_HELD_BY_NOBODY, _HELD_BY_ANYBODY = 'executor=""', 'executor!=""'
_FREE = f"count({of('rightsizer:gpu_busy:ratio', _HELD_BY_NOBODY)})"
ON = "on (executor, cluster, namespace, workload)"
_UNMETERED = f"{of('rightsizer:workload_requested_gpus:count')} unless {ON} {_GPUS}"
_BY = "by (executor, cluster, namespace)"

FLEET = Dashboard(
    uid="rightsizer-fleet",
    title="rightsizer / Fleet",
    description="GPU allocation and utilization of all owners; plans that are late; alerts.",
    panels=(
        stat("GPUs held", "Allocated to pods and Slurm jobs.", f"sum({_GPUS})"),
        stat(
            "Busy share",
            "Share of time in which kernels ran, over all allocated GPUs.",
            f"sum({_BUSY_GPUS}) / sum({_GPUS})",
            SHARE,
            limits=BUSY,
        ),
        stat("GPUs idle", "Allocated and idle now.", f"sum({_IDLE})", limits=IDLE),
        stat("GPUs free", "Allocated to nobody.", f"{_FREE} or vector(0)"),
        stat(
            "Plans late",
            "Plans that will miss their deadline.",
            f"count({of('rightsizer:plan_margin:seconds')} < 0) or vector(0)",
            limits=BAD,
        ),
        stat(
            "GPUs saved",
            "maxGPUs minus the GPUs in use, over all plans.",
            f"sum({of('rightsizer_plan_gpus_saved')})",
        ),
        line(
            "GPUs",
            "Allocated, busy and free.",
            (f"sum({_GPUS})", "held"),
            (f"sum({_BUSY_GPUS})", "busy"),
            (_FREE, "free"),
            unit=GPUS,
        ),
        line(
            "Busy share by owner",
            "Mean GPU utilization by namespace or Slurm cluster. A click opens the owner's page.",
            (f"sum {_BY} ({_BUSY_GPUS}) / sum {_BY} ({_GPUS})", WHO),
            unit=SHARE,
            most=1,
            limits=BUSY,
        ),
        line("GPUs by owner", "Slurm jobs have no namespace.", (f"sum {_BY} ({_GPUS})", WHO), unit=GPUS),
        line(
            "Tensor activity",
            "Share of cycles with active tensor cores: the closest GPU metric to MFU.",
            (f"avg {_BY} ({of('rightsizer:workload_tensor:ratio')})", WHO),
            unit=SHARE,
            most=1,
        ),
        bars(
            "Deadline minus expected end",
            "Negative: late. A click opens the plan.",
            f"sort({of('rightsizer:plan_margin:seconds')})",
            PLAN,
            "s",
            limits=LATE,
        ),
        line(
            "Plans by state",
            "Reason of the Ready condition.",
            (f"sum by (state) ({of('rightsizer_plans')}) > 0", "{{state}}"),
        ),
        firing(),
        line(
            "Power",
            "Total of all GPUs with metrics.",
            (f"sum({of('rightsizer:gpu_power:watts')})", "power"),
            unit="watt",
        ),
        line(
            "GPUs without metrics",
            "Allocated GPUs that no exporter reports.",
            (f"sum({_UNMETERED}) or vector(0)", "GPUs"),
            unit=GPUS,
            limits=IDLE,
        ),
    ),
)

_OWNED = "group_left (user, account) " + of("rightsizer:workload_owner:info")
_IDLE_W = f"{of('rightsizer:gpu_power:watts', _HELD_BY_ANYBODY)} and {of('rightsizer:gpu_busy:ratio')} < 0.01"

WASTE = Dashboard(
    uid="rightsizer-waste",
    title="rightsizer / Waste",
    description="Allocated but unused GPUs by owner. `rightsizer report` adds prices.",
    panels=(
        line("Idle GPUs", "By namespace; Slurm jobs have none.", (f"sum {_BY} ({_IDLE})", WHO), unit=GPUS),
        line(
            "Idle share",
            "Share of each owner's GPUs.",
            (f"sum {_BY} ({_IDLE}) / sum {_BY} ({_GPUS})", WHO),
            unit=SHARE,
            most=1,
        ),
        bars(
            "Idle GPU-hours, worst 15",
            "Mean idle GPUs times hours of the selected range.",
            f"topk(15, avg_over_time({_IDLE}[$__range]) * $__range_s / 3600 > 0)",
            WORKLOAD,
            GPU_HOURS,
            limits=IDLE,
        ),
        bars(
            "Least busy, 15",
            "Mean utilization over the selected range.",
            f"bottomk(15, avg_over_time({of('rightsizer:workload_busy:ratio')}[$__range]))",
            WORKLOAD,
            SHARE,
            most=1,
            limits=BUSY,
        ),
        bars(
            "Slurm owners",
            "Idle GPUs by account and user, if an exporter or the Slurm monitor names them.",
            f"sort_desc(sum by (account, user) ({_IDLE} * {ON} {_OWNED}))",
            "{{account}} {{user}}",
            GPUS,
            limits=IDLE,
        ),
        line(
            "Power of idle GPUs",
            "Power draw of allocated GPUs that run no kernel.",
            (f"sum({_IDLE_W}) or vector(0)", "power"),
            unit="watt",
        ),
        bars(
            "Memory never used",
            "Share of the fullest GPU's memory never used in the range. A smaller GPU might suffice.",
            "sort_desc(1 - max by (executor, cluster, namespace, workload) (max_over_time("
            f"{of('rightsizer:gpu_memory_used:ratio', _HELD_BY_ANYBODY)}[$__range])))",
            WORKLOAD,
            SHARE,
            most=1,
        ),
        line(
            "GPUs without metrics",
            "Allocated GPUs that no exporter reports. Their utilization is unknown.",
            (_UNMETERED, WORKLOAD),
            unit=GPUS,
            limits=IDLE,
        ),
    ),
)
