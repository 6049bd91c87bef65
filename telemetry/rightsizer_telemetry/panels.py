"""The dashboards: panels and their queries."""

from rightsizer_telemetry.dashboard_types import Dashboard, Variable, bars, line, stat

__all__ = ["DASHBOARDS"]

_GPUS = "rightsizer:workload_gpus:count"
_BUSY_GPUS = f"rightsizer:workload_busy:ratio * {_GPUS}"
_ON = "on (executor, cluster, namespace, workload)"
_UNMETERED = f"rightsizer:workload_requested_gpus:count unless {_ON} {_GPUS}"
_RATE = "[$__rate_interval]"

_WHO = "{{executor}} {{namespace}}"
_WORKLOAD = "{{namespace}} {{workload}}"
_PLAN = "{{namespace}} {{plan}}"

_FLEET = Dashboard(
    uid="rightsizer-fleet",
    title="rightsizer / Fleet",
    description="GPU allocation and utilization; plans that are late.",
    panels=(
        stat("GPUs held", "Allocated to pods and Slurm jobs.", f"sum({_GPUS})"),
        stat("GPUs busy", "Allocated GPUs times their utilization.", f"sum({_BUSY_GPUS})"),
        stat("GPUs idle", "Allocated and idle now.", "sum(rightsizer:workload_idle_gpus:count)"),
        stat("GPUs free", "Allocated to nobody.", 'count(rightsizer:gpu_busy:ratio{executor=""})'),
        stat(
            "Plans late",
            "Plans that will miss their deadline.",
            "count(rightsizer:plan_margin:seconds < 0) or vector(0)",
        ),
        stat(
            "GPUs saved", "maxGPUs minus the GPUs in use, over all plans.", "sum(rightsizer_plan_gpus_saved)"
        ),
        line(
            "GPUs",
            "Allocated, busy and free.",
            (f"sum({_GPUS})", "held"),
            (f"sum({_BUSY_GPUS})", "busy"),
            ('count(rightsizer:gpu_busy:ratio{executor=""})', "free"),
        ),
        line(
            "Busy share",
            "Mean GPU utilization by namespace or Slurm cluster.",
            (f"sum by (executor, namespace) ({_BUSY_GPUS}) / sum by (executor, namespace) ({_GPUS})", _WHO),
            unit="percentunit",
            most=1,
        ),
        line(
            "GPUs by namespace",
            "Slurm jobs have no namespace.",
            (f"sum by (executor, namespace) ({_GPUS})", _WHO),
        ),
        line(
            "Tensor activity",
            "Share of cycles with active tensor cores: the closest GPU metric to MFU.",
            ("avg by (executor, namespace) (rightsizer:workload_tensor:ratio)", _WHO),
            unit="percentunit",
            most=1,
        ),
        bars(
            "Deadline minus expected end",
            "Negative: late.",
            "sort(rightsizer:plan_margin:seconds)",
            _PLAN,
            "s",
        ),
        bars(
            "Plans by state",
            "Reason of the Ready condition.",
            "rightsizer_plans > 0",
            "{{state}}",
        ),
        line(
            "Power",
            "Total of all GPUs with metrics.",
            ("sum(rightsizer:gpu_power:watts)", "watts"),
            unit="watt",
        ),
        line(
            "Without metrics",
            "Allocated GPUs that no exporter reports.",
            (f"sum({_UNMETERED}) or vector(0)", "GPUs"),
        ),
    ),
)

_OF_PLAN = '{namespace=~"$namespace",plan=~"$plan"}'
_OF_WORKLOAD = '{executor="kubernetes",namespace=~"$namespace",workload=~"($plan)-a[0-9]+"}'

