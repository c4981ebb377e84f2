"""Whether members restart together is asked once in a look at a job: when its regime is chosen."""

import pytest
from trainmaster.api.generate import ROOT
from trainmaster.core.regime.choice import look
from trainmaster.core.regime.independent import Founding, Independent
from trainmaster.core.regime.together import Together
from trainmaster.core.states.observed import Observed

from tests.builders import NOON, a_job

CORE = ROOT / "operator/trainmaster/core"


@pytest.mark.parametrize(
    ("strategy", "phase", "expected"),
    [
        ("AllReduce", "Pending", Together),
        ("AllReduce", "Running", Together),
        ("Gossip", "Pending", Founding),
        ("Gossip", "Starting", Founding),
        ("Gossip", "Running", Independent),
        ("Gossip", "Restarting", Founding),
    ],
)
def test_the_strategy_and_whether_its_members_have_begun_choose_the_regime(
    strategy: str, phase: str, expected: type[Together]
) -> None:
    job = a_job().where(strategy={"type": strategy}).with_workers(2).at(phase).build()
    assert type(look(job, Observed(), NOON).regime) is expected


def test_nothing_else_in_the_core_asks_for_it() -> None:
    asking = [
        path.relative_to(CORE).as_posix() for path in CORE.rglob("*.py") if ".independent" in _code(path.read_text())
    ]
    assert asking == ["regime/choice.py"]


def _code(text: str) -> str:
    """The text without imports, which name the module of a regime."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("from "))
