"""spec.launch: the command, its checkpoints and its restart budget."""

import enum
import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from rightsizer_api import placeholders
from rightsizer_api.base import Model, Rule, fixed
from rightsizer_api.quantities import Duration, Interval
from rightsizer_api.spec.pod_template import FREE_FORM, PodTemplate
from rightsizer_engine.catalog.framework_names import framework_named, sharding_named
from rightsizer_engine.errors import InputError, UnknownNameError

READ_FROM_LOG_LINES = frozenset(
    {"megatron", "megatron-core", "megatron-bridge", "nemo", "nanotron", "torchtune"}
)
"""Profiles whose unmodified scripts are measured by their log lines: nothing can make them save or resume."""
NEEDS_A_STAGE = frozenset({"deepspeed-zero"})
"""Profiles whose checkpoints with ZeRO do not resume without it, nor the other way round."""

_NOT_TOLD = (
    "never resized: this framework's scripts are only read from their log lines, and nothing says where they"
    " save; name {checkpoint.path} in the command, with the framework's own options to save and load"
)
_OPEN_STAGE = (
    "never resized: DeepSpeed's checkpoints with ZeRO do not resume without it, nor the other way, and this"
    " plan leaves the stage open; name it, as in framework: deepspeed-zero2"
)

Text = Annotated[str, Field(max_length=4096)]
Path = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f]+$")]

_RESERVED = (
    r"^(PET_|TORCHELASTIC_|RIGHTSIZER_|ROLE_|MASTER_)"
    r"|^(RANK|LOCAL_RANK|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE"
    r"|TORCH_DISABLE_SHARE_RDZV_TCP_STORE)$"
)


def _known_framework(name: str) -> str:
    try:
        framework_named(name)
    except UnknownNameError as error:
        raise InputError("", value=name, remedy=error.remedy) from None
    return name


class Carrier(enum.StrEnum):
    """The kind of object that carries an attempt's Job."""

    JOB = "Job"
    JOB_SET = "JobSet"
    TRAIN_JOB = "TrainJob"


class EnvVar(Model):
    """An environment variable of every worker."""

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description="The variable's name. Names that torchrun or rightsizer set are rejected.",
        examples=["HF_HOME"],
    )
    value: Annotated[str, Field(max_length=32_768)] | None = Field(
        None, description="Its value; no placeholders.", examples=["/cache"]
    )
    value_from: dict[str, Any] | None = Field(
        None,
        description="Kubernetes only: the value's source (secretKeyRef and others), as in a pod.",
        examples=[{"secretKeyRef": {"name": "hub", "key": "token"}}],
        json_schema_extra=FREE_FORM,
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="name",
            remedy="is set by torchrun or rightsizer (PET_*, MASTER_*, RANK, WORLD_SIZE ...); remove it",
            cel=f"!self.name.matches('{_RESERVED}')",
            holds=lambda e: re.search(_RESERVED, e.name) is None,
        ),
        Rule(
            field="value",
            remedy="give value or valueFrom, not both",
            cel="!(has(self.value) && has(self.valueFrom))",
            holds=lambda e: e.value is None or e.value_from is None,
        ),
    )


class Checkpoint(Model):
    """Checkpoint directory and interval."""

    path: Path = Field(
        description="A directory that every worker can read and write.",
        examples=["/ckpt"],
        json_schema_extra=fixed("the checkpoint path cannot change: training would start over"),
    )
    interval: Interval = Field(
        "auto",
        description="Time between checkpoints; auto: computed from failure rate and write time.",
        examples=["30m"],
    )
    grace: Duration = Field(
        "2m", description="Time a worker has to save its state before it is killed.", examples=["5m"]
    )


class Restarts(Model):
    """The restart budget, as a rate: a long run has many hardware failures."""

    limit: Annotated[int, Field(ge=0, le=10_000)] = Field(
        10,
        description="Restarts allowed within the window; 0: the first failure ends the plan.",
        examples=[10],
    )
    within: Duration = Field("1h", description="The window; older failures do not count.", examples=["1h"])