_PLANS = Dashboard(
    uid="rightsizer-plan",
    title="rightsizer / Plan",
    description="One training: throughput, deadline, size, restarts, memory.",
    variables=(
        Variable(name="namespace", metric="rightsizer:plan_gpus:count"),
        Variable(name="plan", metric="rightsizer:plan_gpus:count"),
    ),
    panels=(
        line(
            "Tokens per second",
            "Predicted at sizing, and measured.",
            (f"rightsizer:plan_predicted:tokens_per_second{_OF_PLAN}", "predicted {{plan}}"),
            (f"rightsizer:plan_measured:tokens_per_second{_OF_PLAN}", "measured {{plan}}"),
            (f"rightsizer:train_tokens_per_second:max{_OF_PLAN}", "now {{plan}}"),
        ),
        line(
            "Tokens per second by layout",
            "Measured throughput of each layout that has run.",
            (
                f"rightsizer:plan_measured:tokens_per_second{_OF_PLAN} "
                "* on (executor, cluster, namespace, plan) group_left (layout) rightsizer:plan:info",
                "{{plan}}: {{layout}}",
            ),
        ),
        line(
            "Deadline minus expected end",
            "At the measured throughput; negative: late.",
            (f"rightsizer:plan_margin:seconds{_OF_PLAN}", _PLAN),
            unit="s",
        ),
        line(
            "Progress",
            "Tokens done as a share of all tokens.",
            (f"rightsizer:train_position_tokens:max{_OF_PLAN} / rightsizer:train_target_tokens:max", _PLAN),
            unit="percentunit",
            most=1,
        ),
        line(
            "Size",
            "GPUs of the plan, workers that train, and the attempt number. Each new layout is a new attempt.",
            (f"rightsizer:plan_gpus:count{_OF_PLAN}", "GPUs {{plan}}"),
            (f"rightsizer:train_workers:max{_OF_PLAN}", "workers {{plan}}"),
            ('max by (plan) (rightsizer_plan_recommended_gpus{plan=~"$plan"})', "recommended {{plan}}"),
            ('max by (plan) (rightsizer_plan_attempt{plan=~"$plan"})', "attempt {{plan}}"),
        ),
        line(
            "Restarts",
            "Worker restarts within the attempt.",
            (f"rightsizer:plan_restarts:count{_OF_PLAN}", _PLAN),
        ),
        line(
            "Step",
            "Seconds per optimizer step.",
            (f"rightsizer:train_step_seconds:rate2m{_OF_PLAN} / rightsizer:train_steps:rate2m", _PLAN),
            unit="s",
        ),
        line(
            "Loss",
            "Training loss of the last step, reported by rank 0.",
            ('max by (namespace, pod) (rightsizer_train_loss{namespace=~"$namespace"})', "{{pod}}"),
        ),
        line(
            "Memory",
            "GPU memory in use on the fullest GPU, including the allocator's cache.",
            (f"max by (workload) (rightsizer:gpu_memory_used:ratio{_OF_WORKLOAD})", "{{workload}}"),
            unit="percentunit",
            most=1,
        ),
        line(
            "GPU activity",
            "Mean over the plan's GPUs.",
            (f"avg by (workload) (rightsizer:gpu_busy:ratio{_OF_WORKLOAD})", "busy {{workload}}"),
            (f"avg by (workload) (rightsizer:gpu_tensor_active:ratio{_OF_WORKLOAD})", "tensor {{workload}}"),
            (f"avg by (workload) (rightsizer:gpu_dram_active:ratio{_OF_WORKLOAD})", "memory {{workload}}"),
            (f"avg by (workload) (rightsizer:gpu_power:ratio{_OF_WORKLOAD})", "power {{workload}}"),
            unit="percentunit",
            most=1,
        ),
        line(
            "Where time goes",
            "Data loading, if the script measures it, and checkpoints.",
            (f"rightsizer:train_data_wait:ratio{_OF_PLAN}", "data {{plan}}"),
            (f"rightsizer:train_checkpoint:ratio{_OF_PLAN}", "checkpoint {{plan}}"),
            unit="percentunit",
            most=1,
        ),
        line(
            "Age of the last checkpoint",
            "Work that a failure would lose now.",
            (f"time() - rightsizer:train_checkpoint_timestamp_seconds:max{_OF_PLAN}", _PLAN),
            unit="s",
        ),
        line(
            "Slowest against fastest GPU",
            "Range of SM activity within the job; shows stragglers.",
            (f"max by (workload) (rightsizer:gpu_sm_active:ratio{_OF_WORKLOAD})", "most {{workload}}"),
            (f"min by (workload) (rightsizer:gpu_sm_active:ratio{_OF_WORKLOAD})", "least {{workload}}"),
            unit="percentunit",
            most=1,
        ),
    ),
)

