"""Framework profiles without one source: those that rest on it alone revert to their parents.

A profile rests on the sources of the rows that it, or a profile that extends it, describes. If a source is
left out of a fit but its profile stays, facts that were looked up for its rows still help to predict them. So
its rows get the nearest ancestor that another source supports; without one, the framework is
withheld.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from rightsizer_engine import packaged
from rightsizer_engine.errors import UnsupportedError
from rightsizer_engine.published.rows import framework_of_row

Row = Mapping[str, str]


def forgetting(table: Sequence[Row]) -> list[Row]:
    """The rows of published runs, each without the profiles that rest on its source alone."""
    above, used = _parents(), {}
    for row in table:
        try:
            profile = framework_of_row(row)
        except UnsupportedError:
            continue
        if profile.known:
            used[row["id"]] = profile.name
    behind = support({(name, _source(row)) for row in table if (name := used.get(row["id"]))}, above)
    found: list[Row] = []
    for row in table:
        name = used.get(row["id"], "")
        kept = reverted(name, _source(row), behind, above)
        changed = {"profile": kept} if kept else {"framework": ""}
        found.append(row if kept == name else {**row, **changed})
    return found


def support(used: set[tuple[str, str]], above: Mapping[str, str]) -> dict[str, set[str]]:
    """The sources behind each profile: `used` are (profile, source) of rows, `above` the parents."""
    found: dict[str, set[str]] = {}
    for profile, source in used:
        for name in _ancestors(profile, above):
            found.setdefault(name, set()).add(source)
    return found


def reverted(profile: str, source: str, behind: Mapping[str, set[str]], above: Mapping[str, str]) -> str:
    """The nearest profile, from `profile` up, that another source than `source` supports; "" if none."""
    return next((name for name in _ancestors(profile, above) if behind.get(name, set()) - {source}), "")


def _parents() -> dict[str, str]:
    profiles = json.loads(packaged.text("frameworks.json"))["profiles"]
    return {profile["name"]: profile.get("extends", "") for profile in profiles}


def _ancestors(name: str, above: Mapping[str, str]) -> Iterator[str]:
    while name:
        yield name
        name = above.get(name, "")


def _source(row: Row) -> str:
    return row["id"].rsplit("-", 1)[0]
