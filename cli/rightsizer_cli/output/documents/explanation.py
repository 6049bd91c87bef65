"""The JSON of `rightsizer explain`."""

from pydantic import ConfigDict, Field

from rightsizer_api.base import Model


class ParameterDocument(Model):
    """One constant of the engine."""

    model_config = ConfigDict(alias_generator=None)

    name: str = Field(description="Its name.")
    value: float = Field(description="Its value.")
    unit: str = Field(description="The unit of the value.")
    meaning: str = Field(description="What it is.")
    source: str = Field(description="Where its prior comes from.")
    fitted_on: str = Field(description="The data that it was fitted to; empty: not fitted.")
    date: str = Field(description="When.")


class ExplanationDocument(Model):
    """Why this plan, or why there is none."""

    verdict: str = Field(description="The result in one sentence.")
    why: tuple[str, ...] = Field(description="The reasons.")
    evidence: str = Field(description="What was measured like this.")
    binding: str = Field(description="The binding limit.")
    runners_up: tuple[str, ...] = Field(description="Other options and why they were rejected.")
    caveats: tuple[str, ...] = Field(description="What the result assumes.")
    layouts_evaluated: int = Field(description="Layouts that were priced.")
    parameters: tuple[ParameterDocument, ...] = Field(description="Every constant of the engine.")
