"""The JSON of `rightsizer slurm report`. Null is unknown, or none."""

from pydantic import Field

from rightsizer_api.base import Model
from rightsizer_engine.resize.types import Action


class GpuJobDocument(Model):
    """One GPU job, and what the resize policy says of it."""

    job_id: int = Field(description="The job.")
    user: str = Field(description="Its owner.")
    state: str = Field(description="Slurm's base state.")
    partition: str = Field(description="Its partition.")
    nodes: int = Field(description="Nodes allocated, or requested while it is pending.")
    gpus: int = Field(description="GPUs of all nodes.")
    plan: str | None = Field(description="Its TrainingPlan.")
    note: str | None = Field(description="Why it is not judged.")
    step: int | None = Field(description="Optimizer steps done.")
    tokens: float | None = Field(description="Tokens done.")
    tokens_per_second: float | None = Field(description="Measured rate.")
    checkpoint_age_seconds: float | None = Field(description="Age of the last complete checkpoint.")
    action: Action = Field(description="What to do.")
    wants_gpus: int = Field(alias="wantsGpus", description="The GPUs that it should have.")
    act: bool = Field(description="Whether the monitor would do it.")
    withheld: str | None = Field(description="Why not.")
    reason: str = Field(description="Why, in one sentence.")
    evidence: tuple[str, ...] = Field(description="The measurements behind it.")
    bottleneck: str = Field(description="What limits the rate.")
    confidence: float | None = Field(description="Probability of meeting the deadline at the new size.")


class ResizeDocument(Model):
    """One resize of the monitor."""

    job_id: int = Field(description="The job.")
    kind: str = Field(description="grow, shrink or another kind.")
    from_nodes: int = Field(description="Nodes before.")
    to_nodes: int = Field(description="Nodes after.")
    stage: str = Field(description="How far it is.")
    why: str = Field(description="Why it began.")
    said: str = Field(description="How it ended; empty: not yet.")
    began_seconds: float = Field(description="When it began, seconds since the epoch.")


class ReportDocument(Model):
    """The GPU jobs that you may see, and the monitor's last resizes."""

    jobs: tuple[GpuJobDocument, ...] = Field(description="The jobs.")
    resizes: tuple[ResizeDocument, ...] = Field(description="The resizes.")
