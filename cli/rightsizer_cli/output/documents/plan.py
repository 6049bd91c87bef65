"""The JSON of `rightsizer plan`: the report, its levers, and what its options add."""

from typing import Annotated

from pydantic import Field, Strict

from rightsizer_api.base import Model
from rightsizer_api.report import LeverReport, PlanReport
from rightsizer_engine.estimate.ownership import Assumption


class OfferDocument(Model):
    """One way to have the GPUs."""

    name: str = Field(description="on demand, reserved, spot or owned.")
    usd_per_gpu_hour: float = Field(description="US dollars for a GPU-hour.")
    finish_seconds: float = Field(description="Wall time of this plan.")
    cost_usd: float = Field(description="Cost of this plan alone.")
    stream_cost_usd: float = Field(description="Cost of this plan in a stream of such plans.")
    pays_from_gpu_hours_a_year: float | None = Field(
        alias="paysFromGPUHoursAYear",
        description="GPU-hours a year from which it costs less than on demand; null: never.",
    )


class OwnershipDocument(Model):
    """Rent or buy."""

    gpus: int = Field(description="GPUs compared.")
    purchase_usd: float = Field(description="What they cost to buy.")
    jobs_a_year: float = Field(description="Such plans a year in the stream.")
    owned_pays_from_jobs_a_year: float | None = Field(
        description="Such plans a year from which owning pays; null: never."
    )
    offers: tuple[OfferDocument, ...] = Field(description="The offers.")
    assumptions: tuple[Assumption, ...] = Field(description="Every input with its source.")


class StageDocument(Model):
    """One stage of the plan."""

    name: str = Field(description="Its name.")
    gpus: int = Field(description="GPUs held.")
    seconds: float = Field(description="How long.")
    cost_usd: float | None = Field(description="Its cost; null: no price.")
    must_show: tuple[str, ...] = Field(description="What it must show before the next one starts.")


class ServingDocument(Model):
    """The GPUs that serve the trained model; the figures are null where it does not fit."""

    first_estimate: bool = Field(True, description="Always true: an estimate without measurements.")
    feasible: bool = Field(description="Whether a replica fits.")
    gpus: int | None = Field(None, description="GPUs of all replicas.")
    gpu_type: str | None = Field(None, description="GPU type.")
    replicas: int | None = Field(None, description="Replicas.")
    gpus_per_replica: int | None = Field(None, description="GPUs of a replica.")
    usd_per_hour: float | None = Field(None, description="US dollars an hour; null: no price.")
    load: float | None = Field(None, description="Share of its highest rate at which a replica runs.")
    requests_per_second: float | None = Field(None, description="The demand.")
    input_tokens: int | None = Field(None, description="Tokens of a prompt.")
    output_tokens: int | None = Field(None, description="Tokens of an answer.")
    weight_bits: int | None = Field(None, description="Bits of a weight.")
    cache_bits: int | None = Field(None, description="Bits of a cached value.")
    weights_gib: float | None = Field(None, description="Weights of a replica, GiB.")
    cache_bytes_per_token: float | None = Field(None, description="Cache of a token, bytes.")
    cache_mib_per_sequence: float | None = Field(
        None, alias="cacheMiBPerSequence", description="Cache of a sequence, MiB."
    )
    sequences_per_replica: int | None = Field(None, description="Sequences at once.")
    prefill_seconds: float | None = Field(None, description="Time to the first token, without the queue.")
    seconds_per_token: float | None = Field(None, description="Time between tokens.")
    requests_per_second_per_replica: float | None = Field(None, description="The highest rate.")
    output_tokens_per_second_per_replica: float | None = Field(None, description="The highest rate.")


class PlanDocument(PlanReport):
    """The output of `rightsizer plan --json`. Seconds, GiB and US dollars; null: not known or not asked."""

    levers: Annotated[tuple[LeverReport, ...], Strict(False)] = Field(
        (), description="What would need fewer GPUs or less money, or make a plan possible; the best first."
    )
    ownership: OwnershipDocument | None = Field(None, description="With --compare-ownership: rent or buy.")
    stages: tuple[StageDocument, ...] | None = Field(
        None, description="With --compare-ownership: the plan in stages."
    )
    serving: ServingDocument | None = Field(None, description="With --serve: the GPUs that serve the model.")
