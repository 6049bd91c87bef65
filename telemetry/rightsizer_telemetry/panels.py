"""What the dashboards show: panels and their questions."""

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
    words="Who holds the GPUs, how busy they are, which plans are late.",
    panels=(
        stat("GPUs held", "By pods and Slurm jobs.", f"sum({_GPUS})"),
        stat("GPUs busy", "GPUs times the share of time in which kernels ran.", f"sum({_BUSY_GPUS})"),
        stat("GPUs idle", "Held, and doing nothing now.", "sum(rightsizer:workload_idle_gpus:count)"),
        stat("GPUs free", "Nobody holds them.", 'count(rightsizer:gpu_busy:ratio{executor=""})'),
        stat(
            "Plans late",
            "They will miss their deadline.",
            "count(rightsizer:plan_margin:seconds < 0) or vector(0)",
        ),
        stat("GPUs saved", "Allowed by the plans and not taken.", "sum(rightsizer_plan_gpus_saved)"),
        line(
            "GPUs",
            "Held, busy and free.",
            (f"sum({_GPUS})", "held"),
            (f"sum({_BUSY_GPUS})", "busy"),
            ('count(rightsizer:gpu_busy:ratio{executor=""})', "free"),
        ),
        line(
            "Busy share",
            "Mean over the GPUs of each namespace, and of each Slurm cluster.",
            (f"sum by (executor, namespace) ({_BUSY_GPUS}) / sum by (executor, namespace) ({_GPUS})", _WHO),
            unit="percentunit",
            most=1,
        ),
        line("GPUs by namespace", "Slurm has none.", (f"sum by (executor, namespace) ({_GPUS})", _WHO)),
        line(
            "Tensor activity",
            "Share of cycles in which tensor cores worked: the nearest to MFU that GPUs report.",
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
            "Reasons of their Ready condition.",
            "rightsizer_plans > 0",
            "{{state}}",
        ),
        line("Power", "Of all metered GPUs.", ("sum(rightsizer:gpu_power:watts)", "watts"), unit="watt"),
        line(
            "Not metered",
            "GPUs that somebody holds and no exporter reports.",
            (f"sum({_UNMETERED}) or vector(0)", "GPUs"),
        ),
    ),
)

_OF_PLAN = '{namespace=~"$namespace",plan=~"$plan"}'
_OF_WORKLOAD = '{executor="kubernetes",namespace=~"$namespace",workload=~"($plan)-a[0-9]+"}'

