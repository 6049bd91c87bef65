import importlib
import sys

import pytest

from rightsizer_launch.stacks.import_hook import after_import


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "some_stack").mkdir()
    (tmp_path / "some_stack" / "__init__.py").write_text("")
    (tmp_path / "some_stack" / "trainer.py").write_text("STEPS = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield "some_stack.trainer"
    for name in ("some_stack", "some_stack.trainer"):
        sys.modules.pop(name, None)


def test_nothing_is_imported_before_the_script_does(package):
    seen = []
    after_import(package, lambda module: seen.append(module.STEPS))
    assert "some_stack" not in sys.modules
    assert not seen
    importlib.import_module(package)
    importlib.import_module(package)
    assert seen == [3]


def test_a_module_that_is_there_already_is_adapted_at_once(package):
    seen = []
    importlib.import_module(package)
    after_import(package, lambda module: seen.append(module.STEPS))
    assert seen == [3]


def test_a_module_that_does_not_exist_fails_as_without_the_hook():
    after_import("no_such_stack", lambda _module: None)
    with pytest.raises(ModuleNotFoundError, match="no_such_stack"):
        importlib.import_module("no_such_stack")


def test_the_module_keeps_its_own_loader(package):
    after_import(package, lambda _module: None)
    assert type(importlib.import_module(package).__loader__).__name__ == "SourceFileLoader"
