"""What holds for all tests: no judgement by the clock, a Ctrl-C that can be tested, and who runs beside whom.

`make test` shares the tests among four processes (pytest-xdist): tests of the real cluster mostly wait, which leaves
the machine to the others. Tests that share what is expensive to start (a cluster, an API server, the environment of a
framework) stay in one process and in their own order. The others share at most a process to fork from: each of their
files is taken by whichever process is free.
"""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from trainmaster.wire import names
from typing_extensions import override
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Hypothesis never judges by the clock, which other work moves.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell starts its background jobs with SIGINT and SIGQUIT ignored, nohup with SIGHUP; what we start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Under PYTHONDONTWRITEBYTECODE, which containers often set, each process of pytest would take 10 s to rewrite the
# assertions of all files, and each of the processes that tests start would compile our packages anew.
sys.dont_write_bytecode = False

# Whatever collection makes stays; `pytest_collection_finish` begins to look for garbage.
gc.disable()

# As our agent has it, for ranks that tests start without one: torch asks a name server for each address.
os.environ.setdefault("RES_OPTIONS", names.RESOLVER_OPTIONS)

# Whoever runs the tests may have activated another environment, by whose Python scripts would run (0224).
for _active in ("VIRTUAL_ENV", "CONDA_PREFIX"):
    os.environ.pop(_active, None)

HERE = Path(__file__).parent
TURNS = ("onebox", "local", "cluster", "xla", "frameworks", "simulation", "trainer", "quick")
"""Groups in the order in which a free process takes them: the longest first, and what waits beside what computes."""
STAY_TOGETHER = ("onebox", "local", "cluster", "frameworks")
"""Groups that one process runs as a whole: what they share takes long to start, or there is one of it."""
SHARES = {"platforms": "cluster", "charts": "cluster", "examples": "frameworks"}
"""Folders whose tests belong to the group of another one, as they share what that has started."""


def _turn(path: Path) -> str:
    """Return the turn of a folder's tests."""
    folder = SHARES.get(path.parts[0], path.parts[0])
    return folder if folder in TURNS else "quick"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests in the order in which groups are taken, and each file's in its own."""
    items.sort(key=lambda item: TURNS.index(_turn(item.path.relative_to(HERE))))


def pytest_collection_finish() -> None:
    """Keep ten thousand tests and their modules out of each collection of garbage: they stay."""
    gc.collect()
    gc.freeze()
    gc.enable()


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """pytest-xdist hands out one group after the other, each as a whole."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        """Return the group of a test: all in it follow one another in one process."""
        path = Path(nodeid.split("::", maxsplit=1)[0])
        turn = _turn(path.relative_to(HERE.name))
        return turn if turn in STAY_TOGETHER else str(path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Asked by pytest-xdist, and by nobody where one process runs all."""
    return ByGroup(config, log)
