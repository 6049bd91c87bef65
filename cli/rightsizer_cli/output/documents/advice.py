"""The JSON of `rightsizer advise`."""

from typing import Annotated

from pydantic import ConfigDict, Field, Strict

from rightsizer_api.base import Model
from rightsizer_engine.resize.types import Action


class ExistingJobDocument(Model):
    """A running job as it was found."""

    model_config = ConfigDict(alias_generator=None)

    name: str = Field(description="Its name.")
    gpus: int = Field(description="Its GPUs.")
    gpu: str = Field(description="The GPU type; empty: unknown.")
    gpus_per_node: int = Field(description="GPUs in a node; 0: unknown.")
    started_s: float = Field(description="When it started, seconds since the epoch; 0: unknown.")
    plan: str = Field(description="The words of its comment; empty: none.")


class MeasuredDocument(Model):
    """The measurements of the job."""

    model_config = ConfigDict(alias_generator=None)

    gpus: int = Field(description="Its GPUs.")
    tokens_per_s: float = Field(description="Its rate.")
    tokens_done: float = Field(description="Tokens trained.")
    window_s: float = Field(description="The time over which the rate was measured, seconds.")
    checkpoint_interval_s: float = Field(description="Seconds between checkpoints.")
    deadline_left_s: float | None = Field(description="Seconds to the deadline; null: none.")
    confidence: float = Field(description="Probability with which the deadline must hold.")


class SizeDocument(Model):
    """A size that was compared."""

    gpus: int = Field(description="GPUs.")
    tokens_per_second: float = Field(description="Expected rate of the whole job.")
    goodput: float = Field(description="Fraction of wall time spent training.")
    layout: str = Field(description="The layout, abbreviated; empty: the present one.")


class AdviceDocument(Model):
    """Advice for a running job on its GPUs. Times are in seconds."""

    job: ExistingJobDocument = Field(description="The job as found.")
    action: Action = Field(description="What to do.")
    gpus: int = Field(description="The GPUs that it should have.")
    reason: str = Field(description="Why, in one sentence.")
    evidence: tuple[str, ...] = Field(description="The measurements behind it.")
    tokens_left: float = Field(description="Tokens still to train on.")
    measured: MeasuredDocument = Field(description="What is known of the job.")
    measured_to_predicted: float = Field(description="Measured rate / predicted rate.")
    assumed: Annotated[tuple[str, ...], Strict(False)] = Field(
        description="Where each figure was taken from."
    )
    sizes: tuple[SizeDocument, ...] = Field(description="The sizes compared, the fewest GPUs first.")
