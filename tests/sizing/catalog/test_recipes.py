import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.recipes import recipe, recipes
from rightsizer_engine.domain.workload import Precision


@pytest.mark.parametrize("one", recipes(), ids=lambda one: one.model)
def test_a_recipe_is_of_a_catalog_model_that_can_hold_its_sequences(one):
    longest = lookup.model(one.model).max_sequence
    assert lookup.model(one.model).name == one.model
    assert one.sequence_tokens <= (longest or one.sequence_tokens)
    assert one.batch_tokens % one.sequence_tokens == 0
    assert len(one.source) > 10


def test_deepseek_v3_was_pretrained_in_8_bits():
    found = recipe("DeepSeek-V3 671B")
    assert found is not None
    assert (found.sequence_tokens, found.batch_tokens) == (4096, 15_360 * 4096)
    assert found.precision is Precision.FP8


def test_a_model_without_a_published_recipe_has_none():
    assert recipe("Mistral Large 2 123B") is None
