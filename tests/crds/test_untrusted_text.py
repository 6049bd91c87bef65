import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_api.untrusted_text import printable, printable_strings

CLIPBOARD = "\x1b]52;c;cm0gLXJm\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("OSError: disk full\n  at step 7", "OSError: disk full\n  at step 7"),
        (f"done{CLIPBOARD}", "done?]52;c;cm0gLXJm?"),
        ("\x1b[2J\x1b[31mFAILED", "?[2J?[31mFAILED"),
        ("a\rb\tc", "a?b c"),
        ("evil\u202egnp.exe", "evil?gnp.exe"),
        ("Gr\u00f6\u00dfe \u6570", "Gr\u00f6\u00dfe \u6570"),
    ],
    ids=["plain", "clipboard", "colours", "carriage return", "right to left", "other scripts"],
)
def test_no_escape_sequence_reaches_a_terminal(text, shown):
    assert printable(text) == shown


def test_a_long_text_is_cut():
    assert printable("x" * 50, most_characters=10) == "x" * 10 + "..."


@given(
    st.recursive(st.text() | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(st.text(), v))
)
def test_all_strings_of_a_document_become_printable(document):
    def strings(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | dict):
            for item in [*value, *(value.values() if isinstance(value, dict) else ())]:
                yield from strings(item)

    shown = "".join(strings(printable_strings(document))).replace("\n", "")
    assert not [c for c in shown if unicodedata.category(c).startswith("C")]
