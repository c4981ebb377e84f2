"""The fixtures of the local tests: examples are run by the same command."""

from tests.local.conftest import warm_parent

__all__ = ["warm_parent"]
