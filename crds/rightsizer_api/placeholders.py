"""Placeholders in command and args: {layout.tp} and the like, replaced once the plan is sized.

Only a dotted name in braces is a placeholder, so JSON passes untouched; {{layout.tp}} is the literal text.
"""

import difflib
import enum
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.errors import InputError

LAYOUT_NAMES: Mapping[str, str] = {
    "gpus": "gpus",
    "dp": "dp",
    "tp": "tp",
    "pp": "pp",
    "vpp": "vpp",
    "cp": "cp",
    "ep": "ep",
    "expertTp": "expert_tp",
    "sequenceParallel": "sequence_parallel",
    "sharding": "sharding",
    "shardGroup": "shard_group",
    "microBatch": "micro_batch",
    "microBatches": "micro_batches",
    "recompute": "recompute",
    "recomputeLayers": "recompute_layers",
    "offload": "offload",
    "offloadPercent": "offload_percent",
}
"""The wire names of a layout's fields and the names they have in `rightsizer_engine.domain.layout.Layout`."""

PLACEHOLDERS: Mapping[str, str] = {
    **{f"layout.{name}": f"the layout's {name}" for name in LAYOUT_NAMES},
    "plan.name": "metadata.name",
    "checkpoint.path": "launch.checkpoint.path",
    "checkpoint.intervalSteps": "steps between checkpoints",
    "workload.sequenceLength": "tokens of a sequence",
    "workload.globalBatchSequences": "sequences of an optimizer step, as the layout really does",
    "workload.steps": "optimizer steps, in all",
}
"""Every placeholder and what it becomes."""

_ENUMS: Mapping[str, type[enum.IntEnum] | type[enum.IntFlag]] = {
    "sharding": Sharding,
    "recompute": Recompute,
    "offload": Offload,
}

_PLAIN_LAYOUT = Layout()
_MOST = 2**20  # of any count in a layout

# A dollar before the brace is someone else's interpolation (OmegaConf, shells).
_PLACEHOLDER = re.compile(r"(?<!\$)\{(\{)?([A-Za-z][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)+)\}(?(1)\})")


def layout_values(layout: Layout) -> dict[str, int | str | bool]:
    """A layout under its wire names; enumerations by lower-case name."""
    return {wire: _plain(getattr(layout, name)) for wire, name in LAYOUT_NAMES.items()}


def layout_of(values: Mapping[str, Any]) -> Layout:
    """The layout of values under wire names: what `layout_values` makes, or a report holds.

    InputError for a value that no layout has: a user can write the file that holds it.
    """
    if not isinstance(values, Mapping):
        raise InputError("layout", value=values, remedy="is not a layout")
    wires = [wire for wire, name in LAYOUT_NAMES.items() if wire in values and name != "gpus"]
    layout = Layout(**{LAYOUT_NAMES[wire]: _layout_value(wire, values[wire]) for wire in wires})
    if layout.gpus > _MOST:
        raise InputError("layout", value=layout.gpus, remedy="is more GPUs than any cluster has")
    return layout


def _layout_value(wire: str, value: Any) -> Any:
    name = LAYOUT_NAMES[wire]
    kind = _ENUMS.get(name)
    default = getattr(_PLAIN_LAYOUT, name)
    try:
        if kind is not None:
            return kind(sum(kind[word] for word in str(value).upper().split("+")))
    except (KeyError, ValueError):
        raise InputError(f"layout.{wire}", value=value, remedy="is not a value of it") from None
    if type(value) is not type(default) or not default <= value <= _MOST:  # a default is the least value
        raise InputError(f"layout.{wire}", value=value, remedy="is not a value of it")
    return value


def check(text: str, *, field: str) -> None:
    """Refuses a text with a placeholder that does not exist."""
    for match in _PLACEHOLDER.finditer(text):
        doubled, name = match.groups()
        if not doubled and name not in PLACEHOLDERS:
            near = difflib.get_close_matches(name, PLACEHOLDERS, n=3, cutoff=0.4) or sorted(PLACEHOLDERS)
            wanted = " or ".join("{" + n + "}" for n in near)
            remedy = f"unknown placeholder; did you mean {wanted}? (double the braces for the literal text)"
            raise InputError(field, value="{" + name + "}", remedy=remedy)


def placeholders_in(texts: Iterable[str]) -> frozenset[str]:
    """The names of the placeholders in the texts; doubled braces are literal text."""
    return frozenset(name for text in texts for doubled, name in _PLACEHOLDER.findall(text) if not doubled)


def expand(
    texts: Iterable[str],
    layout: Layout | Mapping[str, object],
    others: Mapping[str, object] | None = None,
    *,
    field: str = "spec.launch.args",
) -> list[str]:
    """The texts with every placeholder replaced; `others` holds values not of the layout, by name."""
    fields = layout_values(layout) if isinstance(layout, Layout) else layout
    values = {f"layout.{name}": value for name, value in fields.items()} | dict(others or {})

    def replaced(match: re.Match[str]) -> str:
        doubled, name = match.groups()
        if doubled:
            return "{" + name + "}"
        if name not in values:
            raise InputError(
                field, value="{" + name + "}", remedy="has no value here; remove the placeholder"
            )
        return _text(values[name])

    expanded = []
    for text in texts:
        check(text, field=field)
        expanded.append(_PLACEHOLDER.sub(replaced, text))
    return expanded


def _plain(value: Any) -> int | str | bool:
    """A layout's value as JSON has it: enumerations by name (a flag of none is "none")."""
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name.lower().replace("|", "+")
    return value if isinstance(value, bool) else int(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
