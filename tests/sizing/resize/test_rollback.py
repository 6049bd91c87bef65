"""The consequence of a failure at a size: only a size at which a step was seen may end a run that trained."""

import pytest

from rightsizer_engine.resize.rollback import SizeAttempt, has_trained, rollback_target


def tried(*words):
    """`2+` is two GPUs that trained, `4-` four that did not; a third letter is the layout."""
    return tuple(SizeAttempt(gpus=int(word[0]), trained=word[1] == "+", layout=word[2:]) for word in words)


@pytest.mark.parametrize(
    ("trials", "back"),
    [
        ((), None),
        (("4-",), None),
        (("2+",), None),
        (("2+", "4-"), "2+"),
        (("4+", "2-"), "4+"),
        (("2+", "4+"), None),
        (("2+", "4-", "4-"), "2+"),
        (("4+", "4-"), None),
        (("2+", "4-", "2-"), None),
        (("2+", "4+", "2+", "4-"), "2+"),
        (("2+", "4+", "8-"), "4+"),
        (("8+", "2-", "4-"), "8+"),
        (("4+a", "4-b"), "4+a"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_failure_leads_back_to_the_newest_other_size_that_trained(trials, back):
    assert rollback_target(tried(*trials)) == (tried(back)[0] if back else None)


@pytest.mark.parametrize(
    ("world", "steps", "known"), [(4, True, True), (3, True, False), (2, True, False), (4, False, False)]
)
def test_a_size_is_proven_by_steps_of_all_its_ranks(world, steps, known):
    assert has_trained(4, world=world, steps=steps) is known
