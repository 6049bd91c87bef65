import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "torchrun: starts real torchrun processes (seconds, not milliseconds)")
