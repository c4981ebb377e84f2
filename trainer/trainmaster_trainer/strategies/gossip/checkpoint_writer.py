"""The checkpoint writer is the worker of the lowest rank in the roster: it writes metrics and checkpoints for all.

It decides nothing. If it is lost, the next worker goes on from what it has heard and from what the folder has, until
the lost one is back. Where each replica has a folder of its own, each worker writes checkpoints for itself.

On the way it evaluates its own model, which is what its checkpoints hold, while the others train on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.carried import EVALUATIONS
from trainmaster_trainer.checkpoint import lineage
from trainmaster_trainer.checkpoint.checkpointable import WholeState
from trainmaster_trainer.checkpoint.fetch import on_the_way
from trainmaster_trainer.checkpoint.layout import saved_steps, step_folder
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import LoadedCheckpoint
from trainmaster_trainer.checkpoint.manifest_check import glance
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import Remote, open_remote
from trainmaster_trainer.checkpoint.resume import first_good, resume
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.checkpoint.state import MODEL, Shapes, State
from trainmaster_trainer.checkpoint.stores.folder import Folder
from trainmaster_trainer.errors import NonFiniteLossError
from trainmaster_trainer.evaluations import Evaluations
from trainmaster_trainer.journal import Journal
from trainmaster_trainer.strategies.gossip.mixing import AVERAGED
from trainmaster_trainer.strategies.gossip.peer import Peer, whole_state
from trainmaster_trainer.strategies.gossip.sample_counters import BEFORE, CounterEntry
from trainmaster_trainer.strategies.gossip.writer_lock import WriterLock
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.links import PeerLostError, PeerRefusedError

log = logging.getLogger(__name__)
PEER_SECONDS = 5.0
STORE_SECONDS = 5.0


class CheckpointWriter:
    """CheckpointWriter writes metrics and checkpoints while this worker is the one that has to."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._plan = peer.plan
        self._settings = peer.member.settings
        self._saver: Saver | None = None
        self._journal: Journal | None = None
        self._lock = WriterLock(self._settings.checkpoints)
        self._evaluations = Evaluations(peer.plan)
        self._saved = 0
        self._is_borrowed = False  # what it goes on from is another job's, and none of its own stands yet
        self._remote = open_remote(self._settings)
        self._stands = False  # the last checkpoint, in the object store
        self._next_look = 0.0
        self.closed_it = False

    @property
    def _writes(self) -> bool:
        mine = self._peer.member.rank == min(self._peer.workers, default=self._peer.member.rank)
        return mine or not self._plan.checkpoint_shared

    @property
    def _step(self) -> int:
        """Return the step in global batches: at most the last step, or a saved step that is later."""
        return min(self._peer.sample_counters.step, max(self._plan.steps, self._saved))

    def resume(self) -> None:
        """Go on from the newest checkpoint, if there is one."""
        if self._writes:
            self._saver = self._open_saver()
            training, store = _Resumable(self._peer, self._evaluations), self._saver.store
            alone = self._peer.member.alone()
            resumed = resume(store, self._settings, alone, training, self._peer.dataset).settled(alone)
            self._saved, self._is_borrowed = resumed.step, resumed.is_borrowed
            self._saver.go_on_from(resumed.durable_step)
        else:
            self._saved = self._read()
        if self._saved and not self._peer.sample_counters.entries:  # another strategy wrote it
            self._peer.sample_counters.entries[BEFORE] = CounterEntry(self._saved * self._plan.global_batch_size)

    def _read(self) -> int:
        """Read what the checkpoint writer resumes from, without writing to its folder.

        What is in an object store, or another job's, it alone fetches: that job may have gone on, and then two would
        begin with two checkpoints. The others take it over from it: see `Peer.take_over`.

        Raises:
            CorruptCheckpointError: there are checkpoints, and none is good.
        """
        if self._plan.checkpoint_url is not None:
            return 0
        loaded = self._newest(self._peer.state().model_shapes())
        if loaded is None:
            return 0
        self._peer.restore(loaded.state)
        return loaded.manifest.step

    def _newest(self, expected: Shapes) -> LoadedCheckpoint | None:
        seen: list[int] | None = None
        problem = ""
        while seen != (steps := saved_steps(self._settings.checkpoints)):  # the writer may save and prune meanwhile
            seen, alone = steps, self._peer.member.alone()
            store = Folder(self._settings, alone)
            way = Lineage.merged([store.lineage().resumed.items()], self._settings)
            loaded = first_good(store, alone, State(forms=expected), way)
            if loaded is not None:
                return loaded
            problem = store.why_none(way)
        if problem:
            raise CorruptCheckpointError(problem)
        return None

    def begin(self) -> None:
        """Start the progress page and, if this worker writes, its journal. Save a borrowed checkpoint as its own."""
        self._peer.member.progress.start(self._step, self._durable_step)
        self.see_to_office()
        if self._is_borrowed and self._saver is not None:
            self._save(self._step)
            if self._saved >= self._plan.steps:  # there is no later one
                self._saver.insist(lambda: self._save(self._saved), self._peer.member.stop.is_set)
            self._is_borrowed = False

    @property
    def _durable_step(self) -> int:
        return 0 if self._is_borrowed else self._saved

    def _open_saver(self) -> Saver:
        saver = Saver(self._settings, self._peer.member.alone(), self._peer.dataset)
        saver.prepare()
        return saver

    def see_to_office(self) -> None:
        """Start to write if this worker has to; stop if a worker of a lower rank is back: it writes the same steps.

        While the other one still writes, this one does not.
        """
        if not self._writes:
            self._leave_office()
        elif self._journal is None and self._lock.take():
            if self._saver is None:
                self._saver = self._open_saver()
            self._journal = Journal(
                self._settings,
                self._peer.member.progress,
                self._step,
                self._durable_step,
                evaluated=self._evaluations.step,
            )

    def _leave_office(self) -> None:
        if self._saver is not None:
            self._saver.wait(needed=False)
            self._saver.check()
            self._saver.close()
        if self._journal is not None:
            self._journal.close()
        self._saver = self._journal = None
        self._lock.release()

    def tell(self) -> None:
        """Write the metrics of the steps done since the last call, and a checkpoint if one is due."""
        self.see_to_office()
        if self._journal is None or self._saver is None:
            progress = self._peer.member.progress
            if self._step > progress.step:
                progress.stepped(self._step, 0)
            progress.loss = self._peer.sample_counters.mean([self._peer.member.rank], "loss")
            progress.write()
            return
        self._saver.check()
        ranks = self._peer.workers
        with self._peer.mixer.lock:
            loss = self._peer.sample_counters.mean(ranks, "loss")
            metrics = self._peer.sample_counters.metrics(ranks)
            figures: dict[str, Any] = {"consensus_distance": self._peer.sample_counters.mean(ranks, "distance")}
            figures |= {"metrics": metrics} if metrics else {}
            step = self._step
        untold = range(self._journal.step + 1, step + 1)
        for number in untold:
            self._journal.stepped(number, loss, self._plan.global_batch_size, self._saver.committed_step, figures)
        self._peer.member.progress.measured(metrics)
        if untold:  # a page that is written anew is a sign of life
            self._journal.write()
        self._evaluate(step)
        due = step // self._plan.checkpoint_every * self._plan.checkpoint_every
        if due > self._saved and step < self._plan.steps:
            self._save(due)

    def _evaluate(self, step: int) -> None:
        """Evaluate this worker's model if that is due: workers count steps together, and may pass one between looks."""
        every = self._plan.evaluate_every
        if self._journal is None or every is None or step >= self._plan.steps:
            return
        if step // every > self._evaluations.step // every:
            progress = self._peer.member.progress
            progress.enter("evaluate")  # which may take longer than a step
            self._evaluations.take(step, self._peer.evaluate())
            progress.enter("train")
            self._journal.evaluated(self._evaluations)

    def _save(self, step: int) -> None:
        if self._saver is None or self._journal is None:
            return
        self._saver.wait(needed=False)  # for the one before; no peer can be met while the lock is held
        with self._peer.mixer.lock:
            state = self._peer.state()
            if self._evaluations.are_on:
                state = replace(state, scalars={**state.scalars, EVALUATIONS: self._evaluations.plain()})
            self._saver.save(step, state, before_commit=self._journal.sync)
        self._saved = step

    def save_and_leave(self) -> None:
        """Save a checkpoint, because this worker was asked to stop."""
        if self._saver is not None:
            if self._step > self._saved:
                self._save(self._step)
            self._saver.wait(needed=False)
            self._saver.check()
            self._peer.member.progress.enter("save", self._saver.committed_step)

    def date(self, error: NonFiniteLossError) -> None:
        """Note in the error before which step a restart goes on."""
        if self._saver is not None:
            self._saver.date(error)

    def close(self) -> None:
        """Save the average of all models as the last checkpoint, once all workers have stopped training."""
        peer = self._peer
        peer.finished.add(peer.member.rank)
        self.tell()
        if self._journal is None:  # a lower rank has come meanwhile, or a higher one still writes
            return
        stood = self.final_stands()
        if not stood and not self._save_average():
            return
        self._journal.finish(max(self._plan.steps, self._saved), peer.evaluate())
        self.closed_it = not stood
        peer.closed = True

    def final_stands(self) -> bool:
        """Return whether the last checkpoint is there: a worker that starts after that needs no other worker."""
        if self._saved >= self._plan.steps:
            return True
        if not self._plan.checkpoint_shared:
            return False
        if self._remote is not None:
            return self._stands_in_store(self._remote)
        folder = self._settings.checkpoints
        try:
            late = [step for step in saved_steps(folder) if step >= self._plan.steps]
            return any(glance(step_folder(folder, step), step) is not None for step in late)
        except OSError:  # it cannot be read now, and is looked for again
            return False

    def _stands_in_store(self, remote: Remote) -> bool:
        """Return whether the last checkpoint is in the store. It is asked at most every `STORE_SECONDS` seconds."""
        if self._stands or time.monotonic() < self._next_look:
            return self._stands
        self._next_look = time.monotonic() + STORE_SECONDS
        try:
            way = lineage.read(self._settings.checkpoints, self._settings.job_uid, remote)
            found = on_the_way(remote, way)
        except OSError as error:
            log.warning("Whether the last checkpoint stands is not known at the moment: %s", error)
            return False
        self._stands = bool(found) and found[0].step >= self._plan.steps
        return self._stands

    def _save_average(self) -> bool:
        """Save the average of all models. Return whether all workers have stopped and given their models."""
        peer = self._peer
        if not {*peer.workers} <= peer.finished:
            peer.member.stop.wait(0.02)
            return False
        others = self._sum_of_others()
        if others is None:
            return False
        with self._peer.mixer.lock, torch.no_grad():
            tensors = self._peer.state().tensors
            for name, mean in means(tensors, others, len(self._peer.workers)).items():
                tensors[name].copy_(mean)
            self._peer.compute_with_own()
        self._save_final()
        return True

    def _save_final(self) -> None:
        if self._saver is not None and self._journal is not None:
            for number in range(self._journal.step + 1, self._plan.steps + 1):
                loss = self._peer.sample_counters.mean(self._peer.workers, "loss")
                self._journal.stepped(number, loss, 0, self._saver.committed_step, {})
            self._save(self._plan.steps)
            self._saver.insist(lambda: self._save(self._plan.steps), self._peer.member.stop.is_set)
            self._peer.member.progress.enter("evaluate", self._saver.committed_step)

    def keep_final(self) -> None:
        """Save the last checkpoint in this worker's own folder too, after another worker has closed the training."""
        if self.closed_it or self._plan.checkpoint_shared or self.final_stands():
            return
        try:
            answer = self._peer.member.links.ask(min(self._peer.workers), Message("whole"), PEER_SECONDS)
        except (PeerLostError, PeerRefusedError) as error:
            log.warning("The last average could not be fetched, so this folder keeps an older checkpoint: %s", error)
            return
        self._peer.restore(whole_state(answer))
        self._save_final()

    def _sum_of_others(self) -> dict[str, Tensor] | None:
        """Return the sum of all other models, fetched one by one to save memory; None if a worker does not answer."""
        total: dict[str, Tensor] = {}
        for rank in self._peer.workers:
            if rank != self._peer.member.rank:
                try:
                    answer = self._peer.member.links.ask(rank, Message("whole"), PEER_SECONDS)
                except (PeerLostError, PeerRefusedError) as error:
                    log.info("Waiting for all models: %s", error)
                    return None
                for name, tensor in whole_state(answer).tensors.items():
                    if name.startswith(MODEL) and tensor.dtype in AVERAGED:
                        exact = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
                        total[name] = total[name].add_(exact) if name in total else exact
        return total


def means(own: Mapping[str, Tensor], others: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """Return the averages of `count` models, from this worker's tensors and the sums of the others'.

    All averages are made before any is put in place: a tensor with two names would be averaged with its own average.
    """
    return {name: (rest + own[name]) / count for name, rest in others.items()}


class _Resumable(WholeState):
    """_Resumable is a peer in the form that `resume` needs."""

    def __init__(self, peer: Peer, evaluations: Evaluations) -> None:
        self._peer, self._evaluations = peer, evaluations

    @override
    def state(self) -> State:
        return self._peer.state()

    @override
    def restore(self, state: State) -> None:
        self._peer.restore(state)
        if self._evaluations.are_on and EVALUATIONS in state.scalars:
            self._evaluations.restore(state.scalars[EVALUATIONS])

    @override
    def borrow(self, state: State) -> None:
        self._peer.restore(state)
