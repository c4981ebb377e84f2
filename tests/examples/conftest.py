"""The fixtures of the local tests: examples are run by the same command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.command import Command, wait_gone
from tests.local.conftest import warm_parent

__all__ = ["command", "warm_parent"]


@pytest.fixture
def command(tmp_path: Path, warm_parent: Path) -> Iterator[Command]:
    """A command in a folder of its own; nothing of it may be left."""
    one = Command(tmp_path, warm_parent)
    yield one
    left = {pid for pid in one.processes() if not wait_gone(pid)}
    one.close()
    assert not left, f"these processes were left: {left}"
