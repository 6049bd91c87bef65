"""The JSON of `rightsizer calibrate`."""

from pydantic import ConfigDict, Field

from rightsizer_api.base import Model


class StackDocument(Model):
    """The corrections of one framework, GPU and family of layouts."""

    model_config = ConfigDict(alias_generator=None)

    framework: str = Field(description="The framework.")
    gpu: str = Field(description="The GPU type.")
    family: str = Field(description="How the layouts split the work.")
    runs: int = Field(description="Measured runs.")
    steps: int = Field(description="Their steps.")
    step_ratio: float | None = Field(description="Measured / predicted step time; null: not measured.")
    step_factor: float = Field(description="The correction of another model's step time.")
    step_sigma_factor: float = Field(description="The factor on the width of its interval.")
    memory_ratio: float | None = Field(description="Measured / predicted memory; null: not measured.")
    memory_factor: float = Field(description="The correction of another model's memory.")
    memory_sigma_factor: float = Field(description="The factor on the width of its interval.")


class CalibrationDocument(Model):
    """Corrections from your own measured runs."""

    file: str = Field(description="The calibration file.")
    runs: int = Field(description="Measured runs in it.")
    added: int = Field(description="Runs that this command added.")
    stacks: tuple[StackDocument, ...] = Field(description="One row for each framework, GPU and family.")
