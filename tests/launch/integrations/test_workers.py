import pytest

from rightsizer_engine.errors import InputError
from rightsizer_launch.integrations.workers import joined_by_all


def test_workers_that_train_alone_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    joined_by_all(2)
    with pytest.raises(InputError, match="torchrun started 2"):
        joined_by_all(1)


def test_a_script_without_torchrun_is_one_worker(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    joined_by_all(1)
