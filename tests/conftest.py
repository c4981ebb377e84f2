"""What holds for all tests: no judgement by the clock, a Ctrl-C that can be tested, and who runs beside whom.

`make test` shares the folders among three processes (pytest-xdist): the cluster's tests mostly
wait for pods, which leaves the machine to the others. A folder stays in one process and in its own order, so what a
session of tests shares (a cluster, an API server, a warm parent, a process to fork from) is started once.
"""

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
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

HERE = Path(__file__).parent
SHARE_A_SERVER = ("cluster_hand", "platforms", "charts")
SHARE_A_WARM_PARENT = ("local", "examples", "frameworks")
# Real processes, beside others on a shared machine: what fails there is tried once more, and both tries are told.
# Nothing in tests/core or tests/simulation, whose outcome is the code's alone (docs/decisions/0100).
SECOND_TRY = {
    "agent",
    "cluster",
    "cluster_hand",
    "examples",
    "frameworks",
    "local",
    "platforms",
    "trainer",
    "transport",
    "xla",
}
LONGEST_FIRST = ("cluster", "trainer", "local", "agent", "cluster_hand", "xla", "simulation")
"""Groups in the order in which a free process takes them; the rest comes last, as one group."""


def _group(folder: str) -> str:
    """Tests that must follow one another in one process."""
    for shared in (SHARE_A_SERVER, SHARE_A_WARM_PARENT):
        if folder in shared:
            return shared[0]
    return folder if folder in LONGEST_FIRST else "quick"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the order in which groups are taken."""
    for item in items:
        if item.path.relative_to(HERE).parts[0] in SECOND_TRY:
            item.add_marker(pytest.mark.flaky(reruns=1))
    order = (*LONGEST_FIRST, "quick")
    items.sort(key=lambda item: order.index(_group(item.path.relative_to(HERE).parts[0])))


class ByFolder(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """pytest-xdist hands out one group after the other, each as a whole."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.split("/")[1])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Asked by pytest-xdist, and by nobody where one process runs all."""
    return ByFolder(config, log)
