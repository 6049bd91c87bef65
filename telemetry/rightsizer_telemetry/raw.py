"""Queries of recorded families, rewritten to the exporters' raw series: for a server without our rules."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rightsizer_telemetry.promql import filtered
from rightsizer_telemetry.rules import gpu_families, groups
from rightsizer_telemetry.sources import Source, one_source, samples

_NOTHING = "(vector(0) > 0)"
"""An empty vector: what a family is of which no exporter reports a signal."""
_RECORDED = re.compile(r"(rightsizer:[a-z0-9_]+:[a-z0-9_]+)(?:\{([^}]*)\})?(?:\[(\w+)\])?")


def families(sources: Mapping[Source, frozenset[str]]) -> Mapping[str, str]:
    """Recorded family -> its PromQL, over the signals that each source was seen to report."""

    def of(source: Source, wanted: Collection[str], matcher: str) -> str:
        signals = tuple(signal for signal in source.signals if signal in wanted)
        return filtered(samples(replace(source, signals=signals)), matcher) if signals else ""

    reporting = [source for source, signals in sources.items() if signals]

    def select(signals: Sequence[str], matcher: str) -> str:
        def kept(source: Source, held: str) -> str:
            return of(source, sources.get(source, frozenset()) & frozenset(signals), held)

        if len(reporting) == 1:
            return filtered(kept(reporting[0], ""), matcher) or _NOTHING
        chosen = one_source(kept, lambda source, held: of(source, sources.get(source, ()), held))
        return filtered(f"({chosen})", matcher) if chosen else _NOTHING

    rules = {rule.record: rule.expr for group in groups() for rule in group.rules}
    return {**rules, **gpu_families(select)}


def inline(query: str, known: Mapping[str, str], *, step: str) -> str:
    """The query with each recorded family replaced by its expression; a range becomes a subquery."""

    def expression(found: re.Match[str]) -> str:
        name, matcher, span = found.groups()
        whole = filtered(f"({inline(known[name], known, step=step)})", matcher or "")
        return f"{whole}[{span}:{step}]" if span else whole

    return _RECORDED.sub(expression, query)
