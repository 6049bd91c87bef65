"""`@immutable` classes are dataclasses in all that others rely on."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace

import pytest

from rightsizer_engine.values import immutable


@immutable
class Noun:
    """A value with every kind of field."""

    name: str
    gpus: int = 8
    notes: list[str] = field(default_factory=list)

    def __post_init__(self):
        if self.gpus < 1:
            raise ValueError("gpus")


@immutable
class Other:
    """Another class with equal fields."""

    name: str
    gpus: int = 8
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An equal class by the standard library."""

    name: str
    gpus: int = 8


ONE = Noun(name="a")


def test_fields_defaults_and_text_are_those_of_a_dataclass():
    assert [f.name for f in fields(Noun)] == ["name", "gpus", "notes"]
    assert asdict(ONE) == {"name": "a", "gpus": 8, "notes": []}
    assert Noun(name="b").notes is not Noun(name="b").notes
    assert repr(Noun(name="b", gpus=1)) == "Noun(name='b', gpus=1, notes=[])"


def test_equality_is_by_content_and_class():
    assert Noun(name="a") == ONE != Noun(name="a", gpus=1)
    assert Other(name="a") != ONE
    assert hash(replace(ONE, notes=())) == hash(Noun(name="a", notes=()))


@pytest.mark.parametrize("made", [copy.copy(ONE), copy.deepcopy(ONE), pickle.loads(pickle.dumps(ONE))])  # noqa: S301
def test_copies_are_equal_and_frozen(made):
    assert made == ONE
    assert made is not ONE
    with pytest.raises(FrozenInstanceError):
        made.gpus = 1


@pytest.mark.parametrize("change", [lambda: setattr(ONE, "gpus", 1), lambda: delattr(ONE, "gpus")])
def test_nothing_can_be_changed(change):
    with pytest.raises(FrozenInstanceError):
        change()
    assert not hasattr(ONE, "__dict__")


@pytest.mark.parametrize("given", [{}, {"name": "a", "gpu": 1}, {"nme": "a"}], ids=repr)
@pytest.mark.parametrize("noun", [Noun, Written])
def test_wrong_arguments_are_refused_as_the_standard_library_does(noun, given):
    with pytest.raises(TypeError):
        noun(**given)


def test_positions_are_refused():
    with pytest.raises(TypeError):
        Noun("a")


def test_a_class_checks_itself_after_it_is_made():
    with pytest.raises(ValueError, match="gpus"):
        replace(ONE, gpus=0)
