"""The live plan of the tests of kubectl."""

from tests.operator.kubectl.conftest import plan  # noqa: F401 (a fixture)
