"""Every metric of ours, with its help text: the agent's, the operator's, Slurm's, and the recorded families.

Dashboards, rules and alerts may name nothing else of ours; a test holds them and the programs to these lists.
"""

from collections.abc import Mapping

HOLDER = ("executor", "cluster", "namespace", "workload")
"""Labels that name who holds a GPU. `executor`: kubernetes, slurm, or empty for a GPU that nobody holds.

`cluster`: as the exporter or the external labels say, else empty. `namespace`: of the pod; empty on Slurm.
`workload`: what owns the pod (a Job, a StatefulSet, ...; read off the pod's name), or Slurm's job id.
"""

AGENT: Mapping[str, str] = {
    "rightsizer_train_tokens_total": (
        "Tokens processed by this process, those of steps that are later repeated included"
    ),
    "rightsizer_train_position_tokens": "Tokens of the training done so far",
    "rightsizer_train_target_tokens": "Tokens of the whole training",
    "rightsizer_train_step": "Optimizer steps done so far",
    "rightsizer_train_step_seconds": "Duration of the optimizer steps of this process (sum and count)",
    "rightsizer_train_tokens_per_second": "Tokens per second of the whole job over the last steps",
    "rightsizer_train_loss": "Training loss of the last step",
    "rightsizer_train_workers": "Workers in the current world",
    "rightsizer_train_restarts": "Times torchrun restarted the workers within this attempt",
    "rightsizer_train_checkpoint_timestamp_seconds": "Unix time of the last checkpoint",
    "rightsizer_train_checkpoint_position_tokens": "Tokens done at the last checkpoint",
    "rightsizer_train_checkpoint_seconds_total": "Seconds that this process spent in checkpoints",
    "rightsizer_train_data_wait_seconds_total": (
        "Seconds that this process waited for data, as far as the script times it"
    ),
    "rightsizer_train_phase": "1 for what the training does now, 0 for the other phases",
}
"""What rank 0 of a training serves (`rightsizer_launch.worker.metrics`)."""

OPERATOR: Mapping[str, str] = {
    "rightsizer_operator_reconcile_seconds": "Time to bring one plan up to date (histogram)",
    "rightsizer_operator_api_requests_total": "Requests to the API server, by method",
    "rightsizer_operator_api_errors_total": "Requests that failed, by HTTP status; 0: not reached",
    "rightsizer_operator_reconcile_failures_total": "Plans that had to be tried again",
    "rightsizer_operator_faults_total": "Faults of the operator in one plan, which is tried again",
    "rightsizer_operator_launches_total": "Jobs created",
    "rightsizer_operator_events_dropped_total": "Events that could not be written",
    "rightsizer_operator_resizes_total": "Changes of size or layout, by cause",
    "rightsizer_operator_leads": "1 where this replica acts",
    "rightsizer_operator_queue": "Plans that wait to be looked at",
    "rightsizer_plans": "Plans by state",
    "rightsizer_plan_info": "1; how the work is split and on which type of GPU, as labels",
    "rightsizer_plan_gpus": "GPUs that the plan is sized to",
    "rightsizer_plan_gpus_saved": "GPUs of spec.resources.maxGPUs that the plan does not take",
    "rightsizer_plan_predicted_tokens_per_second": "Throughput as predicted",
    "rightsizer_plan_measured_tokens_per_second": "Throughput as the workers report it",
    "rightsizer_plan_margin_seconds": "Deadline minus expected end; negative: late",
    "rightsizer_plan_recommended_gpus": "GPUs that its measured pace asks for",
    "rightsizer_plan_attempt": "Number of the current attempt",
    "rightsizer_plan_restarts": "Restarts of workers within the attempt",
}
"""What the operator serves (`rightsizer_operator.runtime.plan_metrics`)."""

SLURM: Mapping[str, str] = {
    "rightsizer_slurm_job_info": "1 for each live GPU job; who and where as labels",
    "rightsizer_slurm_job_gpus": "GPUs that the job holds",
    "rightsizer_slurm_job_sized_gpus": "GPUs that its plan is sized to; only where the job has a plan",
    "rightsizer_slurm_job_predicted_tokens_per_second": "Throughput as predicted",
    "rightsizer_slurm_job_measured_tokens_per_second": "Throughput as the agent in the job reports it",
    "rightsizer_slurm_job_restarts": "Restarts and requeues of the job so far",
    "rightsizer_slurm_job_margin_seconds": "Deadline minus expected end; negative: late",
    "rightsizer_slurm_job_layout": "1; how a job with a plan splits its work, and its GPUs' type, as labels",
    "rightsizer_slurm_jobs": "Jobs with a plan, by Slurm's state",
    "rightsizer_slurm_unsized_jobs": "Live GPU jobs that rightsizer has not sized",
    "rightsizer_slurm_requests_total": "Requests of submit plugins, by the daemon's verdict (HOLD: held)",
    "rightsizer_slurm_decisions_total": "Decisions of the monitor, by action",
    "rightsizer_slurm_command_errors_total": "Slurm commands that failed or ran out of time, by command",
    "rightsizer_slurm_sweep_timestamp_seconds": "Unix time of the last complete look at all jobs",
    "rightsizer_slurm_sweep_seconds": "How long that look took",
    "rightsizer_slurm_held_jobs": "Jobs that the daemon holds until they are sized",
    "rightsizer_slurm_release_timestamp_seconds": "Unix time of the last complete round of releases",
    "rightsizer_slurm_release_failures_total": "Rounds of releases that failed",
}
"""What the Slurm monitor says (`rightsizer_slurm.monitor.metrics`), and the daemon (`submit.releases`)."""

