"""Train without a process group across replicas: each member has a loop of its own.

`training_loop.py` is the loop of all other strategies: its ranks step together. Here, strategy and role decide what a
member does; the loops are in these modules:

    ParameterServer  worker            strategies/parameter_server/worker.py
    ParameterServer  parameterServer   strategies/parameter_server/server.py
    Gossip           worker            strategies/gossip/gossip_loop.py

A worker knows its own progress only; `training.steps` counts the global batches of all workers.
"""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.wire import names

from trainmaster_trainer import xla
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.independent_member import IndependentMember, become_member
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.strategies import find_strategy
from trainmaster_trainer.strategies.gossip import gossip_loop
from trainmaster_trainer.strategies.parameter_server import server, worker

LOOPS: dict[tuple[str, str], Callable[[IndependentMember], int]] = {
    ("ParameterServer", names.WORKER): worker.train,
    ("ParameterServer", names.PARAMETER_SERVER): server.serve,
    ("Gossip", names.WORKER): gossip_loop.train,
}


def train_independently(settings: Settings, progress: Progress) -> int:
    """Do this member's part to the end, or until it is asked to stop. Return the exit code."""
    if settings.plan.reproducible or settings.plan.accelerator == xla.ACCELERATOR:
        find_strategy(settings.plan.strategy, settings.plan.reproducible, settings.plan.accelerator)  # says why not
    loop = LOOPS.get((settings.plan.strategy, settings.role))
    if loop is None:
        raise ConfigurationError(f"spec.strategy.type: {settings.plan.strategy} has no role {settings.role!r}.")
    member = become_member(settings, progress)
    try:
        return loop(member)
    finally:
        member.close()