_PLANS = Dashboard(
    uid="rightsizer-plan",
    title="rightsizer / Plan",
    words="One training: predicted against measured, the end against the deadline, size, restarts, memory.",
    variables=(
        Variable(name="namespace", metric="rightsizer:plan_gpus:count"),
        Variable(name="plan", metric="rightsizer:plan_gpus:count"),
    ),
    panels=(
        line(
            "Tokens per second",
            "Predicted when it was sized, and measured.",
            (f"rightsizer:plan_predicted:tokens_per_second{_OF_PLAN}", "predicted {{plan}}"),
            (f"rightsizer:plan_measured:tokens_per_second{_OF_PLAN}", "measured {{plan}}"),
            (f"rightsizer:train_tokens_per_second:max{_OF_PLAN}", "now {{plan}}"),
        ),
        line(
            "Tokens per second of each layout",
            "What the workers made of each way to split the work.",
            (
                f"rightsizer:plan_measured:tokens_per_second{_OF_PLAN} "
                "* on (executor, cluster, namespace, plan) group_left (layout) rightsizer:plan:info",
                "{{plan}}: {{layout}}",
            ),
        ),
        line(
            "Deadline minus expected end",
            "At the measured rate; negative: late.",
            (f"rightsizer:plan_margin:seconds{_OF_PLAN}", _PLAN),
            unit="s",
        ),
        line(
            "Progress",
            "Tokens done, of all.",
            (f"rightsizer:train_position_tokens:max{_OF_PLAN} / rightsizer:train_target_tokens:max", _PLAN),
            unit="percentunit",
            most=1,
        ),
        line(
            "Size",
            "GPUs that it is sized to, workers that train, and the attempt: each layout is a new one.",
            (f"rightsizer:plan_gpus:count{_OF_PLAN}", "GPUs {{plan}}"),
            (f"rightsizer:train_workers:max{_OF_PLAN}", "workers {{plan}}"),
            ('max by (plan) (rightsizer_plan_recommended_gpus{plan=~"$plan"})', "recommended {{plan}}"),
            ('max by (plan) (rightsizer_plan_attempt{plan=~"$plan"})', "attempt {{plan}}"),
        ),
        line(
            "Restarts",
            "Of workers, within the attempt.",
            (f"rightsizer:plan_restarts:count{_OF_PLAN}", _PLAN),
        ),
        line(
            "Step",
            "Seconds of an optimizer step.",
            (f"rightsizer:train_step_seconds:rate2m{_OF_PLAN} / rightsizer:train_steps:rate2m", _PLAN),
            unit="s",
        ),
        line(
            "Loss",
            "Of the last step, as rank 0 says.",
            ('max by (namespace, pod) (rightsizer_train_loss{namespace=~"$namespace"})', "{{pod}}"),
        ),
        line(
            "Memory",
            "Framebuffer in use on the fullest GPU, what the allocator keeps included.",
            (f"max by (workload) (rightsizer:gpu_memory_used:ratio{_OF_WORKLOAD})", "{{workload}}"),
            unit="percentunit",
            most=1,
        ),
        line(
            "GPUs at work",
            "Means over its GPUs.",
            (f"avg by (workload) (rightsizer:gpu_busy:ratio{_OF_WORKLOAD})", "busy {{workload}}"),
            (f"avg by (workload) (rightsizer:gpu_tensor_active:ratio{_OF_WORKLOAD})", "tensor {{workload}}"),
            (f"avg by (workload) (rightsizer:gpu_dram_active:ratio{_OF_WORKLOAD})", "memory {{workload}}"),
            (f"avg by (workload) (rightsizer:gpu_power:ratio{_OF_WORKLOAD})", "power {{workload}}"),
            unit="percentunit",
            most=1,
        ),
        line(
            "Where time goes",
            "Waits for data, as far as the script times them, and checkpoints.",
            (f"rightsizer:train_data_wait:ratio{_OF_PLAN}", "data {{plan}}"),
            (f"rightsizer:train_checkpoint:ratio{_OF_PLAN}", "checkpoint {{plan}}"),
            unit="percentunit",
            most=1,
        ),
        line(
            "Age of the last checkpoint",
            "What a failure costs now.",
            (f"time() - rightsizer:train_checkpoint_timestamp_seconds:max{_OF_PLAN}", _PLAN),
            unit="s",
        ),
        line(
            "Slowest against fastest GPU",
            "Spread of SM activity inside the job: a straggler shows.",
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
    words="GPUs that are held and not used, by whom. `rightsizer report` has it with prices.",
    panels=(
        line(
            "Idle GPUs",
            "By namespace; Slurm has none.",
            ("sum by (executor, namespace) (rightsizer:workload_idle_gpus:count)", _WHO),
        ),
        line(
            "Idle share",
            "Of the GPUs that each holds.",
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
            "Over the range above: mean idle GPUs times its hours.",
            "topk(15, avg_over_time(rightsizer:workload_idle_gpus:count[$__range]) * $__range_s / 3600 > 0)",
            _WORKLOAD,
        ),
        bars(
            "Least busy, 15",
            "Mean busy share over the range above.",
            "bottomk(15, avg_over_time(rightsizer:workload_busy:ratio[$__range]))",
            _WORKLOAD,
            "percentunit",
        ),
        bars(
            "Whose (Slurm)",
            "Idle GPUs by account and user, where an exporter or our daemon names them.",
            "sum by (account, user) (rightsizer:workload_idle_gpus:count"
            f" * {_ON} group_left (user, account) rightsizer:workload_owner:info)",
            "{{account}} {{user}}",
        ),
        line(
            "Power of idle GPUs",
            "What they draw all the same.",
            (
                'sum(rightsizer:gpu_power:watts{executor!=""} and rightsizer:gpu_busy:ratio < 0.01)'
                " or vector(0)",
                "watts",
            ),
            unit="watt",
        ),
        bars(
            "Memory never used",
            "Share of the memory of the fullest GPU that stayed free over the range: a smaller GPU might do.",
            "1 - max by (executor, namespace, workload) (max_over_time(rightsizer:gpu_memory_used:ratio"
            '{executor!=""}[$__range]))',
            _WORKLOAD,
            "percentunit",
        ),
        bars("Not metered", "Held, and reported by no exporter: unknown, not idle.", _UNMETERED, _WORKLOAD),
    ),
)

_OF_CLUSTER = '{cluster=~"$cluster"}'


def _slurm(name: str) -> str:
    return f"rightsizer_slurm_{name}"


_SLURM = Dashboard(
    uid="rightsizer-slurm",
    title="rightsizer / Slurm",
    words="Jobs by account, plans, what the monitor decides and whether Slurm answers it.",
    variables=(Variable(name="cluster", metric=_slurm("job_info")),),
    panels=(
        line(
            "GPUs by account",
            "Held by jobs, as far as somebody names the account.",
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
            "Held, and what the plan is sized to.",
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
            "Mean over each job's GPUs, by whatever exporter reports them.",
            ('rightsizer:workload_busy:ratio{executor="slurm",cluster=~"$cluster"}', "{{workload}}"),
            unit="percentunit",
            most=1,
        ),
        line(
            "Decisions",
            "Of the monitor, by action.",
            (f"sum by (action) (increase({_slurm('decisions_total')}{_RATE}))", "{{action}}"),
        ),
        line(
            "Slurm commands that failed",
            "",
            (f"sum by (command) (increase({_slurm('command_errors_total')}{_RATE}))", "{{command}}"),
        ),
        line(
            "The monitor's round",
            "How long a look at all jobs takes, and how old the last is.",
            (_slurm("sweep_seconds"), "takes"),
            (f"time() - {_slurm('sweep_timestamp_seconds')}", "age"),
            unit="s",
        ),
        bars(
            "Not metered",
            "GPUs that jobs hold and no exporter reports.",
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
    words="Whether the operator acts, how fast, and what the API server answers.",
    panels=(
        stat("Leaders", "Replicas that act: one.", f"sum({_operator('leads')})"),
        stat("Waiting", "Plans that wait to be looked at.", f"sum({_operator('queue')})"),
        stat("Plans", "All.", "sum(rightsizer_plans)"),
        line(
            "Time to bring a plan up to date",
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
            "And those that had to be tried again.",
            (f"sum(rate({_operator('reconcile_seconds_count')}{_RATE}))", "all"),
            (f"sum(rate({_operator('reconcile_failures_total')}{_RATE}))", "again"),
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
            "By HTTP status; 0: not reached.",
            (f"sum by (code) (rate({_operator('api_errors_total')}{_RATE}))", "{{code}}"),
            unit="reqps",
        ),
        line("Jobs created", "", (f"sum({_operator('launches_total')})", "since the start")),
        line("Resizes", "By cause.", (f"sum by (cause) ({_operator('resizes_total')})", "{{cause}}")),
        line("Plans by state", "", ("rightsizer_plans > 0", "{{state}}")),
        line("Queue", "Plans that wait to be looked at.", (f"sum({_operator('queue')})", "plans")),
    ),
)

DASHBOARDS = (_FLEET, _PLANS, _WASTE, _SLURM, _OPERATOR)
