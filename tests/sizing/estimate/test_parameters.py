import pytest

from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.parameters import Parameter, Parameters, load_curves, load_step_time, parse


def one(name: str = "rate", value: float = 2.0) -> Parameter:
    return Parameter(name=name, value=value, prior=1.0, sigma_ln=0.1, unit="1", meaning="a rate")


def test_a_parameter_is_read_by_its_name() -> None:
    assert Parameters([one()]).rate == 2.0


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="speed"):
        _ = Parameters([one()]).speed


def test_replacing_leaves_the_original_alone() -> None:
    first = Parameters([one()])
    assert first.replace(rate=3.0).rate == 3.0
    assert first.rate == 2.0


def test_replacing_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="speed"):
        Parameters([one()]).replace(speed=1.0)


def test_keys_give_a_table_in_their_order() -> None:
    both = Parameters([one("rate_a", 1.0), one("rate_b", 2.0)])
    assert both.keyed("rate", ("b", "a")).tolist() == [2.0, 1.0]


def test_a_document_gives_its_provenance_to_every_parameter() -> None:
    row = '{"name": "rate", "value": 1, "prior": 1, "sigma_ln": 0, "unit": "1", "meaning": "a rate"}'
    found = parse('{"date": "2026-01-02", "parameters": [' + row + "]}")
    assert found.entry("rate").date == "2026-01-02"


def test_every_shipped_parameter_is_positive_and_explained() -> None:
    assert len(list(load_step_time())) > 100
    for name in load_step_time():
        entry = load_step_time().entry(name)
        assert entry.value > 0, name
        assert entry.prior > 0, name
        assert entry.unit, name
        assert len(entry.meaning) > 10, name


def test_the_step_time_needs_the_hardware_curves() -> None:
    assert set(load_curves()) <= set(load_step_time())


def test_no_parameter_is_keyed_to_a_model_or_a_paper() -> None:
    words = ("llama", "gpt", "bloom", "qwen", "deepseek", "mpt", "korth", "vtrain")
    assert not [name for name in load_step_time() if any(word in name for word in words)]


def test_a_name_that_no_parameter_has_is_refused_the_first_one_named() -> None:
    with pytest.raises(InputError, match="beta"):
        load_step_time().replace(zeta=1.0, beta=2.0)
