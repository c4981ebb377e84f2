"""IndependentMember is one rank of a strategy whose members come and go one by one, without a common process group.

A strategy of this kind has it instead of a `Group`.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from trainmaster_trainer import randomness
from trainmaster_trainer.data import Batches
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.fault_injection import Faults
from trainmaster_trainer.group import Group, choose_device
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.samples import open_batches
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.task import Task, load_task
from trainmaster_trainer.transport.directory import Directory
from trainmaster_trainer.transport.handshake import Identity, identify
from trainmaster_trainer.transport.links import Links
from trainmaster_trainer.transport.service import inherited_listener

log = logging.getLogger(__name__)


@dataclass
class IndependentMember:
    """IndependentMember holds a rank, what it is to train, and how it reaches the others."""

    settings: Settings
    progress: Progress
    task: Task
    device: torch.device
    identity: Identity
    directory: Directory
    links: Links
    listener: socket.socket
    stop: threading.Event  # set when SIGTERM comes
    faults: Faults
    failures: list[Exception] = field(default_factory=list)  # of threads that answer others
    closing: list[Callable[[], None]] = field(default_factory=list)
    passed: int = 0

    def check(self) -> None:
        """Raise, in the main thread, the error of another thread."""
        if self.failures:
            raise self.failures[0]

    def beside(self, work: Callable[[], None], name: str) -> None:
        """Run this in a thread of its own; `check` raises its error."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                log.exception("The thread %r is over.", name)
                self.failures.append(error)

        threading.Thread(target=guarded, name=name, daemon=True).start()

    def seen(self, step: int) -> None:
        """Carry out the faults (`--fault`) of the steps that the training has come to."""
        while self.passed < step:
            self.passed += 1
            self.faults.after(self.passed)

    @cached_property
    def numerics(self) -> Numerics:
        """Return how its steps compute."""
        return Numerics.from_plan(self.settings.plan)

    @property
    def rank(self) -> int:
        """Return its number among all ranks."""
        return self.settings.rank

    @property
    def options(self) -> Mapping[str, Any]:
        """Return the options of the strategy, as in the YAML."""
        return self.settings.plan.strategy_options

    def alone(self) -> Group:
        """Return a group of one, for checkpoints and metrics that one member writes on its own."""
        return Group(0, 1, 0, 1, self.device, dist.HashStore())  # type: ignore[attr-defined]

    def batches(self) -> Batches:
        """Return the batches of the task's samples, before a model is made: its data workers are forked here."""
        batches = open_batches(self.settings, self.task, self.device)
        self.closing.append(batches.close)
        self.settings = self.settings.for_samples(batches.count)
        self.progress.lasts(self.settings.plan)
        randomness.seed_alike(self.settings.plan.seed)  # for the model, which may be made anew
        return batches

    def close(self) -> None:
        """End what this member has started."""
        for close in self.closing:
            close()
        self.links.close()


def become_member(settings: Settings, progress: Progress) -> IndependentMember:
    """Take over the socket and the roster that the agent gave.

    Raises:
        ConfigurationError: it gave none, or the task is no task.
    """
    plan = settings.plan
    if settings.roster_file is None or settings.listen_fd is None:
        raise ConfigurationError(
            f"spec.strategy.type: members of {plan.strategy} come and go one by one, so they run under `trainmaster "
            "run` or the operator. torchrun cannot start them; use AllReduce there."
        )
    randomness.seed_alike(plan.seed)  # for what the task draws when it is made
    task = load_task(plan.task or "", plan.arguments)
    directory = Directory(settings.roster_file)
    identity = identify(settings.rank, settings.attempt, directory.roster.rendezvous.key)
    randomness.seed_alike(plan.seed)  # for the model, which may be made anew
    return IndependentMember(
        settings,
        progress,
        task,
        choose_device(settings),
        identity,
        directory,
        _links(identity, directory, settings, progress),
        inherited_listener(settings.listen_fd),
        _stop_event(),
        Faults(os.environ, settings),
    )


def _links(identity: Identity, directory: Directory, settings: Settings, progress: Progress) -> Links:
    def waiting() -> None:
        progress.enter("load")  # a peer's absence is no hang of ours

    return Links(identity, directory, waiting, shares_memory=settings.shared_memory)


def _stop_event() -> threading.Event:
    event = threading.Event()

    def remember(_signal: int, _frame: FrameType | None) -> None:
        event.set()

    signal.signal(signal.SIGTERM, remember)
    return event
