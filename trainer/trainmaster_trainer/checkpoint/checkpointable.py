"""Checkpointable is what checkpoints and snapshots need of a training: a state under names, and how to go on from one.

Strategies implement it for tasks, `scripts/script_objects.py` for scripts. A tensor in a state is either the same on
every rank that names it, or a DTensor, which knows what part it is, or one that this rank alone has (`State.own`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar, Protocol

from trainmaster_trainer.checkpoint.state import State


class Snapshots(Enum):
    """Snapshots says how the ranks' snapshots in memory (checkpoint/memory.py) relate to one another."""

    NONE = "none"  # none are taken
    REPLICATED = "replicated"  # every rank's has all that any rank needs
    PER_RANK = "per rank"  # each rank needs its own, all of the same step
    COPIED = "copied"  # likewise; where there are several replicas, another one keeps a copy of each
    NEIGHBOURS = "neighbours"  # as PER_RANK; what a rank alone has (`State.own`) is kept by another replica, too


class Checkpointable(Protocol):
    """Checkpointable is a training whose state outlives its processes."""

    @property
    def snapshots(self) -> Snapshots:
        """Return how the ranks' snapshots relate to one another."""

    @property
    def sync_every(self) -> int:
        """Return the steps between two at which ranks wait for one another."""

    def outline(self) -> State:
        """Return a state that says what a checkpoint must fit (`model_shapes`, `allowed`), before one is restored."""

    def state(self) -> State:
        """Return the live tensors. All ranks call it together."""

    def restore(self, state: State) -> None:
        """Go on from a checkpoint of this job: whole tensors, whoever saved them."""

    def borrow(self, state: State) -> None:
        """Begin with a checkpoint of another job (`spec.checkpoint.resumeFrom`)."""

    def local_state(self) -> State:
        """Return what this rank itself holds, as plain tensors, without communication."""

    def restore_local(self, state: State) -> None:
        """Go on from what `local_state` returned on this rank (REPLICATED: any rank), in a group of the same size.

        NEIGHBOURS: what is in `State.own` comes from there, the rest from any rank.
        """


class WholeState(ABC):
    """WholeState is the base of a training for which one state serves all: checkpoints, other jobs' and snapshots.

    As it stands it takes no snapshots; who takes some sets `snapshots`, and overrides what differs.
    """

    snapshots: ClassVar[Snapshots] = Snapshots.NONE
    sync_every = 1

    @abstractmethod
    def state(self) -> State:
        """Return the live tensors: the caller copies what it keeps."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Go on from a state that was saved, perhaps under another strategy."""

    def outline(self) -> State:
        """Return a state that says what a checkpoint must fit."""
        return self.state()

    def borrow(self, state: State) -> None:
        """Begin with a state that another job has saved."""
        self.restore(state)

    def local_state(self) -> State:
        """Return what this rank itself holds, as plain tensors, without communication, for a snapshot in memory."""
        return self.state()

    def restore_local(self, state: State) -> None:
        """Go on from what `local_state` returned on this rank (REPLICATED: any rank), in a group of the same size."""
        self.restore(state)
