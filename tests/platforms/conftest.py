"""Fixtures of the contract's worlds, shared with the tests that are about those worlds alone."""

from tests.cluster.conftest import server
from tests.local.conftest import warm_parent

__all__ = ["server", "warm_parent"]
