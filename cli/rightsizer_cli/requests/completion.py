"""Values that the shell completes: names of the catalog, and the plan fields' choices."""

from collections.abc import Callable, Iterable

Completion = Callable[[str], list[str]]


def choices(*values: str) -> Completion:
    """Completes one of these."""

    def complete(incomplete: str) -> list[str]:
        return _matching(values, incomplete)

    return complete


def models(incomplete: str) -> list[str]:
    """Models of the catalog, by their names and Hub ids, with and without the owner."""
    from rightsizer_engine.catalog import lookup

    names = {model.name for model in lookup.models()}
    ids = {alias for name in names for alias in lookup.model_aliases(name)} - names
    short = {name.rpartition("/")[2] for name in ids}
    return _matching(ids | short | {name.replace(" ", "-") for name in names}, incomplete)


def gpus(incomplete: str) -> list[str]:
    """GPU types, and cloud node types; the last of a list that commas part."""
    from rightsizer_engine.catalog import lookup

    head, comma, last = incomplete.rpartition(",")
    known = [gpu.name for gpu in lookup.gpus()] + ([] if head else [node.name for node in lookup.nodes()])
    return [f"{head}{comma}{name}" for name in _matching(known, last)]


def nodes(incomplete: str) -> list[str]:
    """Node types."""
    from rightsizer_engine.catalog import lookup

    return _matching((node.name for node in lookup.nodes()), incomplete)


def frameworks(incomplete: str) -> list[str]:
    """Frameworks that a plan may name."""
    from rightsizer_engine.domain.framework import frameworks as profiles

    return _matching((profile.name for profile in profiles() if profile.known), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that begin so, in any case; without spaces, which shells part.

    What was typed stays as it was: Typer and zsh drop a value that begins with other letters.
    """
    start = incomplete.casefold()
    return sorted(
        incomplete + name[len(incomplete) :]
        for name in names
        if name.casefold().startswith(start) and " " not in name
    )
