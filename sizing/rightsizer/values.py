"""`@immutable`: a frozen, slotted, keyword-only dataclass that is quick to make.

`@dataclass(frozen=True, slots=True, kw_only=True)` writes six methods as source text for each class and
compiles them, which for our classes was a tenth of the start of `rightsizer plan` (Python 3.11; 3.13 compiles
a class at once). These are closures over the fields instead. It is a dataclass all the same: `fields`,
`replace`, `asdict`, copies, pickles and type checkers see no difference.
"""

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

__all__ = ["immutable"]

T = TypeVar("T")

_set = object.__setattr__


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def immutable(cls: type[T]) -> type[T]:
    """The class as a dataclass whose instances cannot change, and are equal where all their fields are."""
    own = vars(cls)
    made: type[T] = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    methods = {"__init__": _maker(made), "__setattr__": _refuse, "__delattr__": _refuse} | _of_fields(made)
    for name, method in methods.items():
        if name not in own or own[name] is None:  # without an eq of its own
            setattr(made, name, method)
    return made


def _maker(cls: type[Any]) -> Callable[..., None]:
    """`__init__` by keyword, with defaults; as strict as a written one."""
    defaults = [(f.name, f.default, f.default_factory) for f in fields(cls)]
    finish = hasattr(cls, "__post_init__")

    def init(self: Any, **given: Any) -> None:
        for name, default, factory in defaults:
            if name in given:
                content = given.pop(name)
            elif default is not MISSING:
                content = default
            elif factory is not MISSING:
                content = factory()
            else:
                raise TypeError(f"{cls.__name__}() lacks the keyword argument {name!r}")
            _set(self, name, content)
        if given:
            raise TypeError(f"{cls.__name__}() got an unexpected argument {next(iter(given))!r}")
        if finish:
            self.__post_init__()

    return init


def _of_fields(cls: type[Any]) -> dict[str, Callable[..., Any]]:
    """Comparing, showing and copying, field by field."""
    names = tuple(f.name for f in fields(cls))

    def contents(self: object) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in names])

    def equal(self: object, other: object) -> bool:
        return contents(self) == contents(other) if other.__class__ is cls else NotImplemented

    def hashed(self: object) -> int:
        return hash(contents(self))

    def shown(self: object) -> str:
        return f"{cls.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def restore(self: object, state: tuple[Any, ...]) -> None:
        for name, content in zip(names, state, strict=True):
            _set(self, name, content)

    return {
        "__eq__": equal,
        "__hash__": hashed,
        "__repr__": shown,
        "__getstate__": contents,
        "__setstate__": restore,
    }


def _refuse(_self: object, name: str, *_content: object) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r}")
