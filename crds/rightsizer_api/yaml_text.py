"""YAML text to plain values and back: strictly, safely, with the line where it goes wrong."""

import re
from collections.abc import Hashable, Mapping
from typing import Any

import yaml

from rightsizer_engine.errors import InputError

LONGEST_TEXT = 524_288
"""Characters of a manifest; etcd refuses objects past 1.5 MiB, plans have some hundred lines."""

_DEEPEST = 64  # nested collections
_MOST_NODES = 50_000  # after aliases are expanded


def text_of(document: Mapping[str, Any]) -> str:
    """The document as YAML that 1.1 (kubectl) and 1.2 (we) read back to the same."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def documents(text: str, *, name: str = "document") -> list[object]:
    """The documents of a YAML text as plain values, empty ones left out."""
    if len(text) > LONGEST_TEXT:
        raise InputError(name, value=f"{len(text)} characters", remedy=f"has more than {LONGEST_TEXT:,}")
    try:
        _bound(text, name)
        return [d for d in yaml.load_all(text, Loader=_Loader) if d is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise InputError(name, value=where, remedy=f"is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise InputError(name, value="text", remedy=f"is not YAML: {str(error).splitlines()[0]}") from None


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
