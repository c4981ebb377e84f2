"""Fixtures of the transport's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.transport.harness import Town


@pytest.fixture(params=[True, False], ids=["memory", "socket"])
def town(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Town]:
    """An empty roster, to be settled; with what peers of one host have, and with what those of two have."""
    town = Town(tmp_path / "roster.json", request.param)
    yield town
    town.close()
