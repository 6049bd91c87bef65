"""The reading of published tables' cells."""

import pytest

from rightsizer_engine.published import fields


@pytest.mark.parametrize(
    ("cell", "modules"),
    [
        ("selective(mlp act + norm)", True),
        ("selective([moe_act])", True),
        ("selective(core_attn)", False),
        ("selective", False),
        ("full", False),
    ],
)
def test_selective_recompute_may_name_modules_other_than_attention(cell, modules):
    assert fields.recomputes_modules(cell) == modules
