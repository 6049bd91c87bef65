import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_engine.errors import InputError
from rightsizer_telemetry.promql import any_of, duration, matchers, quote_regex, relabel, string


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", '"plain"'),
        ('a"} or up{x="', r'"a\"} or up{x=\""'),
        ("back\\slash", r'"back\\slash"'),
        ("line\nbreak", r'"line\nbreak"'),
        ("\x00", r'"\u0000"'),
        ("gr\u00fc\u00dfe", '"gr\u00fc\u00dfe"'),
    ],
    ids=["plain", "quote", "backslash", "newline", "control", "unicode"],
)
def test_foreign_text_stays_inside_its_string(text, written):
    assert string(text) == written


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_string_ends_where_it_should(text):
    inside = string(text)[1:-1]
    assert re.fullmatch(r'(?:[^"\\\n]|\\.)*', inside)


@given(st.text(), st.text())
def test_a_quoted_regex_matches_its_text_and_no_other(text, other):
    assert re.fullmatch(quote_regex(text), text)
    assert (re.fullmatch(quote_regex(text), other) is not None) == (text == other)


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(InputError):
        string("\ud800")


def test_several_values_are_one_matcher():
    assert matchers(a="x", b=["d.e", "c"]) == r'{a="x",b=~"c|d\\.e"}'
    assert any_of(["b", "a", "b"]) == "a|b"


def test_labels_are_rewritten_in_order():
    assert relabel("up", [("a", "$1", "b", "(.+)")]) == 'label_replace(up, "a", "$1", "b", "(.+)")'


def test_a_range_is_whole_seconds():
    assert (duration(89.6), duration(0.1)) == ("90s", "1s")