_WASTE = Dashboard(
    uid="rightsizer-waste",
    title="rightsizer / Waste",
    description="Allocated but unused GPUs by owner. `rightsizer report` adds prices.",
    panels=(
        line(
            "Idle GPUs",
            "By namespace; Slurm jobs have none.",
            ("sum by (executor, namespace) (rightsizer:workload_idle_gpus:count)", _WHO),
        ),
        line(
            "Idle share",
            "Share of each namespace's GPUs.",
            (
                "sum by (executor, namespace) (rightsizer:workload_idle_gpus:count)"
                f" / sum by (executor, namespace) ({_GPUS})",
                _WHO,
            ),
            unit="percentunit",
            most=1,
        ),
        bars(
            "Idle GPU-hours, worst 15",
            "Mean idle GPUs times hours of the selected range.",
            "topk(15, avg_over_time(rightsizer:workload_idle_gpus:count[$__range]) * $__range_s / 3600 > 0)",
            _WORKLOAD,
        ),
        bars(
            "Least busy, 15",
            "Mean utilization over the selected range.",
            "bottomk(15, avg_over_time(rightsizer:workload_busy:ratio[$__range]))",
            _WORKLOAD,
            "percentunit",
        ),
        bars(
            "Slurm owners",
            "Idle GPUs by account and user, if an exporter or the Slurm monitor names them.",
            "sum by (account, user) (rightsizer:workload_idle_gpus:count"
            f" * {_ON} group_left (user, account) rightsizer:workload_owner:info)",
            "{{account}} {{user}}",
        ),
        line(
            "Power of idle GPUs",
            "Power draw of GPUs that run no kernel.",
            (
                'sum(rightsizer:gpu_power:watts{executor!=""} and rightsizer:gpu_busy:ratio < 0.01)'
                " or vector(0)",
                "watts",
            ),
            unit="watt",
        ),
        bars(
            "Memory never used",
            "Share of the fullest GPU's memory never used in the range. A smaller GPU might suffice.",
            "1 - max by (executor, namespace, workload) (max_over_time(rightsizer:gpu_memory_used:ratio"
            '{executor!=""}[$__range]))',
            _WORKLOAD,
            "percentunit",
        ),
        bars(
            "Without metrics",
            "Allocated GPUs that no exporter reports. Their utilization is unknown.",
            _UNMETERED,
            _WORKLOAD,
        ),
    ),
)

_OF_CLUSTER = '{cluster=~"$cluster"}'


def _slurm(name: str) -> str:
    return f"rightsizer_slurm_{name}"