SLURM_LABELS: Mapping[str, tuple[str, ...]] = {
    "rightsizer_slurm_job_info": ("cluster", "jobid", "user", "account", "partition", "plan"),
    "rightsizer_slurm_job_layout": ("cluster", "jobid", "layout", "gpu_type"),
    "rightsizer_slurm_jobs": ("cluster", "state"),
    "rightsizer_slurm_unsized_jobs": ("cluster",),
    "rightsizer_slurm_requests_total": ("verdict",),
    "rightsizer_slurm_decisions_total": ("action",),
    "rightsizer_slurm_command_errors_total": ("command",),
    "rightsizer_slurm_sweep_timestamp_seconds": (),
    "rightsizer_slurm_sweep_seconds": (),
    "rightsizer_slurm_held_jobs": (),
    "rightsizer_slurm_release_timestamp_seconds": (),
    "rightsizer_slurm_release_failures_total": (),
}
"""Labels of Slurm's metrics; those of one job that are not listed carry `cluster` and `jobid`."""

RECORDED: Mapping[str, str] = {
    "rightsizer:gpu_busy:ratio": "Share of time in which any kernel ran, of one GPU or MIG instance",
    "rightsizer:gpu_sm_active:ratio": "Share of time in which an SM had a warp, mean over SMs",
    "rightsizer:gpu_tensor_active:ratio": "Share of cycles in which the tensor pipe was active",
    "rightsizer:gpu_dram_active:ratio": "Share of cycles in which the memory interface moved data",
    "rightsizer:gpu_memory_used:bytes": "Framebuffer in use, what an allocator keeps included",
    "rightsizer:gpu_memory_used:ratio": "Framebuffer in use, of all there is",
    "rightsizer:gpu_power:watts": "Power draw",
    "rightsizer:gpu_power:ratio": "Power draw over the catalog's TDP; only for GPUs that the catalog knows",
    "rightsizer:workload_gpus:count": "GPUs that one workload holds",
    "rightsizer:workload_busy:ratio": "Mean share of busy time over a workload's GPUs",
    "rightsizer:workload_busy:max": "Share of busy time of a workload's busiest GPU",
    "rightsizer:workload_idle_gpus:count": "GPUs of a workload that are idle at the moment",
    "rightsizer:workload_tensor:ratio": "Mean tensor activity over a workload's GPUs",
    "rightsizer:workload_owner:info": "1; user and account of a Slurm job as labels",
    "rightsizer:workload_requested_gpus:count": "GPUs that a workload asks for, whether metered or not",
    "rightsizer:train_tokens_per_second:max": "Tokens per second of one training, as it says",
    "rightsizer:train_position_tokens:max": "Tokens that one training has done",
    "rightsizer:train_target_tokens:max": "Tokens of one whole training",
    "rightsizer:train_step:max": "Optimizer steps that one training has done",
    "rightsizer:train_workers:max": "Workers of one training",
    "rightsizer:train_loss:max": "Loss of the last step of one training",
    "rightsizer:train_checkpoint_timestamp_seconds:max": "Unix time of a training's last checkpoint",
    "rightsizer:train_tokens:rate2m": "Tokens that a training adds a second, whatever it does",
    "rightsizer:train_steps:rate2m": "Optimizer steps a second",
    "rightsizer:train_step_seconds:rate2m": "Share of time inside optimizer steps",
    "rightsizer:train_data_wait:ratio": "Share of time waiting for data",
    "rightsizer:train_checkpoint:ratio": "Share of time in checkpoints",
    "rightsizer:train_phase:info": "1 for what a training does, as label phase",
    "rightsizer:plan_gpus:count": "GPUs that a plan is sized to, on either executor",
    "rightsizer:plan_predicted:tokens_per_second": "Throughput of a plan as predicted",
    "rightsizer:plan_measured:tokens_per_second": "Throughput of a plan as measured",
    "rightsizer:plan_margin:seconds": "Deadline minus expected end of a plan; negative: late",
    "rightsizer:plan:info": "1; how a plan's work is split, as label layout",
    "rightsizer:plan_restarts:count": "Restarts of a plan's workers",
    "rightsizer:gpu_by_source:raw": "Every signal of every source in its own unit, labels source and signal",
    "rightsizer:gpu:raw": "The same, of one source for each GPU",
}
"""What the recording rules make, each with the labels HOLDER and, for one GPU, those of the device."""

OURS: Mapping[str, str] = {**AGENT, **OPERATOR, **SLURM, **RECORDED}


def series(name: str) -> tuple[str, ...]:
    """The series of a metric as queries name them: a histogram's or summary's parts instead of its name."""
    help_text = OURS[name]
    if "(histogram)" in help_text:
        return (f"{name}_bucket", f"{name}_sum", f"{name}_count")
    if "(sum and count)" in help_text:
        return (f"{name}_sum", f"{name}_count")
    return (name,)
