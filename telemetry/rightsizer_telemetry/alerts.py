"""The alert rules; each has a page of the same name under docs/runbooks."""

from importlib import metadata

from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.values import immutable
from rightsizer_telemetry.rules import INTERVAL_S

RUNBOOKS = "docs/runbooks"
MEMORY_FULL, CHECKPOINT_OLD_S, SILENT_S = 0.97, 4 * 3600, 600
"""Thresholds that the dashboards show too."""
_POLICY = load_resize()
"""The resize policy's thresholds, so that alerts and resize decisions agree."""


def runbooks() -> str:
    """The address of the runbooks' folder: `project.urls` of pyproject.toml names the repository."""
    urls = dict(url.split(", ", 1) for url in metadata.metadata("rightsizer").get_all("Project-URL", []))
    return f"{urls['Source']}/blob/main/{RUNBOOKS}"


@immutable
class Alert:
    """One alert: its expression, how long it must hold, its texts."""

    name: str
    expr: str
    hold: str
    severity: str
    summary: str
    description: str

    def document(self) -> dict[str, object]:
        """The alert as a rule file holds it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.hold,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{runbooks()}/{self.name}.md",
            },
        }


def _samples(window_s: float) -> int:
    """The fewest samples of one GPU for which a window is judged."""
    return int(_POLICY.least_coverage * window_s / INTERVAL_S)


_HOLDER = "on (executor, cluster, namespace, workload)"
_WORKLOAD = "{{ $labels.executor }} workload {{ $labels.namespace }}/{{ $labels.workload }}"
_PLAN = "plan {{ $labels.namespace }}/{{ $labels.plan }} ({{ $labels.executor }})"
_BUSY = 'rightsizer:gpu_busy:ratio{executor!=""}'
_EACH = "by (executor, cluster, namespace, workload)"

ALERTS = (
    Alert(
        name="RightsizerGPUsIdle",
        expr=(
            f"max {_EACH} (max_over_time({_BUSY}[30m])) < {_POLICY.idle_busy:g}\n"
            f"and {_HOLDER} max {_EACH} (count_over_time({_BUSY}[30m])) >= {_samples(1800)}\n"
            f"unless {_HOLDER} max {_EACH} (max_over_time(rightsizer:gpu_power:ratio[30m]))"
            f" > {_POLICY.idle_power_veto:g}"
        ),
        hold="5m",
        severity="warning",
        summary=f"{_WORKLOAD} holds idle GPUs",
        description=(
            "Over 30 minutes its busiest GPU was busy at most {{ $value | humanizePercentage }} of the time, "
            "and no GPU drew more than idle power."
        ),
    ),
    Alert(
        name="RightsizerGPUsUnderused",
        expr=(
            f"avg {_EACH} (avg_over_time({_BUSY}[2h])) < {_POLICY.low_busy:g}\n"
            f"and {_HOLDER} max {_EACH} (max_over_time({_BUSY}[30m])) >= {_POLICY.idle_busy:g}\n"
            f"and {_HOLDER} max {_EACH} (count_over_time({_BUSY}[2h])) >= {_samples(7200)}"
        ),
        hold="30m",
        severity="info",
        summary=f"{_WORKLOAD} uses its GPUs less than half of the time",
        description="Mean utilization over 2 hours: {{ $value | humanizePercentage }}.",
    ),
    Alert(
        name="RightsizerGPUsUnmetered",
        expr=(
            f"rightsizer:workload_requested_gpus:count > 0\nunless {_HOLDER} rightsizer:workload_gpus:count"
        ),
        hold="15m",
        severity="info",
        summary=f"no GPU metrics for {_WORKLOAD}",
        description=(
            "It holds {{ $value }} GPUs and no exporter reports their utilization. "
            "Missing data never triggers a resize."
        ),
    ),
    Alert(
        name="RightsizerMemoryNearlyFull",
        expr=(
            "max by (executor, cluster, namespace, workload) "
            f'(rightsizer:gpu_memory_used:ratio{{executor!=""}}) > {MEMORY_FULL}'
        ),
        hold="15m",
        severity="info",
        summary=f"{_WORKLOAD} has nearly filled a GPU's memory",
        description=(
            "{{ $value | humanizePercentage }} of the fullest GPU's memory is in use, including the "
            "allocator's cache. An out-of-memory error is possible."
        ),
    ),
    Alert(
        name="RightsizerPlanLate",
        expr="rightsizer:plan_margin:seconds < 0",
        hold="15m",
        severity="warning",
        summary=f"{_PLAN} will miss its deadline",
        description="Deadline minus expected end: {{ $value | humanizeDuration }}; it may be blocked.",
    ),
    Alert(
        name="RightsizerPlanSlow",
        expr=(
            "rightsizer:plan_measured:tokens_per_second"
            " / (rightsizer:plan_predicted:tokens_per_second > 0) < 0.7"
        ),
        hold="30m",
        severity="warning",
        summary=f"{_PLAN} trains slower than predicted",
        description="Measured throughput is {{ $value | humanizePercentage }} of the prediction.",
    ),
    Alert(
        name="RightsizerTrainingStalled",
        expr=(
            "max_over_time(rightsizer:train_position_tokens:max[30m])"
            " - min_over_time(rightsizer:train_position_tokens:max[30m]) == 0\n"
            "and (rightsizer:train_position_tokens:max < rightsizer:train_target_tokens:max)\n"
            "and count_over_time(rightsizer:train_position_tokens:max[30m])"
            f" >= {_samples(1800)}"
        ),
        hold="5m",
        severity="critical",
        summary="training {{ $labels.namespace }}/{{ $labels.workload }} is stalled",
        description="Its workers respond but have trained on no token for 30 minutes.",
    ),
    Alert(
        name="RightsizerTrainingRestarts",
        expr="max by (executor, cluster, namespace, plan) (delta(rightsizer:plan_restarts:count[30m])) > 3",
        hold="0m",
        severity="warning",
        summary=f"{_PLAN} restarts repeatedly",
        description="{{ $value | humanize }} worker restarts in 30 minutes.",
    ),
    Alert(
        name="RightsizerCheckpointOld",
        expr=f"time() - (rightsizer:train_checkpoint_timestamp_seconds:max > 0) > {CHECKPOINT_OLD_S}",
        hold="5m",
        severity="warning",
        summary="training {{ $labels.namespace }}/{{ $labels.workload }} has an old checkpoint",
        description="The last checkpoint is {{ $value | humanizeDuration }} old. A failure loses that work.",
    ),
    Alert(
        name="RightsizerLossNotFinite",
        expr=(
            "count by (namespace, exported_namespace, pod, exported_pod, jobid) "
            "(rightsizer_train_loss != rightsizer_train_loss or abs(rightsizer_train_loss) == Inf)"
        ),
        hold="5m",
        severity="critical",
        summary="a training's loss is NaN or infinite",
        description="{{ $labels.namespace }} {{ $labels.pod }}{{ $labels.jobid }} reports a non-finite loss.",
    ),
    Alert(
        name="RightsizerOperatorWithoutLeader",
        expr=(
            "sum(rightsizer_operator_leads) < 1\n"
            "or (absent(rightsizer_operator_leads) and on () count(rightsizer_plans offset 30m))"
        ),
        hold="5m",
        severity="critical",
        summary="no rightsizer operator is active",
        description="Plans are neither started nor resized. Running jobs continue.",
    ),
    Alert(
        name="RightsizerOperatorFailing",
        expr="60 * rate(rightsizer_operator_reconcile_failures_total[15m]) > 3",
        hold="15m",
        severity="warning",
        summary="the rightsizer operator fails repeatedly",
        description="{{ $value | humanize }} reconciliations per minute fail and are retried.",
    ),
    Alert(
        name="RightsizerSlurmMonitorSilent",
        expr=f"time() - rightsizer_slurm_sweep_timestamp_seconds > {SILENT_S}",
        hold="5m",
        severity="warning",
        summary="the Slurm monitor does not check its jobs",
        description="Its last complete check is {{ $value | humanizeDuration }} old.",
    ),
    Alert(
        name="RightsizerSlurmCommandsFail",
        expr="sum by (instance, command) (increase(rightsizer_slurm_command_errors_total[30m])) > 5",
        hold="0m",
        severity="warning",
        summary="Slurm does not answer the Slurm monitor",
        description="{{ $value | humanize }} {{ $labels.command }} calls failed in 30 minutes.",
    ),
)


def document() -> dict[str, object]:
    """The rule file of all alerts."""
    return {"groups": [{"name": "rightsizer-alerts", "rules": [alert.document() for alert in ALERTS]}]}
