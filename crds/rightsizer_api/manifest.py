"""Reading a TrainingPlan from YAML: strictly, safely, with the line where it goes wrong."""

import json
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rightsizer.errors import InputError
from rightsizer_api.errors import plan_error
from rightsizer_api.plan import API_VERSION, KIND, TrainingPlan

__all__ = ["dump", "load", "loads", "parse", "validate"]

_LONGEST_TEXT = 524_288  # characters; etcd refuses objects past 1.5 MiB, plans have some hundred lines
_DEEPEST = 64  # nested collections
_MOST_NODES = 50_000  # after aliases are expanded


def load(source: Path | str, *, folder: Path | None = None) -> TrainingPlan:
    """The plan of a manifest: a Path is a file, a str the text itself.

    A configPath is read in as `config`; it is relative to the file, or to `folder` (default: where we are).
    """
    if isinstance(source, Path):
        document = parse(_read(source, field=str(source)), name=str(source))
        return validate(_with_config(document, folder or source.parent))
    return validate(_with_config(parse(source), folder or Path()))


def loads(text: str, *, name: str = "document") -> TrainingPlan:
    """The plan of a manifest's text; no file is touched, so a configPath stays as it is."""
    return validate(parse(text, name=name))


def dump(plan: TrainingPlan) -> str:
    """The plan as YAML, to be read back to the same plan; what was left to defaults stays out."""
    stated = plan.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    document = {"apiVersion": API_VERSION, "kind": KIND} | stated
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def validate(document: object) -> TrainingPlan:
    """The plan of a parsed document, such as an object from the API server."""
    if not isinstance(document, Mapping):
        remedy = f"is no mapping; start with apiVersion: {API_VERSION}"
        raise InputError("document", value=type(document).__name__, remedy=remedy)
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(field) != wanted:
            raise InputError(field, value=document.get(field), remedy=f"must be {wanted}")
    try:
        return TrainingPlan.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise plan_error(error, TrainingPlan) from None


def parse(text: str, *, name: str = "document") -> object:
    """The one TrainingPlan among a YAML text's documents, as plain values."""
    if len(text) > _LONGEST_TEXT:
        raise InputError(name, value=f"{len(text)} characters", remedy=f"has more than {_LONGEST_TEXT:,}")
    try:
        _bound(text, name)
        documents = [d for d in yaml.load_all(text, Loader=_Loader) if d is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise InputError(name, value=where, remedy=f"is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise InputError(name, value="text", remedy=f"is not YAML: {str(error).splitlines()[0]}") from None
    return _the_plan(documents, name)


def _the_plan(documents: list[object], name: str) -> object:
    if not documents:
        raise InputError(name, value="", remedy=f"is empty; start with apiVersion: {API_VERSION}")
    if len(documents) == 1:
        return documents[0]
    plans = [d for d in documents if isinstance(d, Mapping) and d.get("kind") == KIND]
    if len(plans) != 1:
        remedy = f"must hold exactly one {KIND}"
        raise InputError(name, value=f"{len(plans)} of {len(documents)} documents", remedy=remedy)
    return plans[0]


def _read(path: Path, *, field: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_TEXT * 4 + 1)
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(field, value=str(path), remedy="no such file") from None
    except IsADirectoryError:
        raise InputError(field, value=str(path), remedy="is a directory; name the file") from None
    except UnicodeDecodeError:
        raise InputError(field, value=str(path), remedy="is not UTF-8 text") from None
    except OSError as error:
        raise InputError(field, value=str(path), remedy=f"cannot be read: {error.strerror}") from None


def _with_config(document: Any, folder: Path) -> object:
    """The document with spec.model.configPath replaced by the file's content, if it has one."""
    field = "spec.model.configPath"
    try:
        model = dict(document["spec"]["model"])
        path = model.pop("configPath")
    except (TypeError, ValueError, KeyError):
        return document
    if not isinstance(path, str) or "config" in model:
        return document
    text = _read(folder / path, field=field)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(field, value=path, remedy="is not JSON; name a Hugging Face config.json") from None
    if not isinstance(config, dict):
        raise InputError(field, value=path, remedy="is no JSON object; name a Hugging Face config.json")
    return {**document, "spec": {**document["spec"], "model": {**model, "config": config}}}


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _bound(text: str, name: str) -> None:
    """Refuses what would explode: deep nesting, and aliases that multiply (counted as if expanded)."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []  # anchor and the count when it began
    count = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise InputError(name, value=f"*{event.anchor}", remedy="refers to itself or to nothing")
            count += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            count += 1
            open_nodes.append((event.anchor, count))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, began = open_nodes.pop()
            if anchor:
                sizes[anchor] = count - began + 1
        if len(open_nodes) > _DEEPEST or count > _MOST_NODES:
            raise InputError(name, value=f"line {_line(event)}", remedy="is too deep or too large")


class _Loader(yaml.SafeLoader):
    """YAML 1.2's few plain types (Off is text, 2026-01-01 is text), and no key twice."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own contract)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The mapping, unless a key comes twice or is no text."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
            if key.value in seen:
                problem = f"the field {key.value} is written twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node))


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]{1,30}$"), list("-+0123456789")
)
_FLOAT = re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 (kubectl) or 1.2 (we) would not read back as text, such as Off and 1e9."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
