import difflib

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.naming import Spellings, build_index, nearest, normal
from rightsizer_engine.errors import UnknownNameError

NAMES = tuple(model.name for model in lookup.models())
INDEX = build_index(Spellings(name=name, exact=(name,)) for name in NAMES)


@pytest.mark.parametrize("change", [0, 2, -2], ids=["first letter", "third", "last but one"])
def test_a_name_with_a_letter_left_out_is_as_near_as_by_comparing_with_all(change: int) -> None:
    for name in NAMES[::7]:
        letters = list(name)
        del letters[change]
        wrong = "".join(letters)
        likeness = difflib.SequenceMatcher(None, normal(name), normal(wrong)).ratio()
        if normal(wrong) not in INDEX and likeness > 0.8:
            assert name in nearest(INDEX, wrong)[:6] or len(nearest(INDEX, wrong)) == 6, wrong


@pytest.mark.parametrize("name", ["x" * 10_000, "llama" * 50, "ab" * 500, "-", "7b" * 100])
def test_a_name_of_any_length_is_handled(name: str) -> None:
    assert len(nearest(INDEX, name)) <= 6


def test_a_spelling_that_means_nothing_here_is_no_candidate() -> None:
    index = build_index(Spellings(name=name, exact=(name,)) for name in ("OPT 13B", "OPT 1.3B"))
    assert nearest(index, "OPT 13B", but="opt13b") == ("OPT 1.3B",)


def test_a_name_of_another_size_is_not_offered_as_itself() -> None:
    with pytest.raises(UnknownNameError) as caught:
        lookup.model("Qwen2.5-Omni-7B")
    assert "Qwen2.5 7B" in caught.value.candidates
