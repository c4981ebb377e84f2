"""Define spec.training: what is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainmaster.api.code import Code, Packages
from trainmaster.api.model import FigureName, FreeObject, Int, Model, Place, Text, Weighs
from trainmaster.api.progress_pattern import ProgressExpressions
from trainmaster.api.sizes import MOST_OF_A_PLAN, fit_a_plan
from trainmaster.api.tracker_spec import Trackers

Framework = Literal["Torch", "JAX", "XGBoost", "LightGBM", "TensorFlow", "Horovod", "MPI", "Ray", "Spark", "SageMaker"]

_WORDS = Field(strict=False, min_length=1, max_length=256)
_Command = Annotated[tuple[Text, ...], _WORDS, Weighs(MOST_OF_A_PLAN), AfterValidator(fit_a_plan)]


class StopEarly(Model):
    """Training may end before the last step: the job has then succeeded, for the reason EarlyStopped."""

    metric: FigureName
    """The figure of the evaluation that is looked at, for example validation_loss."""
    patience: Annotated[Int, Field(ge=1, le=1_000_000)]
    """After how many evaluations in a row without a better figure than the best one before."""
    mode: Literal["min", "max"]
    """Whether the smallest or the largest figure is the best."""


class Ema(Model):
    """The exponential moving average of the weights."""

    decay: Annotated[float, Field(ge=0, le=1)]
    """How much of the average stays after each step, between 0 and 1, for example 0.999: then it is about the mean of \
the last 1,000 steps."""


class TrainingSpec(Model):
    """Training names what to train: a task (Trainmaster runs the loop) or a command (your own script runs it)."""

    task: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """A Task class as module:Class, for example trainmaster_trainer.tasks.digits:Digits. It is given the arguments \
below and runs under every strategy."""
    command: _Command | None = None
    """Your own script in place of a task, for example [python, train.py]. It is started once per rank with the \
variables that torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR, ...)."""
    framework: Framework = "Torch"
    """`framework` is what the command is written for. Its processes are told who and where they are by the variables \
and files that this framework reads, beside those of torchrun, and what it needs besides (a tracker, say) is started \
first. Command only."""
    arguments: Annotated[FreeObject, AfterValidator(fit_a_plan)] | None = None
    """Given to the task by name, for example {hidden: 256, learning_rate: 0.01}; with framework SageMaker \
the hyperparameters. Not with other commands."""
    steps: Annotated[Int, Field(ge=1, le=1_000_000_000_000)] | None = None
    """`steps` is the number of optimizer steps to train. A task needs steps or epochs; with a command it is only \
shown as the total."""
    epochs: Annotated[Int, Field(ge=1, le=1_000_000_000)] | None = None
    """`epochs` is how often to go through all samples of the task's dataset, in place of steps: the last step is the \
one that completes the last epoch, and its batch is filled up from the next. Task only."""
    global_batch_size: Annotated[Int, Field(ge=1, le=1_000_000_000)] | None = None
    """`globalBatchSize` is the number of samples per step over all workers together, so that the result does not \
depend on how many there are. Required with a task."""
    seed: Annotated[Int, Field(ge=0, le=4_294_967_295)] = 0
    """`seed` is for the weights at the start and the order of the samples. The same seed gives the same run."""
    precision: Literal["FP32", "BF16", "FP16"] = "FP32"
    """`precision` is what the model computes in, under torch's autocast; parameters and optimizer stay as the task \
made them. FP16 comes with a loss scale, which checkpoints keep. Task only."""
    max_gradient_norm: Annotated[float, Field(ge=0, le=1_000_000_000)] | None = None
    """A gradient that is longer is shortened to this Euclidean length, as torch's clip_grad_norm_ does; unset, it \
stays as it is. Of a rank's own gradient under LocalSGD, Gossip and ParameterServer (Async), of the whole batch's \
under the others. Task only."""
    micro_batch_size: Annotated[Int, Field(ge=1, le=1_000_000_000)] | None = None
    """`microBatchSize` is about how many samples a rank computes at once. A larger share of the batch is computed in \
parts, one after the other, whose gradients add up: less memory for the same result. Unset: the whole share. Pipeline \
has microBatches instead. Task only."""
    compile: bool | None = None
    """Have torch.compile make the model quicker: the first step takes long, and needs a C++ compiler (on GPUs Triton, \
which torch brings). Task only, under OneDevice, Mirrored, AllReduce and LocalSGD."""
    activation_checkpointing: bool | None = None
    """Keep only the inputs of each layer that the task's model_layers() names, and compute the rest once more in the \
backward pass: less memory for the same result. Task only, under OneDevice, Mirrored, AllReduce, LocalSGD and \
FullySharded."""
    ema: Ema | None = None
    """Keep an exponential moving average of the weights, in checkpoints too; trainmaster export --ema writes it. \
Training and evaluations use the weights themselves. Task only, under strategies whose ranks step together."""
    progress: ProgressExpressions | None = None
    """`progress` tells where the command's output says its loss and its steps, for a script that is not to be \
changed. Command only."""
    data_workers: Annotated[Int, Field(ge=0, le=64)] | None = None
    """`dataWorkers` is the number of processes of each rank that make its batches ahead of the step, so that no \
device waits for samples; 0: the rank makes them itself, between two steps. The order of samples and the losses are \
the same for any number. Unset: 0 for tensors and lists in memory, else a rank's share of the cores less one, at most \
4. Task only."""
    prefetch: Annotated[Int, Field(ge=1, le=64)] | None = None
    """`prefetch` is the number of batches that each data worker makes ahead. They lie in memory until then. Unset: 2. \
Task only."""
    evaluate_every_steps: Annotated[Int, Field(ge=1, le=1_000_000_000)] | None = None
    """Try the model on the task's validation samples, and by its evaluate(), after every so many steps and after the \
last one. The figures go to metrics.jsonl and to .status.progress.evaluation. Unset: after the last step only. With a \
command: after how many steps stopEarly and checkpoint.best look at what it has reported since (session.report, and \
session.state)."""
    stop_early: StopEarly | None = None
    """End the training, with Succeeded, when a figure of the evaluation has not become better for a while."""
    trackers: Trackers | None = None
    """`trackers` are told the lines of metrics.jsonl as well, by processes of their own beside the training. Unset: \
where variables say that people set anyway (MLFLOW_TRACKING_URI, WANDB_API_KEY or WANDB_MODE, \
OTEL_EXPORTER_OTLP_ENDPOINT)."""
    working_directory: Place | None = None
    """`workingDirectory` is where the task is imported from or the command starts. On a laptop, relative to this \
file; in a container, relative to the top of the code (below), or without code to the image's own working \
directory."""
    code: Code | None = None
    """Code that is not in the image. `trainmaster submit` sets it, unless you do."""
    packages: Packages | None = None
    """Python packages that are not in the image."""
