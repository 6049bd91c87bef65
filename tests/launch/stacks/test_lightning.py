import pytest

from rightsizer_launch.stacks.lightning import arguments


@pytest.fixture
def plan(monkeypatch):
    variables = {
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_WORLD_SIZE": "2",
        "RIGHTSIZER_GLOBAL_BATCH_SEQUENCES": "16",
        "RIGHTSIZER_SEQUENCE_TOKENS": "64",
        "RIGHTSIZER_TOKENS": "150000",
        "RIGHTSIZER_PRECISION": "bf16",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_torchruns_workers_and_the_plans_length_win(plan):
    filled = arguments({"devices": 8, "max_epochs": 3, "log_every_n_steps": 5, "callbacks": [1]})
    assert (filled["devices"], filled["num_nodes"]) == (4, 2)
    assert (filled["max_epochs"], filled["max_steps"]) == (-1, 147)
    assert filled["log_every_n_steps"] == 5
    assert "callbacks" not in filled


@pytest.mark.parametrize(("given", "strategy"), [({}, "ddp"), ({"strategy": "ddp_find"}, "ddp_find")])
def test_a_strategy_of_the_script_stays(plan, given, strategy):
    assert arguments(given)["strategy"] == strategy


@pytest.mark.parametrize(
    ("given", "precision"), [({}, "bf16-mixed"), ({"precision": "bf16-true"}, "bf16-true")]
)
def test_the_scripts_name_of_the_plans_precision_stays(plan, given, precision):
    assert arguments(given)["precision"] == precision


def test_another_precision_is_the_plans(plan):
    assert arguments({"precision": 16})["precision"] == "bf16-mixed"


def test_without_a_plan_the_script_keeps_its_length(plan):
    plan.delenv("RIGHTSIZER_GLOBAL_BATCH_SEQUENCES")
    assert arguments({"max_epochs": 3}).get("max_epochs") == 3
