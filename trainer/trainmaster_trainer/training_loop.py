"""Run the training loop of a rank: load, resume, step by step, evaluate.

It is made of: `task` (what), `strategies` (how), `data` (which samples), `checkpoint` (what survives), `evaluations`
(how good the model is), `report` (what is told).
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import FrameType

from trainmaster.wire.names import EXIT_TERMINATED

from trainmaster_trainer import randomness
from trainmaster_trainer.answers import has_metrics
from trainmaster_trainer.carried import Carried
from trainmaster_trainer.checkpoint.memory import Memory
from trainmaster_trainer.checkpoint.resume import Resumed, resume
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.collating import arrays_told
from trainmaster_trainer.data import Batches, check_batch_size
from trainmaster_trainer.evaluations import Evaluations
from trainmaster_trainer.fault_injection import Faults
from trainmaster_trainer.group import Group
from trainmaster_trainer.metric_names import MetricNames
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.rank_report import RankReport, loss_to_tell
from trainmaster_trainer.recomputing import compile_model, recompute_layers
from trainmaster_trainer.samples import open_batches
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.strategies import find_strategy
from trainmaster_trainer.strategies.strategy import Strategy
from trainmaster_trainer.task import Task, load_task
from trainmaster_trainer.validation import Evaluator

log = logging.getLogger(__name__)


def train(settings: Settings, group: Group, progress: Progress) -> int:
    """Train to the last step, or until a rank is asked to stop. Return the exit code."""
    task = make_task(settings)
    # Before the model: data workers are forked, and what a fork shares is copied when it changes.
    with closing(open_batches(settings, task, group.device)) as batches:
        settings = settings.for_samples(batches.count)
        progress.lasts(settings.plan)
        return train_with(settings, group, progress, task, batches)


def train_with(settings: Settings, group: Group, progress: Progress, task: Task, batches: Batches) -> int:
    """Train with these batches. Return the exit code."""
    plan = settings.plan
    training = begin(settings, group, progress, task, batches)
    strategy, saver, report, memory = training.strategy, training.saver, training.report, training.memory
    resumed, evaluations = training.resumed, training.evaluations
    faults = Faults(os.environ, settings)
    last = resumed.step

    with stop_signal() as stop_asked, saver.brought_home(), report.completed():
        # The attempt before died over it, there was none, or a pod that had it is gone.
        urgent = not resumed.begins and evaluations.due(last) and training.evaluate(last)
        if urgent or resumed.is_borrowed or resumed.some_lack or saver.missed(resumed.durable_step, last):
            # Who lacks it would not get it from a later step: it may hold the best model.
            training.save(last, urgent=urgent or resumed.some_lack)
        for step in range(last + 1, plan.steps + 1):
            if evaluations.stopped:
                break
            last = step
            batch = batches.take(step, strategy.share)
            progress.read(batches.waited)
            randomness.seed_rank(plan.seed, strategy.draws_as, step)
            with arrays_told(batch):
                stepped = strategy.step(batch)
            loss = loss_to_tell(stepped, strategy)
            report.stepped(step, loss, batch, checkpoint_step=saver.committed_step, strategy=strategy, memory=memory)
            if not faults.want_checkpoint(step):
                faults.after(step)

            told = saver.due(step) or evaluations.due(step) or report.due
            stopping = told and report.agree(stop_asked(), memory, saver)
            leaving = stopping and step < plan.steps
            urgent = not leaving and evaluations.due(step) and training.evaluate(step)
            if saver.due(step) or stopping or urgent:
                training.save(step, urgent=urgent)
            if faults.want_checkpoint(step):
                saver.wait(needed=False)
                faults.after(step)
            if leaving:
                return leave(step, saver, progress)
        # Who is asked to stop now still brings the last checkpoint home.
        saver.insist(lambda: training.save(last), stop_asked)

    batches.close()
    progress.enter("evaluate", saver.committed_step)
    report.finish(last, evaluations.figures if evaluations.step == last else training.figures(last))
    strategy.close()
    return 0


@dataclass(frozen=True)
class Training:
    """Training holds what the loop works with."""

    settings: Settings
    group: Group
    progress: Progress
    strategy: Strategy
    carried: Carried
    evaluations: Evaluations
    trial: Evaluator
    saver: Saver
    resumed: Resumed
    report: RankReport
    memory: Memory

    def save(self, step: int, *, urgent: bool = False) -> None:
        """Save the state after a step. Where it is `urgent`, training goes on when it stands: no later state has it."""
        self.progress.enter("save")
        settled = self.strategy.settled
        self.saver.save(step, self.carried.state(), before_commit=self.report.sync, settled=settled)
        if urgent:
            self.saver.wait(needed=False)
        self.progress.enter("train")

    def evaluate(self, step: int) -> bool:
        """Evaluate the model after a step, whose line is written. Return whether its state must be saved."""
        self.progress.enter("evaluate", self.saver.committed_step)
        must_be_saved = self.evaluations.take(step, self.figures(step))
        self.report.evaluated()
        self.progress.enter("train")
        return must_be_saved

    def figures(self, step: int) -> dict[str, float]:
        """Return the task's figures after a step, known to all ranks, which end this call together."""
        seed = self.settings.plan.seed
        randomness.seed_rank(seed, self.strategy.draws_as, step + 1)  # the same after a restart
        return self.group.share_result(self.strategy.evaluate(self.trial), f"figures/{step}")


