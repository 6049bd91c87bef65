"""A strict reader of a model's config. It checks types and bounds; errors give key, value and remedy."""

from collections.abc import Mapping, Sequence

from rightsizer_engine.errors import InputError

_MOST = 2**24
"""Upper bound of any dimension (a vocabulary has 2**18 entries, the widest layer 2**17)."""
_MOST_LAYERS = 10_000


class Config:
    """Read-only access to one mapping; `path` is the prefix of the field in errors."""

    __slots__ = ("_values", "path")

    def __init__(self, values: Mapping[str, object], path: str = "model.config") -> None:
        self._values = values
        self.path = path

    def has(self, *keys: str) -> bool:
        """True if every key is present and not null."""
        return all(self._values.get(key) is not None for key in keys)

    def count(self, *keys: str, default: int | None = None, least: int = 1, most: int = _MOST) -> int:
        """The first present key as an integer within bounds; else the default, else an error."""
        for key in keys:
            value = self._values.get(key)
            if value is not None:
                return self._integer(key, value, least, most)
        if default is None:
            names = " or ".join(keys)
            raise InputError(f"{self.path}.{keys[0]}", value=None, remedy=f"missing; set {names}")
        return default

    def side(self, key: str, *, default: int, most: int) -> int:
        """The length of a square's side, or the first of two sides."""
        value = self._values.get(key)
        if isinstance(value, list | tuple) and value:
            return self._integer(key, value[0], 1, most)
        return self.count(key, default=default, most=most)

    def layers(self, *keys: str, default: int | None = None) -> int:
        """A number of layers."""
        return self.count(*keys, default=default, most=_MOST_LAYERS)

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.path}.{key}", value=value, remedy="must be true or false")
        return value

    def text(self, key: str, *, default: str = "") -> str:
        """A string."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InputError(f"{self.path}.{key}", value=value, remedy="must be a string")
        return value

    def is_text(self, key: str) -> bool:
        """True if the value is a string, such as "auto" in place of a number."""
        return isinstance(self._values.get(key), str)

    def items(self, key: str) -> Sequence[object]:
        """A list; empty if the key is absent."""
        value = self._values.get(key)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InputError(f"{self.path}.{key}", value=value, remedy="must be a list")
        return value

    def size(self, key: str, *, default: int) -> int:
        """The number of entries of a mapping or list (a classifier's labels)."""
        value = self._values.get(key)
        return len(value) if isinstance(value, Mapping | list | tuple) else default

    def section(self, key: str, defaults: Mapping[str, object] | None = None) -> "Config":
        """A nested mapping over its defaults."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise InputError(f"{self.path}.{key}", value=value, remedy="must be a mapping")
        return Config({**(defaults or {}), **(value or {})}, f"{self.path}.{key}")

    def quotient(self, key: str, whole: int, parts: int) -> int:
        """`whole` / `parts`, which must be exact; errors name `key`."""
        if whole % parts:
            remedy = f"must divide {whole}"
            raise InputError(f"{self.path}.{key}", value=parts, remedy=remedy)
        return whole // parts

    def _integer(self, key: str, value: object, least: int, most: int) -> int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole:
            raise InputError(f"{self.path}.{key}", value=value, remedy="must be a whole number")
        number = int(value)  # type: ignore[call-overload]
        if not least <= number <= most:
            raise InputError(f"{self.path}.{key}", value=value, remedy=f"must be from {least} to {most}")
        return int(number)
