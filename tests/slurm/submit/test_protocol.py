import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_engine.errors import InputError
from rightsizer_slurm.submit.protocol import (
    SizingRequest,
    SizingResponse,
    SizingVerdict,
    parse_request,
    response_text,
)


@pytest.mark.parametrize("head", [b"RIGHTSIZER 2 SIZE", b"RIGHTSIZER 1 PLAN"], ids=["now", "version 1"])
def test_a_request_survives_the_round_trip(head: bytes) -> None:
    text = head + b"\ncomment=rightsizer: a=b c=d\nuid=7\nmin_nodes=2\nlater=x\nEND\n"
    assert parse_request(text) == SizingRequest(comment="rightsizer: a=b c=d", uid=7, min_nodes=2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIGHTSIZER 2 SIZE\n",
        b"RIGHTSIZER 3 SIZE\nEND\n",
        b"RIGHTSIZER 2 PLAN\nEND\n",
        b"RIGHTSIZER 1 SIZE\nEND\n",
        b"RIGHTSIZER x PLAN\nEND\n",
        b"GET / HTTP/1.1\nEND\n",
        b"RIGHTSIZER 2 SIZE\nuid=-1\nEND\n",
        b"RIGHTSIZER 2 SIZE\nmin_nodes=" + b"9" * 30 + b"\nEND\n",
    ],
    ids=[
        "nothing",
        "no end",
        "version",
        "another verb",
        "a newer verb",
        "no version",
        "http",
        "negative",
        "huge",
    ],
)
def test_an_invalid_request_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_request(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_an_input_error(data: bytes) -> None:
    with contextlib.suppress(InputError):
        parse_request(data + b"\nEND\n")


@given(st.text(max_size=300), st.text(max_size=50))
def test_no_text_can_add_a_line_to_a_response(say: str, value: str) -> None:
    response = SizingResponse(
        verdict=SizingVerdict.OK, say=say, fields={"gres": value}, variables={"RIGHTSIZER_X": value}
    )
    lines = response_text(response).decode("ascii").split("\n")
    assert [line.split("=")[0] for line in lines] == [
        "RIGHTSIZER 2 OK",
        "gres",
        "env.RIGHTSIZER_X",
        "say",
        "END",
        "",
    ]


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        ({}, None),
        ({"max_nodes": 3}, 3),
        ({"min_nodes": 2}, 2),
        ({"num_tasks": 2, "max_nodes": 4}, 2),
        ({"num_tasks": 8, "ntasks_per_node": 4, "max_nodes": 2}, 2),
    ],
)
def test_the_most_nodes_are_what_the_user_wrote(words: dict[str, int], nodes: int | None) -> None:
    assert SizingRequest(**words).most_nodes == nodes
