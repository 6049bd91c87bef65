"""What the operator knows and does, as values parsed once from the API's objects."""

__all__: list[str] = []
