"""From a manifest, flags, or flags over a manifest to one TrainingPlan: the same models, the same errors."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from rightsizer import catalog
from rightsizer.errors import InputError
from rightsizer_api import load, loads, validate
from rightsizer_cli.files import read_text
from rightsizer_cli.mistakes import OptionError
from rightsizer_cli.options import Spec

if TYPE_CHECKING:
    from rightsizer_api import TrainingPlan

__all__ = ["document_of", "read_plan", "with_defaults"]

RIVALS = (
    {"model.name", "model.config", "model.configPath", "model.dimensions"},
    {"deadline.finishWithin", "deadline.finishBy"},
    {"workload.tokens", "workload.dataset"},
    {"workload.globalBatchTokens", "workload.globalBatchSequences"},
)
"""Fields of which a plan has one: a flag that sets one takes the others out of the manifest beneath it."""

PRETRAIN_SEQUENCE_TOKENS, PRETRAIN_BATCH = 8192, {"globalBatchTokens": "4M"}
"""What --sequence-length and --global-batch are by default: Llama 3's first phase (arXiv:2407.21783, 3.4)."""
FINETUNE_SEQUENCE_TOKENS, FINETUNE_BATCH = 2048, {"globalBatchSequences": 64}
"""The same for the other methods: a common size for instruction tuning; a guess at what is meant."""


def read_plan(file: Path | None, *groups: Any) -> "TrainingPlan":
    """The plan of a manifest (`-` is stdin) with the given flags over it, or of flags alone."""
    given = {spec: value for spec, _, value in _options(groups) if value not in (None, [])}
    flags = {spec: flag for spec, flag, _ in _options(groups) if file is None or spec in given}
    if file is None and not given:
        raise OptionError(
            "FILE", value="", remedy="name a manifest, or say --model, --tokens, --deadline and --gpu"
        )
    if "model.configPath" in given:
        given["model.config"] = _config(given.pop("model.configPath"))
        flags["model.config"] = flags.pop("model.configPath")
    if file is None:
        document = with_defaults(document_of({}, given))
    else:
        plan = loads(sys.stdin.read(), name="stdin") if str(file) == "-" else load(file)
        if not given:
            return plan
        beneath = plan.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"status"})
        document = document_of(beneath, given)
    with _errors_named_after(flags):
        return validate(document)


def document_of(beneath: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with values put at dotted paths under `spec`; fields that rival a given one are dropped."""
    spec = json.loads(json.dumps(beneath.get("spec", {})))
    rivals = {r for path in given for group in RIVALS if path in group for r in group} - set(given)
    for path in rivals:
        *parents, leaf = path.split(".")
        _node(spec, parents).pop(leaf, None)
    for path, value in given.items():
        *parents, leaf = path.split(".")
        _node(spec, parents)[leaf] = value
    spec = {name: part for name, part in spec.items() if part != {}}
    head = {"apiVersion": "rightsizer.dev/v1alpha1", "kind": "TrainingPlan", "metadata": {"name": "plan"}}
    return head | dict(beneath) | {"spec": spec}


def with_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of flags alone, with the sequence length and batch that most people mean."""
    spec = dict(document["spec"])
    work = dict(spec.get("workload", {}))
    pretrain = work.get("method", "pretrain") == "pretrain"
    if "sequenceLength" not in work:
        usual = PRETRAIN_SEQUENCE_TOKENS if pretrain else FINETUNE_SEQUENCE_TOKENS
        work["sequenceLength"] = _longest(spec.get("model", {}).get("name"), usual)
    if not {"globalBatchTokens", "globalBatchSequences"} & set(work):
        work |= PRETRAIN_BATCH if pretrain else FINETUNE_BATCH
    return {**document, "spec": {**spec, "workload": work}}


def _longest(model: object, usual: int) -> int:
    """The usual sequence, or the longest that the model's position table or image allows."""
    if not isinstance(model, str):
        return usual
    with contextlib.suppress(InputError):  # an unknown name is reported when the plan is sized
        known = catalog.model(model)
        return min(n for n in (usual, known.max_sequence, known.fixed_tokens) if n > 0)
    return usual


def _config(path: str) -> dict[str, Any]:
    """A Hugging Face config.json, to be put into the plan."""
    try:
        config = json.loads(read_text(Path(path), field="--config"))
    except (json.JSONDecodeError, RecursionError):
        raise OptionError(
            "--config", value=path, remedy="is not JSON; name a Hugging Face config.json"
        ) from None
    if not isinstance(config, dict):
        raise OptionError("--config", value=path, remedy="is no JSON object; name a Hugging Face config.json")
    return config


def _node(spec: dict[str, Any], parents: list[str]) -> dict[str, Any]:
    node = spec
    for parent in parents:
        node = node.setdefault(parent, {})
    return node


def _options(groups: tuple[Any, ...]) -> Iterator[tuple[str, str, Any]]:
    """(path under spec, flag, value) of every option that sets a plan field."""
    for group in groups:
        for name, hint in get_type_hints(type(group), include_extras=True).items():
            for spec in (extra for extra in get_args(hint)[1:] if isinstance(extra, Spec)):
                value = getattr(group, name)
                yield (
                    str(spec),
                    f"--{name.replace('_', '-')}",
                    str(value) if isinstance(value, Path) else value,
                )


@contextlib.contextmanager
def _errors_named_after(flags: Mapping[str, str]) -> Iterator[None]:
    """Name the flag in an error, not the field that it set: the user typed the flag."""
    try:
        yield
    except InputError as error:
        flag = flags.get(error.field.removeprefix("spec.").split("[")[0])
        if flag is None:
            raise
        raise OptionError(flag, value=error.value, remedy=error.remedy) from None
