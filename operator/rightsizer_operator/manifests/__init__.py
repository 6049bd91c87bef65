"""Kubernetes objects that the operator creates, as plain dicts. Pure."""
