"""Runs a function right after a module was first imported, and imports nothing itself.

A script may set variables, or import a package that must come first, before it imports its training stack.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _Loader(Loader):
    """The module's own loader, then `act`."""

    def __init__(self, loader: Loader, act: Callable[[ModuleType], None]) -> None:
        self._loader, self._act = loader, act

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._act(module)


class _Finder(MetaPathFinder):
    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._act)
        return spec


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call `act(module)` once the module `name` is imported; at once if it already is."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, act))
