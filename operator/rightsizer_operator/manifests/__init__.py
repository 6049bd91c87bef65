"""Kubernetes objects that the operator creates, as plain dicts. Pure."""

__all__: list[str] = []
