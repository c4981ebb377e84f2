"""Carried is a strategy as checkpoints and snapshots see it: its state, with what was measured and a stream's place."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from trainmaster.wire.manifest import STREAM

from trainmaster_trainer.checkpoint.checkpointable import Checkpointable, Snapshots
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.evaluations import Evaluations
from trainmaster_trainer.metric_names import MetricNames

if TYPE_CHECKING:
    from trainmaster_trainer.data import Batches

EVALUATIONS = "evaluations"  # among the scalars of a state
METRICS = "metrics"  # the names of those that are pending


class Carried:
    """Carried adds the evaluations, the names of the metrics, and a stream's place to the scalars of a state."""

    def __init__(
        self, strategy: Checkpointable, evaluations: Evaluations, names: MetricNames | None, batches: Batches | None
    ) -> None:
        self._strategy, self._evaluations, self._names, self._batches = strategy, evaluations, names, batches

    @property
    def snapshots(self) -> Snapshots:
        """Return how the ranks' snapshots relate to one another."""
        return self._strategy.snapshots

    @property
    def sync_every(self) -> int:
        """Return the steps between two at which ranks wait for one another."""
        return self._strategy.sync_every

    def outline(self) -> State:
        """Return a state that says what a checkpoint must fit, before one is restored."""
        return self._strategy.outline()

    def state(self) -> State:
        """Return the live tensors. All ranks call it together."""
        return self._with_more(self._strategy.state())

    def local_state(self) -> State:
        """Return what this rank itself holds, as plain tensors, without communication."""
        state = self._with_more(self._strategy.local_state())
        if self._names is not None:
            state.scalars[METRICS] = list(self._names.known)
        return state

    def _with_more(self, state: State) -> State:
        more: dict[str, Any] = {EVALUATIONS: self._evaluations.plain()} if self._evaluations.are_on else {}
        if self._batches is not None and self._batches.place is not None:
            more[STREAM] = self._batches.place
        return dataclasses.replace(state, scalars={**state.scalars, **more}) if more else state

    def restore(self, state: State) -> None:
        """Go on from a checkpoint of this job."""
        self._strategy.restore(state)
        self._take_over(state)

    def borrow(self, state: State) -> None:
        """Begin with a checkpoint of another job, whose evaluations and place in a stream are none of this one."""
        self._strategy.borrow(state)

    def restore_local(self, state: State) -> None:
        """Go on from what `local_state` returned."""
        self._strategy.restore_local(state)
        self._take_over(state)
        known = state.scalars.get(METRICS)
        if self._names is not None and isinstance(known, list):
            self._names.recall([str(name) for name in known])

    def _take_over(self, state: State) -> None:
        if self._evaluations.are_on and EVALUATIONS in state.scalars:
            self._evaluations.restore(state.scalars[EVALUATIONS])
        if self._batches is not None and self._batches.is_stream and STREAM in state.scalars:
            self._batches.go_on_from(state.scalars[STREAM])