def begin(settings: Settings, group: Group, progress: Progress, task: Task, batches: Batches) -> Training:
    """Make the model and go on from where the training stood."""
    strategy = make_strategy(settings, group, task)
    evaluations, trial = Evaluations(settings.plan), Evaluator(settings, task, group.device, progress.trying)
    names = MetricNames() if has_metrics(task) else None
    carried, dataset = Carried(strategy, evaluations, names, batches), batches.count
    saver = Saver(settings, group, dataset)
    saver.prepare()
    resumed = resume(saver.store, settings, group, carried, dataset).settled(group)
    saver.go_on_from(resumed.durable_step)
    if evaluations.are_on or resumed.begins:  # else a restart would wait for samples that only the end needs
        trial.check()
    report = RankReport(settings, group, progress, resumed, evaluations=evaluations, names=names)
    memory = Memory(settings, group, carried, dataset)
    memory.start(resumed.step)
    return Training(settings, group, progress, strategy, carried, evaluations, trial, saver, resumed, report, memory)


def leave(step: int, saver: Saver, progress: Progress) -> int:
    """Wait until step `step` is saved, as a rank was asked to stop. Return the exit code."""
    saver.wait(needed=False)
    saver.check()
    progress.enter("save", saver.committed_step)  # the agent's last word names this checkpoint
    if saver.committed_step == step:
        log.info("Asked to stop: saved and left at step %d.", step)
    else:
        log.warning("Asked to stop: left at step %d, which is not saved: %s", step, saver.last.problem)
    return EXIT_TERMINATED


def make_task(settings: Settings) -> Task:
    """Make the task of the plan. It may draw random numbers when it is made, which are the same on all ranks."""
    randomness.seed_alike(settings.plan.seed)
    return load_task(settings.plan.task or "", settings.plan.arguments)


def make_strategy(settings: Settings, group: Group, task: Task) -> Strategy:
    """Make the strategy of the plan around a model that has the same weights on all ranks."""
    plan = settings.plan
    kind = find_strategy(plan.strategy, plan.reproducible, plan.accelerator)
    randomness.seed_alike(plan.seed)
    strategy = kind(task, group, {"seed": plan.seed} if plan.reproducible else plan.strategy_options)
    if strategy.share:
        check_batch_size(plan.global_batch_size, strategy.share.of)
    strategy.use(Numerics.from_plan(plan))
    if plan.recompute:
        recompute_layers(task, strategy.model)
    if plan.compile:
        compile_model(strategy.model)
    if plan.ema is not None:
        strategy.keep_average(plan.ema)
    return strategy


@contextmanager
def stop_signal() -> Iterator[Callable[[], bool]]:
    """Let SIGTERM set a flag instead of ending the process: the loop saves first."""
    asked = False

    def remember(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    before = signal.signal(signal.SIGTERM, remember)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGTERM, before)
