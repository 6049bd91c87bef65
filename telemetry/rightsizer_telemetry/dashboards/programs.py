"""The pages of our own programs: the Slurm monitor with its jobs, and the operator."""

from rightsizer_telemetry.dashboards.fleet import ON
from rightsizer_telemetry.dashboards.parts import (
    BAD,
    BUSY,
    GPUS,
    IDLE,
    MEMBER,
    SHARE,
    SILENT,
    TOKENS,
    Dashboard,
    bars,
    line,
    of,
    of_program,
    stat,
)

_RATE = "[$__rate_interval]"
_ON_SLURM = 'executor="slurm"'
_SLURM_GPUS = of("rightsizer:workload_gpus:count", _ON_SLURM)


def _job(name: str) -> str:
    return of(f"rightsizer_slurm_{name}")


def _monitor(name: str) -> str:
    return of_program(f"rightsizer_slurm_{name}")


_ACCOUNT = (
    f"* {ON} group_left (account) max by (executor, cluster, namespace, workload, account) "
    f"({of('rightsizer:workload_owner:info')})"
)
_SILENCE = f"clamp_min(time() - {_monitor('sweep_timestamp_seconds')}, 0)"

SLURM = Dashboard(
    uid="rightsizer-slurm",
    title="rightsizer / Slurm",
    description="Jobs by account, plans, resize decisions, and the health of the Slurm monitor.",
    panels=(
        line(
            "GPUs by account",
            "Allocated GPUs of jobs whose account is known.",
            (f"sum by (account) ({_SLURM_GPUS} {_ACCOUNT})", "{{account}}"),
            unit=GPUS,
        ),
        line("Jobs with a plan", "By state.", (f"sum by (state) ({_job('jobs')})", "{{state}}")),
        line(
            "GPUs of jobs",
            "Allocated GPUs, and GPUs of the plan.",
            (_job("job_gpus"), "held {{jobid}}"),
            (_job("job_sized_gpus"), "sized {{jobid}}"),
            unit=GPUS,
        ),
        line("Restarts and requeues", "Since the submission.", (_job("job_restarts"), "{{jobid}}")),
        line(
            "Tokens per second",
            "Predicted and measured.",
            (_job("job_predicted_tokens_per_second"), "predicted {{jobid}}"),
            (_job("job_measured_tokens_per_second"), "measured {{jobid}}"),
            unit=TOKENS,
        ),
        line(
            "Busy share of jobs",
            "Mean utilization of each job's GPUs.",
            (of("rightsizer:workload_busy:ratio", _ON_SLURM), "{{workload}}"),
            unit=SHARE,
            most=1,
            limits=BUSY,
        ),
        line(
            "Decisions",
            "Resize decisions of the last hour, by action.",
            (f"sum by (action) (increase({_monitor('decisions_total')}[1h]))", "{{action}}"),
        ),
        line(
            "Failed Slurm commands",
            "Failures and timeouts of the last hour, by command.",
            (f"sum by (command) (increase({_monitor('command_errors_total')}[1h]))", "{{command}}"),
            limits=BAD,
        ),
        line("Duration of a check", "Of all jobs.", (_monitor("sweep_seconds"), "duration"), unit="s"),
        line("Age of the last check", "Of all jobs.", (_SILENCE, "age"), unit="s", limits=SILENT),
        bars(
            "GPUs without metrics",
            "Allocated GPUs that no exporter reports.",
            f"{of('rightsizer:workload_requested_gpus:count', _ON_SLURM)} unless {ON} {_SLURM_GPUS}"
            " or vector(0)",
            "{{workload}}",
            GPUS,
            limits=IDLE,
        ),
    ),
)


def _operator(name: str) -> str:
    return of_program(f"rightsizer_operator_{name}")


_TIME, _ALL = _operator("reconcile_seconds_sum"), _operator("reconcile_seconds_count")
_P99 = f"histogram_quantile(0.99, sum by (le) ({_operator('reconcile_seconds_bucket')}))"
_RETRIES = f"round(sum(increase({_operator('reconcile_failures_total')}[1h])))"
_FAILURES = f"round(sum(increase({_operator('api_errors_total')}[1h]))) or vector(0)"

OPERATOR = Dashboard(
    uid="rightsizer-operator",
    title="rightsizer / Operator health",
    description="Leadership, reconcile latency, and API server requests.",
    panels=(
        stat(
            "Leaders", "Active replicas; must be 1 per cluster.", f"sum({_operator('leads')})", limits=MEMBER
        ),
        stat("Waiting", "Plans waiting for reconciliation.", f"sum({_operator('queue')})"),
        stat("Plans", "All TrainingPlans.", f"sum({of_program('rightsizer_plans')})"),
        stat("Jobs created", "Since the start.", f"sum({_operator('launches_total')})"),
        stat("Retries", "Failed reconciliations of the last hour.", _RETRIES, limits=IDLE),
        stat("Failed requests", "To the API server, in the last hour.", _FAILURES, limits=IDLE),
        line(
            "Reconcile latency",
            "Since the start of the operator.",
            (_P99, "99 %"),
            (f"sum({_TIME}) / sum({_ALL})", "mean"),
            unit="s",
        ),
        line(
            "Reconciliations",
            "All, and those that failed and are retried.",
            (f"sum(rate({_ALL}{_RATE}))", "all"),
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
        line("Resizes", "By cause.", (f"sum by (cause) ({_operator('resizes_total')})", "{{cause}}")),
        line(
            "Plans by state",
            "Reason of the Ready condition.",
            (f"{of_program('rightsizer_plans')} > 0", "{{state}}"),
        ),
        line("Queue", "Plans waiting for reconciliation.", (f"sum({_operator('queue')})", "plans")),
    ),
)
