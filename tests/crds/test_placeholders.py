import dataclasses

import pytest

from rightsizer_api import expand
from rightsizer_api.placeholders import LAYOUT_NAMES, check, layout_of, layout_values
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.errors import InputError

LAYOUT = Layout(dp=4, tp=2, sharding=Sharding.ZERO3, recompute=Recompute.SELECTIVE, sequence_parallel=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--tp={layout.tp}", "--tp=2"),
        ("{layout.dp}x{layout.tp}={layout.gpus}", "4x2=8"),
        ("{layout.sharding}/{layout.recompute}", "zero3/selective"),
        ("{layout.sequenceParallel}", "true"),
        ("{checkpoint.path}", "/ckpt"),
        ("{{layout.tp}}", "{layout.tp}"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        ('{"tp": {layout.tp}}', '{"tp": 2}'),
        ("${trainer.devices} {epoch} {}", "${trainer.devices} {epoch} {}"),
        ("plain", "plain"),
    ],
    ids=lambda text: text,
)
def test_placeholders_are_filled_in_and_nothing_else_is_touched(text, expected):
    assert expand([text], LAYOUT, {"checkpoint.path": "/ckpt"}) == [expected]


def test_a_value_is_never_expanded_again():
    assert expand(["{checkpoint.path}"], LAYOUT, {"checkpoint.path": "{layout.tp}"}) == ["{layout.tp}"]


def test_an_unknown_placeholder_names_the_nearest():
    with pytest.raises(InputError, match=r"'{layout.microbatch}': .*did you mean {layout.microBatch}"):
        check("{layout.microbatch}", field="spec.launch.args[0]")


def test_a_placeholder_without_a_value_is_an_error():
    with pytest.raises(InputError, match=r"{checkpoint.path}.*has no value here"):
        expand(["{checkpoint.path}"], LAYOUT)


def test_every_field_of_a_layout_has_a_placeholder():
    fields = {f.name for f in dataclasses.fields(Layout)} | {"gpus"}
    assert fields == set(LAYOUT_NAMES.values())


def test_a_layout_survives_its_wire_names():
    assert layout_of(layout_values(LAYOUT)) == LAYOUT


@pytest.mark.parametrize(
    "values",
    [
        [1],
        {"dp": "x"},
        {"dp": 0},
        {"dp": True},
        {"tp": 2.0},
        {"dp": 2**20, "tp": 2**20},
        {"sharding": "sideways"},
        {"sequenceParallel": 1},
    ],
    ids=str,
)
def test_values_of_no_layout_are_refused(values):
    with pytest.raises(InputError, match="layout"):
        layout_of(values)
