"""Run the training loop of a rank: load, resume, step by step, evaluate.

It is made of: `task` (what), `strategies` (how), `data` (which samples), `checkpoint` (what survives),
`report` (what is told).
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType

from trainmaster_trainer import randomness
from trainmaster_trainer.checkpoint.memory import Memory
from trainmaster_trainer.checkpoint.resume import resume
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.data import Batches, check_batch_size
from trainmaster_trainer.faults import Faults
from trainmaster_trainer.group import Group
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.report import Report, loss_to_tell
from trainmaster_trainer.samples import open_batches
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.strategies import find_strategy
from trainmaster_trainer.strategies.strategy import Strategy
from trainmaster_trainer.task import Task, load_task

log = logging.getLogger(__name__)
EXIT_STOPPED = 128 + signal.SIGTERM


def train(settings: Settings, group: Group, progress: Progress) -> int:
    """Train to the last step, or until a rank is asked to stop. Return the exit code."""
    task = make_task(settings)
    # Before the model: data workers are forked, and what a fork shares is copied when it changes.
    with closing(open_batches(settings, task, group.device)) as batches:
        return train_with(settings, group, progress, task, batches)


def train_with(settings: Settings, group: Group, progress: Progress, task: Task, batches: Batches) -> int:
    """Train with these batches. Return the exit code."""
    plan = settings.plan
    strategy = make_strategy(settings, group, task)
    saver = Saver(settings, group, batches.count)
    saver.prepare()
    resumed = resume(settings, group, strategy, batches.count)
    saver.go_on_from(resumed.durable_step)
    report = Report(settings, group, progress, resumed)
    memory = Memory(settings, group, strategy, batches.count)
    memory.start(resumed.step)
    faults = Faults(os.environ, settings)
    last = max(plan.steps, resumed.step)

    def save(step: int) -> None:
        progress.enter("save")
        saver.save(step, strategy.state(), before_commit=report.sync, settled=strategy.settled)
        progress.enter("train")

    with stop_signal() as stop_asked, saver.brought_home():
        if resumed.is_borrowed or resumed.some_lack or saver.missed(resumed.durable_step, resumed.step):
            save(resumed.step)  # the attempt before died over it, there was none, or a pod that had it is gone
        for step in range(resumed.step + 1, plan.steps + 1):
            batch = batches.take(step, strategy.share)
            progress.read(batches.waited)
            randomness.seed_rank(plan.seed, strategy.draws_as, step)
            loss = loss_to_tell(strategy.step(batch), strategy)
            report.stepped(
                step, loss, batch, checkpoint_step=saver.committed_step, waited=strategy.waited, memory=memory
            )
            if not faults.want_checkpoint(step):
                faults.after(step)

            stopping = (saver.due(step) or report.due) and report.agree(stop_asked(), memory, saver)
            if saver.due(step) or stopping:
                save(step)
            if faults.want_checkpoint(step):
                saver.wait(needed=False)
                faults.after(step)
            if stopping and step < plan.steps:
                return leave(step, saver, progress)
        # Who is asked to stop now still brings the last checkpoint home.
        saver.insist(lambda: save(last), stop_asked)

    batches.close()
    progress.enter("evaluate", saver.committed_step)
    report.finish(last, evaluate(strategy, group, plan.seed, last))
    strategy.close()
    return 0


def leave(step: int, saver: Saver, progress: Progress) -> int:
    """Wait until step `step` is saved, as a rank was asked to stop. Return the exit code."""
    saver.wait(needed=False)
    saver.check()
    progress.enter("save", saver.committed_step)  # the agent's last word names this checkpoint
    if saver.committed_step == step:
        log.info("Asked to stop: saved and left at step %d.", step)
    else:
        log.warning("Asked to stop: left at step %d, which is not saved: %s", step, saver.problem)
    return EXIT_STOPPED


def evaluate(strategy: Strategy, group: Group, seed: int, last: int) -> dict[str, float]:
    """Return the task's figures after the last step, known to all ranks, which end this call together."""
    randomness.seed_rank(seed, strategy.draws_as, last + 1)  # figures that draw are the same after a restart
    figures = strategy.evaluate()
    return group.share_result(figures)


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
    strategy.use(Numerics.of(plan))
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
