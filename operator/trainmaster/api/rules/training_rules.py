"""Hold the rules on spec.training: what is trained."""

from __future__ import annotations

from trainmaster.api.rules.rule import Rule, shaped
from trainmaster.wire.frameworks import TAKE_ARGUMENTS

_HERE = ("spec.training",)
_MODULE = "[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*"

RULES = (
    Rule(
        name="task-or-command",
        where=_HERE,
        cel="has(self.task) || has(self.command)",
        holds=lambda training: training.task is not None or training.command is not None,
        message="there is nothing to train: neither task nor command is set",
        cure="Set task to module:Class, or command to your own script, for example [python, train.py]",
    ),
    Rule(
        name="not-task-and-command",
        where=_HERE,
        field="command",
        cel="!(has(self.task) && has(self.command))",
        holds=lambda training: training.task is None or training.command is None,
        message="task and command are both set, and only one of them can train",
        cure="Remove one of them",
    ),
    shaped(
        "task-form",
        _HERE,
        "task",
        f"{_MODULE}:{_MODULE}",
        message="task does not name a class",
        cure="Write module:Class, for example trainmaster_trainer.tasks.digits:Digits",
    ),
    Rule(
        name="command-first-word",
        where=_HERE,
        field="command",
        cel="!has(self.command) || size(self.command) == 0 || size(self.command[0]) > 0",
        holds=lambda training: not training.command or training.command[0] != "",
        message="the first word of command is empty, and it is the program to start",
        cure="Write for example [python, train.py]",
    ),
    Rule(
        name="arguments-with-task",
        where=_HERE,
        field="arguments",
        cel=f"!has(self.arguments) || has(self.task) || self.framework in {list(TAKE_ARGUMENTS)}",
        holds=lambda training: (
            training.arguments is None or training.task is not None or training.framework in TAKE_ARGUMENTS
        ),
        message="arguments are given to a task, and there is none",
        cure="Put them into command, or set task",
    ),
    Rule(
        name="progress-with-command",
        where=_HERE,
        field="progress",
        cel="!has(self.progress) || has(self.command)",
        holds=lambda training: training.progress is None or training.command is not None,
        message="progress is read from a command's output, and a task says it itself",
        cure="Remove progress, or set command in place of task",
    ),
    Rule(
        name="progress-with-something",
        where=("spec.training.progress",),
        cel="has(self.loss) || has(self.step) || has(self.total)",
        holds=lambda progress: bool(progress.expressions),
        message="progress names nothing to look for",
        cure="Set loss, step or total to a regular expression, or remove progress",
    ),
    Rule(
        name="steps-with-task",
        where=_HERE,
        field="steps",
        cel="!has(self.task) || has(self.steps) || has(self.epochs)",
        holds=lambda training: training.task is None or training.steps is not None or training.epochs is not None,
        message="a task needs steps or epochs, or it would never end",
        cure="Set steps to the number of optimizer steps, for example 500, or epochs, for example to 3",
    ),
    Rule(
        name="steps-or-epochs",
        where=_HERE,
        field="epochs",
        cel="!(has(self.epochs) && has(self.steps))",
        holds=lambda training: training.epochs is None or training.steps is None,
        message="epochs and steps both say when training ends",
        cure="Remove one of them",
    ),
    Rule(
        name="epochs-task",
        where=_HERE,
        field="epochs",
        cel="!has(self.epochs) || !has(self.command)",
        holds=lambda training: training.epochs is None or training.command is None,
        message="epochs is for a task; how often a command goes through its samples is its own affair",
        cure="Remove epochs, and give it to the script as a word of command, for example --epochs=3",
    ),
    Rule(
        name="epochs-servers",
        where=("spec",),
        field="training.epochs",
        cel="!has(self.training.epochs) || self.strategy.type != 'ParameterServer'",
        holds=lambda spec: spec.training.epochs is None or spec.strategy.type != "ParameterServer",
        message="under ParameterServer a server counts the steps, and it has no samples to know an epoch by",
        cure="Set steps in place of epochs: epochs x samples / globalBatchSize",
    ),
    Rule(
        name="batch-with-task",
        where=_HERE,
        field="globalBatchSize",
        cel="!has(self.task) || has(self.globalBatchSize)",
        holds=lambda training: training.task is None or training.global_batch_size is not None,
        message="a task needs globalBatchSize, the samples per step over all workers together",
        cure="Set globalBatchSize, for example to 256",
    ),
    Rule(
        name="data-workers-task",
        where=_HERE,
        field="dataWorkers",
        cel="!has(self.dataWorkers) || !has(self.command)",
        holds=lambda training: training.data_workers is None or training.command is None,
        message="dataWorkers is for a task; how a command reads its samples is its own affair",
        cure="Remove dataWorkers, and set num_workers of the script's DataLoader",
    ),
    Rule(
        name="prefetch-workers",
        where=_HERE,
        field="prefetch",
        cel="!has(self.prefetch) || (!has(self.command) && !(has(self.dataWorkers) && self.dataWorkers == 0))",
        holds=lambda training: training.prefetch is None or (training.command is None and training.data_workers != 0),
        message="prefetch is how many batches a data worker makes ahead, and there is none",
        cure="Remove prefetch, or set dataWorkers to 1 at least",
    ),
)
