"""Read a TrainingPlan from a file, text or plain values, and write it as YAML.

The functions for text import PyYAML themselves: it is slow, and a plan made from flags needs none.
"""

import functools
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rightsizer_api.errors import plan_error
from rightsizer_api.plan import API_VERSION, KIND, TrainingPlan
from rightsizer_api.untrusted_text import read_text
from rightsizer_engine.errors import InputError

_MAX_BYTES = 2_097_152  # per file: four bytes for each character of the longest manifest
_BUILDING = threading.Lock()


def load(source: Path | str, *, folder: Path | None = None) -> TrainingPlan:
    """The plan of a manifest: a Path is a file, a str the text itself.

    `config` gets the content of a configPath. The path is relative to the file; in a text, to `folder`.
    """
    if isinstance(source, Path):
        document = _parsed(read_text(source, field=str(source), most_bytes=_MAX_BYTES), name=str(source))
        return validate(with_config(document, folder or source.parent))
    return validate(with_config(_parsed(source, name="document"), folder or Path()))


def loads(text: str, *, name: str = "document") -> TrainingPlan:
    """The plan of a manifest's text. It opens no file: a configPath stays as it is."""
    return validate(_parsed(text, name=name))


def dump(plan: TrainingPlan) -> str:
    """The plan as YAML that reads back as the same plan. Defaults are left out."""
    from rightsizer_api.yaml_text import text_of  # noqa: PLC0415

    stated = plan.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return text_of({"apiVersion": API_VERSION, "kind": KIND} | stated)


def validate(document: object) -> TrainingPlan:
    """The plan of a parsed document, such as an object from the API server."""
    if not isinstance(document, Mapping):
        remedy = f"is not a mapping; start with apiVersion: {API_VERSION}"
        raise InputError("document", value=type(document).__name__, remedy=remedy)
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(field) != wanted:
            raise InputError(field, value=document.get(field), remedy=f"must be {wanted}")
    try:
        return _model().model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise plan_error(error, TrainingPlan) from None


def _model() -> type[TrainingPlan]:
    """TrainingPlan with its validator. The first threads wait until one of them has built it."""
    with _BUILDING:
        return _built()


@functools.cache
def _built() -> type[TrainingPlan]:
    """TrainingPlan with its validator, built without pydantic's plugins.

    Pydantic would search every installed distribution for plugins (40 ms). The setting is the process's, so
    one thread alone may change it.
    """
    setting = "PYDANTIC_DISABLE_PLUGINS"
    before = os.environ.get(setting)
    os.environ[setting] = "__all__"
    try:
        TrainingPlan.model_rebuild()
    finally:
        del os.environ[setting]
        if before is not None:
            os.environ[setting] = before
    return TrainingPlan


def _parsed(text: str, *, name: str) -> object:
    """The single TrainingPlan among the documents of a YAML text, as plain values."""
    from rightsizer_api import yaml_text  # noqa: PLC0415

    documents = yaml_text.documents(text, name=name)
    if not documents:
        raise InputError(name, value="", remedy=f"is empty; start with apiVersion: {API_VERSION}")
    if len(documents) == 1:
        return documents[0]
    plans = [d for d in documents if isinstance(d, Mapping) and d.get("kind") == KIND]
    if len(plans) != 1:
        remedy = f"must hold exactly one {KIND}"
        raise InputError(name, value=f"{len(plans)} of {len(documents)} documents", remedy=remedy)
    return plans[0]


def with_config(document: Any, folder: Path) -> object:
    """The document with spec.model.configPath replaced by the file's content, if it has one."""
    field = "spec.model.configPath"
    try:
        model = dict(document["spec"]["model"])
        path = model.pop("configPath")
    except (TypeError, ValueError, KeyError):
        return document
    if not isinstance(path, str) or "config" in model:
        return document
    text = read_text(folder / path, field=field, most_bytes=_MAX_BYTES)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(field, value=path, remedy="is not JSON; name a Hugging Face config.json") from None
    if not isinstance(config, dict):
        raise InputError(field, value=path, remedy="is not a JSON object; name a Hugging Face config.json")
    return {**document, "spec": {**document["spec"], "model": {**model, "config": config}}}
