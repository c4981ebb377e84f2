"""Fixtures of the transport's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.harness import Town


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    """An empty roster, to be settled."""
    town = Town(tmp_path / "roster.json")
    yield town
    town.close()
