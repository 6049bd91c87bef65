import os
import socket
import threading
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_api.untrusted_text import printable, printable_strings, read_bytes, read_text
from rightsizer_engine.errors import InputError

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


def test_a_file_is_read_with_the_line_ends_of_this_system(tmp_path):
    (tmp_path / "runs.csv").write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert read_text(tmp_path / "runs.csv", field="--runs") == "a\nb"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def bound_socket(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    return folder / "socket"


def binary(folder: Path) -> Path:
    (folder / "runs.csv").write_bytes(b"\xff\xfe\x00")
    return folder / "runs.csv"


UNREADABLE = {
    "missing": (lambda folder: folder / "none", "no such file"),
    "folder": (lambda folder: folder, "is a directory; name a file"),
    "endless": (lambda _: Path("/dev/zero"), "has more than 1,000 bytes"),
    "pipe without a writer": (pipe, "cannot be read: it is a pipe without a writer"),
    "socket": (bound_socket, "cannot be read: no such device or address"),
    "null character": (lambda _: Path("a\0b"), "cannot be read: embedded null"),
    "binary": (binary, "is not UTF-8 text"),
}


@pytest.mark.parametrize(("make", "remedy"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_named_by_its_option(make, remedy, tmp_path):
    with pytest.raises(InputError, match=f"^--runs: .*{remedy}"):
        read_text(make(tmp_path), field="--runs", most_bytes=1000)


@pytest.mark.parametrize("text", [b"", b"a plan"], ids=["empty", "text"])
def test_a_pipe_is_read_to_its_end(text, tmp_path):
    path = pipe(tmp_path)
    writer = threading.Thread(target=path.write_bytes, args=(text,))
    writer.start()
    assert read_bytes(path, field="FILE") == text
    writer.join()
