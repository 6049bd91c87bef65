"""The JSON of `rightsizer simulate`."""

from pydantic import Field

from rightsizer_api.base import Model


class PolicyDocument(Model):
    """A trace under one policy."""

    gpu_hours: float = Field(description="GPU-hours held.")
    missed_deadlines: int = Field(description="Jobs that end after their deadline.")
    mean_lateness_seconds: float = Field(description="Their mean lateness; 0: none is late.")
    queue_mean_seconds: float = Field(description="Mean wait in the queue.")
    resizes: int = Field(description="Resizes.")
    restart_gpu_hours: float = Field(description="GPU-hours held during restarts.")
    decisions: dict[str, int] = Field(description="Decisions by action.")
    gpu_hours_change: float = Field(description="GPU-hours against static requests: -0.1 is 10 % fewer.")


class AssumptionCase(Model):
    """One assumption on what the trace lacks."""

    assumption: str = Field(description="The assumption.")
    policies: dict[str, PolicyDocument] = Field(description="The outcome under each policy.")


class SimulationDocument(Model):
    """A trace of jobs, replayed under several policies and assumptions."""

    trace: str = Field(description="The trace.")
    jobs: int = Field(description="Its jobs.")
    jobs_with_deadline: int = Field(description="Those with a deadline.")
    cluster_gpus: int = Field(description="GPUs of the cluster.")
    seed: int = Field(description="Seed of all random draws.")
    policy: str = Field(description="The policy of rightsizer among the policies.")
    gpu_hours_change: tuple[float, float] = Field(description="The least and the most over the assumptions.")
    missed_deadlines_avoided: tuple[int, int] = Field(
        description="The fewest and the most over the assumptions."
    )
    worse_on_both: tuple[tuple[str, str], ...] = Field(
        description="(assumption, policy) that needs fewer GPU-hours and misses fewer deadlines."
    )
    not_better: tuple[tuple[str, str], ...] = Field(
        description="(assumption, policy) that rightsizer beats in neither."
    )
    assumptions: dict[str, str] = Field(description="What the replay assumes, by topic.")
    cases: tuple[AssumptionCase, ...] = Field(description="One for each assumption.")
