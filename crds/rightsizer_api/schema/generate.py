"""`python -m rightsizer_api.schema.generate [--check]`: writes the CRD and the reference."""

import argparse
import enum
import functools
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rightsizer_api.errors import wire_fields
from rightsizer_api.placeholders import PLACEHOLDERS
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import Duration, Interval, Moment, Tokens, Usd
from rightsizer_api.schema.crd import crd_yaml, structural

_REPOSITORY = Path(__file__).parents[3]

_QUANTITIES = (
    (Tokens, "count"),
    (Usd, "US dollars"),
    (Interval, "duration or auto"),
    (Duration, "duration"),
    (Moment, "moment"),
)

_PLAIN = {str: "text", int: "integer", float: "number", bool: "true or false", types.NoneType: "", Any: "any"}

_HEAD = """\
# The TrainingPlan reference

Generated from the models by `make generate`; `kubectl explain trainingplan.spec` says the same.

A plan is one YAML document. A field that is not listed here is refused, with the nearest name that is.
Counts are written as `100B`, `1.5T`, `4M`, `300k` or a whole number; durations as `72h`, `3d`, `1h30m`;
dollars as `60000`, `$8,500` or `60k`; moments as `2026-09-30T18:00:00Z`.

```yaml
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: support-bot-8b}
spec:
  model: {name: meta-llama/Llama-3.1-8B}
  workload: {tokens: 100B, sequenceLength: 8192, globalBatchTokens: 4M}
  deadline: {finishWithin: 72h}
  resources: {gpuTypes: [H100-SXM5-80GB], maxGPUs: 256}
```
"""

_PLACEHOLDERS_HEAD = """\
## Placeholders

In `spec.launch.command` and `spec.launch.args`; filled in once the plan is sized. Doubled braces,
`{{layout.tp}}`, stand for the text itself; any other text in braces, and `${...}`, is left alone.

| placeholder | becomes |
|---|---|
"""

_REPORT_HEAD = """\
## The report

What `rightsizer plan --json` prints, and what `status.sizing` holds. Its JSON schema is
[schemas/plan.json](schemas/plan.json). Times are in seconds, memory in GiB; figures have six
significant digits.
"""


@functools.cache
def _generated() -> Mapping[str, str]:
    """Every generated file: its path in the repository and its content."""
    return {
        "helm/rightsizer/crds/trainingplans.rightsizer.dev.yaml": crd_yaml(),
        "docs/plan-reference.md": _reference(),
    }


def main(arguments: Sequence[str] | None = None, files: Mapping[str, str] | None = None) -> int:
    """Writes the files, or with --check only compares; 1 if any is stale. `files` are another generator's."""
    parser = argparse.ArgumentParser(description="Writes generated files of this repository.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    parser.add_argument("--folder", type=Path, default=_REPOSITORY, help="the repository's root")
    options = parser.parse_args(arguments)
    texts = _generated() if files is None else files
    stale = [name for name, text in texts.items() if not _holds(options.folder / name, text)]
    if options.check:
        sys.stderr.writelines(f"stale: {name}; run make generate\n" for name in stale)
        return 1 if stale else 0
    for name in stale:
        path = options.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[name], encoding="utf-8")
    return 0


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def _reference() -> str:
    """docs/plan-reference.md, from the models: a table for each section."""
    sections = [_section(path, model) for path, model in _sections(TrainingPlan, "")]
    placeholders = "".join(f"| `{{{name}}}` | {what} |\n" for name, what in PLACEHOLDERS.items())
    return "\n".join([_HEAD, *sections, _PLACEHOLDERS_HEAD + placeholders])


def _sections(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every object of the document with its path, the outer before the inner."""
    yield path, model
    for name, field in wire_fields(model).items():
        for inner, many in _inner(field.annotation):
            yield from _sections(inner, f"{path}.{name}{'[]' if many else ''}".lstrip("."))


def _inner(annotation: Any, many: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    """The models in an annotation, and whether there may be many."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, many
    for argument in typing.get_args(annotation):
        yield from _inner(argument, many or typing.get_origin(annotation) is tuple)


def _section(path: str, model: type[BaseModel]) -> str:
    summary = (model.__doc__ or "").strip().split("\n", 1)[0]
    rules = [rule["message"] for rule in structural(model).get("x-kubernetes-validations", [])]
    lines = [f"## `{path}`" if path else "## The document", "", summary, ""]
    if path == "status.sizing":
        lines = [_REPORT_HEAD]
    lines += ["| field | type | default | meaning | example |", "|---|---|---|---|---|"]
    lines += [_row(name, field) for name, field in wire_fields(model).items()]
    if rules:
        lines += ["", "Rules:", "", *(f"* {rule}" for rule in rules)]
    return "\n".join([*lines, ""])


def _row(name: str, field: FieldInfo) -> str:
    example = "" if not field.examples else f"`{_json(field.examples[0])}`"
    cells = (f"`{name}`", _kind(field), _default(field), field.description or "", example)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None or field.default == () or field.default_factory is not None:
        return ""
    return f"`{_json(field.default)}`"


def _json(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    return json.dumps(value)


def _kind(field: FieldInfo) -> str:
    """The type in words."""
    for quantity, words in _QUANTITIES:
        validators = typing.get_args(quantity)[1:]
        if any(item is validators[0] for item in (*field.metadata, *_parts(field.annotation))):
            return words
    return _words(field.annotation)


def _parts(annotation: Any) -> Iterator[Any]:
    """Everything inside an annotation."""
    yield annotation
    for argument in (*typing.get_args(annotation), *getattr(annotation, "__metadata__", ())):
        yield from _parts(argument)


def _words(annotation: Any) -> str:
    """An annotation as text; None is left out, since a field without a default is shown as required."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        return _plain_words(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    inner = [_words(part) for part in arguments if isinstance(part, type) or typing.get_origin(part)]
    words = {
        tuple: f"list of {inner[0]}",
        dict: "object" if arguments[-1] is Any else f"map to {inner[-1]}",
        typing.Annotated: inner[0],
    }
    return words.get(origin, " or ".join(word for word in inner if word))


def _plain_words(annotation: type) -> str:
    if issubclass(annotation, enum.Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if issubclass(annotation, BaseModel):
        return "object"
    return _PLAIN[annotation]


if __name__ == "__main__":
    sys.exit(main())