class Launch(Model):
    """The command that torchrun starts on every GPU."""

    framework: Annotated[str, Field(min_length=1, max_length=63), AfterValidator(_known_framework)] = Field(
        "custom",
        description="The training framework, by any of its names; `rightsizer frameworks` lists them. custom:"
        " any script; its estimates have a wider interval. Default"
        " without a command: the best of torchtitan, megatron and deepspeed (accelerate for adapters and for"
        " networks that are not decoders).",
        examples=["torchtitan"],
        json_schema_extra=fixed("the framework cannot change: another one cannot read the checkpoints"),
    )
    profile: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        None,
        description="The engine's stack profile, if more specific than framework.",
        examples=["nemo"],
    )
    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\S+$")] | None = Field(
        None, description="The container image, on Kubernetes and Slurm.", examples=["ghcr.io/acme/train:1.4"]
    )
    command: Annotated[tuple[Text, ...], Field(max_length=64), Strict(False)] = Field(
        (),
        description="The script and its first arguments, as passed to torchrun. Placeholders such as"
        " {layout.tp} are replaced.",
        examples=[["train.py"]],
    )
    args: Annotated[tuple[Text, ...], Field(max_length=512), Strict(False)] = Field(
        (), description="More arguments; placeholders are replaced.", examples=[["--tp", "{layout.tp}"]]
    )
    working_dir: Path | None = Field(
        None,
        description="Working directory. Default: this file's directory; on Kubernetes the image's.",
        examples=["/app"],
    )
    env: Annotated[tuple[EnvVar, ...], Field(max_length=128), Strict(False)] = Field(
        (),
        description="Environment variables of every worker.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    checkpoint: Checkpoint | None = Field(
        None, description="Checkpoints. Without them training restarts from step 0 after a failure."
    )
    restarts: Restarts = Field(default_factory=Restarts.model_construct, description="The restart budget.")
    start_timeout: Duration | None = Field(
        None,
        description="Kubernetes: time from the start of an attempt to its first training step; after it the"
        " plan fails and frees its GPUs. Default: 1h, if workers are not all ready or their agent reports no"
        " step. If set, scripts that report nothing count too.",
        examples=["30m"],
    )
    pod_template: PodTemplate | None = Field(
        None, description="Kubernetes: fields merged into the workers' pods."
    )
    carrier: Annotated[Carrier, Strict(False)] = Field(
        Carrier.JOB,
        alias="as",
        description="Kubernetes: the object that the operator creates for an attempt. JobSet needs the JobSet"
        " controller in the cluster, TrainJob also Kubeflow Trainer v2. Another kind than Job is"
        " resized by a new attempt.",
        examples=["JobSet"],
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="args",
            remedy="args need a command",
            cel="!has(self.args) || self.args.size() == 0 || (has(self.command) && self.command.size() > 0)",
            holds=lambda launch: not launch.args or bool(launch.command),
        ),
    )

    @property
    def resumes(self) -> bool:
        """Whether a new attempt resumes: a script read from its log lines must be told where it saves."""
        return self._saves_itself or framework_named(self.framework).name not in READ_FROM_LOG_LINES

    @property
    def never_resized(self) -> str:
        """Why a new attempt does not resume on another number of workers; empty if it does."""
        if not self.resumes:
            return _NOT_TOLD
        needs = framework_named(self.framework).name in NEEDS_A_STAGE and not self._saves_itself
        return _OPEN_STAGE if needs and sharding_named(self.profile or self.framework) is None else ""

    @property
    def _saves_itself(self) -> bool:
        """Whether the command is told where to save; one that is not stated yet may be."""
        told = "checkpoint.path" in placeholders.placeholders_in((*self.command, *self.args))
        return told or not self.command

    @model_validator(mode="after")
    def _know_placeholders(self) -> Self:
        for name, texts in (("command", self.command), ("args", self.args)):
            for index, text in enumerate(texts):
                placeholders.check(text, field=f"{name}[{index}]")
        return self

    @model_validator(mode="after")
    def _name_variables_once(self) -> Self:
        names = [variable.name for variable in self.env]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise InputError(f"env[{index}].name", value=name, remedy="is set twice; keep one")
        return self
