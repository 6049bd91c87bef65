"""PromQL as text: quoting of foreign words, matchers, label rewriting."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from rightsizer_engine.errors import InputError

Step = tuple[str, str, str, str]
"""(target label, replacement, source label, regular expression), as label_replace takes them."""

_SPECIAL = frozenset(r"\.+*?()|[]{}^$")


def string(text: str) -> str:
    """A PromQL string literal. InputError for half a surrogate pair, which no server can be told.

    PromQL reads Go's escapes; JSON's, with characters outside ASCII left as they are, are a subset of them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("label", value=text, remedy="is not valid Unicode") from None
    return json.dumps(text, ensure_ascii=False)


def quote_regex(text: str) -> str:
    """A regular expression (RE2) that matches exactly this text."""
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in text)


def any_of(texts: Iterable[str]) -> str:
    """A regular expression that matches any of these texts; matchers anchor it at both ends."""
    return "|".join(quote_regex(text) for text in sorted(set(texts)))


def matchers(**wanted: str | Iterable[str]) -> str:
    """`{name="text",other=~"a|b"}`: one text is matched as it is, several as any of them."""
    parts = [
        f"{name}={string(value)}" if isinstance(value, str) else f"{name}=~{string(any_of(value))}"
        for name, value in wanted.items()
    ]
    return "{" + ",".join(parts) + "}"


_MATCHER = re.compile(r'(\w+)(!?=)"([^"\\]*)"')


def filtered(expression: str, wanted: str) -> str:
    """The series of an expression that meet these matchers (= and != only), where it is no plain selector."""
    for matcher in wanted.split(",") if expression and wanted else ():
        found = _MATCHER.fullmatch(matcher)
        assert found, matcher
        label, equal, value = found.groups()
        other = relabel("vector(1)", constants({label: value})) if value else "vector(1)"
        expression = f"({expression} {'and' if equal == '=' else 'unless'} on ({label}) {other})"
    return expression


def duration(seconds: float) -> str:
    """A range of whole seconds, at least one: `[300s]` without the brackets."""
    return f"{max(1, round(seconds))}s"


def relabel(expression: str, steps: Sequence[Step]) -> str:
    """The expression with label_replace applied for each step, in order."""
    for target, replacement, source, regex in steps:
        words = ", ".join(string(word) for word in (target, replacement, source, regex))
        expression = f"label_replace({expression}, {words})"
    return expression


def constants(labels: Mapping[str, str]) -> tuple[Step, ...]:
    """Steps for `relabel` that set labels to fixed words; the empty word takes a label away."""
    return tuple((name, word, "", "") for name, word in labels.items())
