"""spec.launch.podTemplate: the fields of pods that a plan may set, as far as they are merged or read."""

from typing import Annotated, Any, Required, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    WithJsonSchema,
    model_validator,
    with_config,
)
from pydantic.config import JsonDict
from typing_extensions import TypedDict

from rightsizer_api.base import Model
from rightsizer_engine.errors import InputError

FREE_FORM: JsonDict = {"x-kubernetes-preserve-unknown-fields": True}


# The parts of a pod template that are merged or read. The API server checks all other fields.
_typed = with_config(ConfigDict(extra="allow", strict=True))


@_typed
class _Named(TypedDict, total=False):
    """An item of a list that is merged by name."""

    name: Required[str]


@_typed
class _Mount(TypedDict):
    mountPath: str


@_typed
class _Port(TypedDict):
    containerPort: int


@_typed
class _Resources(TypedDict, total=False):
    limits: dict[str, Any]
    requests: dict[str, Any]


@_typed
class _Container(_Named, total=False):
    env: list[_Named]
    imagePullPolicy: str
    ports: list[_Port]
    resources: _Resources
    securityContext: dict[str, Any]
    volumeMounts: list[_Mount]


@_typed
class _Toleration(TypedDict, total=False):
    key: str
    operator: str
    value: str
    effect: str


@_typed
class _Spread(TypedDict):
    topologyKey: str


@_typed
class _Expression(TypedDict, total=False):
    key: Required[str]
    operator: Required[str]
    values: list[str]


@_typed
class _Term(TypedDict, total=False):
    matchExpressions: list[_Expression]
    matchFields: list[_Expression]


@_typed
class _Required(TypedDict, total=False):
    nodeSelectorTerms: list[_Term]


@_typed
class _NodeAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: _Required


@_typed
class _Affinity(TypedDict, total=False):
    nodeAffinity: _NodeAffinity


@_typed
class _Metadata(TypedDict, total=False):
    labels: dict[str, str]
    annotations: dict[str, str]


@_typed
class _Spec(TypedDict, total=False):
    affinity: _Affinity
    containers: list[_Container]
    imagePullSecrets: list[_Named]
    initContainers: list[_Container]
    nodeSelector: dict[str, str]
    priorityClassName: str
    securityContext: dict[str, Any]
    serviceAccountName: str
    tolerations: list[_Toleration]
    topologySpreadConstraints: list[_Spread]
    volumes: list[_Named]


def _without_nulls(value: Any) -> Any:
    """Without fields that are null, which Kubernetes reads as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


_ANY_FIELDS = WithJsonSchema({"type": "object", "additionalProperties": True})
_NO_NULLS = BeforeValidator(_without_nulls)


PodMetadata = Annotated[
    dict[str, Any], GetPydanticSchema(lambda _, build: build(_Metadata)), _NO_NULLS, _ANY_FIELDS
]


PodSpec = Annotated[dict[str, Any], GetPydanticSchema(lambda _, build: build(_Spec)), _NO_NULLS, _ANY_FIELDS]


class PodTemplate(Model):
    """Kubernetes only: fields merged into the workers' pods (volumes, nodeSelector, tolerations ...)."""

    metadata: PodMetadata | None = Field(
        None,
        description="Labels and annotations of the pods.",
        examples=[{"labels": {"team": "nlp"}}],
        json_schema_extra=FREE_FORM,
    )
    spec: PodSpec | None = Field(
        None,
        description="Pod spec fields to merge; the workers' container is named trainer, the rendezvous pod's"
        " store.",
        examples=[{"nodeSelector": {"pool": "h100"}}],
        json_schema_extra=FREE_FORM,
    )

    @model_validator(mode="after")
    def _keep_restart_policy(self) -> Self:
        policy = (self.spec or {}).get("restartPolicy", "Never")
        if policy != "Never":
            raise InputError(
                "spec.restartPolicy", value=policy, remedy="must be Never; rightsizer restarts workers"
            )
        return self
