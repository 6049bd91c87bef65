"""The JSON of `rightsizer report`. Null is unknown, which is not 0; GPU-hours are of the window."""

from pydantic import Field

from rightsizer_api.base import Model


class OwnerDocument(Model):
    """The sums of one namespace or account."""

    executor: str = Field(description="kubernetes or slurm.")
    name: str = Field(description="The namespace or account.")
    workloads: int = Field(description="Its workloads.")
    held_gpu_h: float = Field(alias="heldGPUHours", description="GPU-hours held.")
    used_gpu_h: float | None = Field(alias="usedGPUHours", description="GPU-hours in which kernels ran.")
    idle_gpu_h: float | None = Field(alias="idleGPUHours", description="GPU-hours of idle GPUs.")
    unmetered_gpu_h: float = Field(alias="unmeteredGPUHours", description="GPU-hours held, not measured.")
    idle_usd: float | None = Field(description="What the idle GPU-hours cost.")


class WorkloadDocument(Model):
    """One workload."""

    executor: str = Field(description="kubernetes or slurm.")
    cluster: str = Field(description="The cluster; empty: unnamed.")
    namespace: str = Field(description="The namespace; empty on Slurm.")
    workload: str = Field(description="Its name.")
    plan: str = Field(description="The TrainingPlan; empty: none.")
    user: str = Field(description="The user; empty: unknown.")
    account: str = Field(description="The account; empty: unknown.")
    models: tuple[str, ...] = Field(description="GPU models, as the exporter names them.")
    gpus: int = Field(description="GPUs held now.")
    peak_gpus: int = Field(description="The most GPUs held.")
    held_gpu_h: float = Field(alias="heldGPUHours", description="GPU-hours held.")
    used_gpu_h: float | None = Field(alias="usedGPUHours", description="GPU-hours in which kernels ran.")
    idle_gpu_h: float | None = Field(alias="idleGPUHours", description="GPU-hours of idle GPUs.")
    busy_max: float | None = Field(description="The busiest GPU's share of time with kernels.")
    tensor_active: float | None = Field(description="Share of time in which tensor cores ran.")
    memory_used_max: float | None = Field(description="The fullest GPU's share of memory.")
    price_usd_per_gpu_h: float | None = Field(alias="priceUSDPerGPUHours", description="US dollars.")
    owner: str = Field(description="The namespace or account.")
    busy_mean: float | None = Field(description="Share of the held time in which kernels ran.")
    idle_usd: float | None = Field(description="What the idle GPU-hours cost.")
    needs_gpus: int | None = Field(description="GPUs that would do the same work, well used; 0: idle.")


class UsageDocument(Model):
    """The holders of GPUs, with their numbers and use."""

    at: str = Field(description="The end of the window, ISO 8601.")
    window_s: float = Field(description="The length of the window, seconds.")
    covered_s: float = Field(description="Seconds of it that the metrics cover.")
    read_from: str = Field(description="rules, or raw series.")
    notes: tuple[str, ...] = Field(description="What limits the figures.")
    free_gpu_h: float | None = Field(alias="freeGPUHours", description="GPU-hours that nobody held.")
    owners: tuple[OwnerDocument, ...] = Field(description="The owners.")
    workloads: tuple[WorkloadDocument, ...] = Field(description="The workloads.")


class NoDataDocument(Model):
    """The metrics server knows nothing (exit code 4)."""

    no_data: str = Field(description="What it lacks.")
    remedy: str = Field(description="What to do.")
