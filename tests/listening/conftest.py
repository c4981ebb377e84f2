"""The process that serves, one for all tests of a listener."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.listening.asking import Served


@pytest.fixture(scope="module", params=["127.0.0.1", "::1"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Over IPv4, and over IPv6."""
    log = tmp_path_factory.mktemp("served") / "log"
    command = [sys.executable, "-m", "tests.listening.served", request.param]
    with log.open("wb") as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True) as child:
        assert child.stdout
        yield Served(int(child.stdout.readline()), child.pid, log, request.param)
        child.kill()