_SLURM = Dashboard(
    uid="rightsizer-slurm",
    title="rightsizer / Slurm",
    description="Jobs by account, plans, resize decisions, and the health of the Slurm monitor.",
    variables=(Variable(name="cluster", metric=_slurm("job_info")),),
    panels=(
        line(
            "GPUs by account",
            "Allocated GPUs of jobs whose account is known.",
            (
                f'sum by (account) (rightsizer:workload_gpus:count{{executor="slurm",cluster=~"$cluster"}}'
                f" * {_ON} group_left (account) max by (executor, cluster, namespace, workload, account)"
                " (rightsizer:workload_owner:info))",
                "{{account}}",
            ),
        ),
        line(
            "Jobs with a plan", "By state.", (f"sum by (state) ({_slurm('jobs')}{_OF_CLUSTER})", "{{state}}")
        ),
        line(
            "GPUs of jobs",
            "Allocated GPUs, and GPUs of the plan.",
            (f"{_slurm('job_gpus')}{_OF_CLUSTER}", "held {{jobid}}"),
            (f"{_slurm('job_sized_gpus')}{_OF_CLUSTER}", "sized {{jobid}}"),
        ),
        line("Restarts and requeues", "", (f"{_slurm('job_restarts')}{_OF_CLUSTER}", "{{jobid}}")),
        line(
            "Tokens per second",
            "Predicted and measured.",
            (f"{_slurm('job_predicted_tokens_per_second')}{_OF_CLUSTER}", "predicted {{jobid}}"),
            (f"{_slurm('job_measured_tokens_per_second')}{_OF_CLUSTER}", "measured {{jobid}}"),
        ),
        line(
            "Busy share of jobs",
            "Mean utilization of each job's GPUs.",
            ('rightsizer:workload_busy:ratio{executor="slurm",cluster=~"$cluster"}', "{{workload}}"),
            unit="percentunit",
            most=1,
        ),
        line(
            "Decisions",
            "Resize decisions by action.",
            (f"sum by (action) (increase({_slurm('decisions_total')}{_RATE}))", "{{action}}"),
        ),
        line(
            "Failed Slurm commands",
            "",
            (f"sum by (command) (increase({_slurm('command_errors_total')}{_RATE}))", "{{command}}"),
        ),
        line(
            "Monitor sweep",
            "Duration of a check of all jobs, and the age of the last one.",
            (_slurm("sweep_seconds"), "duration"),
            (f"time() - {_slurm('sweep_timestamp_seconds')}", "age"),
            unit="s",
        ),
        bars(
            "Without metrics",
            "Allocated GPUs that no exporter reports.",
            f'rightsizer:workload_requested_gpus:count{{executor="slurm"}} unless {_ON} {_GPUS} or vector(0)',
            "{{workload}}",
        ),
    ),
)


def _operator(name: str) -> str:
    return f"rightsizer_operator_{name}"


_OPERATOR = Dashboard(
    uid="rightsizer-operator",
    title="rightsizer / Operator health",
    description="Leadership, reconcile latency, and API server requests.",
    panels=(
        stat("Leaders", "Active replicas; must be 1.", f"sum({_operator('leads')})"),
        stat("Waiting", "Plans waiting for reconciliation.", f"sum({_operator('queue')})"),
        stat("Plans", "All TrainingPlans.", "sum(rightsizer_plans)"),
        line(
            "Reconcile latency",
            "",
            (
                f"histogram_quantile(0.99, sum by (le) ({_operator('reconcile_seconds_bucket')}))",
                "99 % since the start",
            ),
            (
                f"sum({_operator('reconcile_seconds_sum')}) / sum({_operator('reconcile_seconds_count')})",
                "mean since the start",
            ),
            unit="s",
        ),
        line(
            "Reconciliations",
            "All, and those that failed and are retried.",
            (f"sum(rate({_operator('reconcile_seconds_count')}{_RATE}))", "all"),
            (f"sum(rate({_operator('reconcile_failures_total')}{_RATE}))", "retried"),
            unit="reqps",
        ),
        line(
            "Requests to the API server",
            "By method.",
            (f"sum by (method) (rate({_operator('api_requests_total')}{_RATE}))", "{{method}}"),
            unit="reqps",
        ),
        line(
            "Failed requests",
            "By HTTP status; 0: API server unreachable.",
            (f"sum by (code) (rate({_operator('api_errors_total')}{_RATE}))", "{{code}}"),
            unit="reqps",
        ),
        line("Jobs created", "", (f"sum({_operator('launches_total')})", "since the start")),
        line("Resizes", "By cause.", (f"sum by (cause) ({_operator('resizes_total')})", "{{cause}}")),
        line("Plans by state", "", ("rightsizer_plans > 0", "{{state}}")),
        line("Queue", "Plans waiting for reconciliation.", (f"sum({_operator('queue')})", "plans")),
    ),
)

DASHBOARDS = (_FLEET, _PLANS, _WASTE, _SLURM, _OPERATOR)
