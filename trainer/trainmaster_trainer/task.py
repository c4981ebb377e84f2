"""A task is what a user writes to have a model trained. The strategy is chosen in the YAML, not in the task.

A complete task, `spec.training: {task: "rings:Rings", arguments: {width: 64}}` with this in `rings.py`:

    import torch
    from torch import nn
    from trainmaster_trainer.task import Task

    class Rings(Task):
        \"\"\"Is a point of the plane inside the unit circle?\"\"\"

        def __init__(self, width: int = 32) -> None:
            self.width = width

        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(2, self.width), nn.ReLU(), nn.Linear(self.width, 2))

        def dataset(self):
            points = torch.rand(4096, 2, generator=torch.Generator().manual_seed(0)) * 3 - 1.5
            return points, (points.norm(dim=1) < 1).long()

        def loss(self, outputs, targets):
            return nn.functional.cross_entropy(outputs, targets)

        def optimizer(self, parameters):
            return torch.optim.SGD(parameters, lr=0.1)

        def evaluate(self, model):                       # optional
            points, inside = self.dataset()
            return {"accuracy": (model(points).argmax(1) == inside).float().mean().item()}

The same class runs under every strategy, so it never mentions ranks, devices or processes; precision, loss scale, the
longest gradient and how many samples fit into memory are the YAML's business too (`spec.training`). Two strategies
split the model itself and must be told where that is possible: Pipeline asks `model_layers`, Tensor asks `tensor_plan`.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset, default_collate

from trainmaster_trainer.errors import ConfigurationError, is_garbled, near

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

# Inputs and targets, sample by sample: two tensors of equal length, a map-style Dataset of such pairs, or a stream.
Samples = Union[tuple[Tensor, Tensor], "Dataset[tuple[Any, Any]]", "Iterable[tuple[Any, Any]]"]


class Task(ABC):
    """A task is a model, its data and its loss. `spec.training.arguments` are keyword arguments of `__init__`.

    Random numbers are seeded before `__init__`, alike on every rank and after every restart: it may split its data.

    What outlives a restart: the model's parameters, buffers and extra state (`get_extra_state`), and what the optimizer
    keeps. The global random numbers of torch, NumPy (`np.random.rand`) and Python (`random.random`) are seeded before
    every step, from seed, rank and step, so a rank that computes a step again draws the same ones. Nothing else
    outlives a restart, and the trainer cannot notice: a generator of the task's own (`np.random.default_rng()`,
    `torch.Generator()`) begins anew, and so does an attribute of the task that `loss` changes, such as a running mean
    or the stage of a curriculum. So draw from the global generators, and keep what changes during the training in a
    buffer of the model (not one with persistent=False, which no state has).
    """

    @abstractmethod
    def model(self) -> nn.Module:
        """Return a fresh model on the CPU. Random numbers are seeded before the call, alike on every rank.

        Its forward pass may change buffers. Parameters that it changes, as a target network's, are followed where each
        rank has all of them and changes them alike (OneDevice, AllReduce, Mirrored, LocalSGD, Gossip). A task changes
        a parameter, here or in `loss`, under `torch.no_grad()` and never through `.data`: weights are copied for a
        checkpoint while training goes on, and that one changed meanwhile is noticed by torch's count of its changes,
        in which those through `.data` are missing.
        """

    @abstractmethod
    def dataset(self) -> Samples:
        """Return the training samples, in the same order on every call and every rank; the trainer shuffles.

        Samples of one batch are stacked, so all have one shape, unless `collate` pads those of different length.

        A `Dataset` may draw random numbers for a sample (crops, masks, noise). All ranks that work on the same samples
        of a step draw the same ones, and so does a rank that repeats the step after a restart.

        A `Dataset` is mostly asked for its samples in processes of their own (`spec.training.dataWorkers`), which are
        forked after this call: what `__getitem__` changes in the dataset, each of them changes for itself.

        A stream (an `IterableDataset`, or what else can only be iterated) gives the same samples in the same order on
        all ranks: each of them reads all and keeps its share, so let a sample be cheap, such as the bytes of a file,
        and decode it in `collate`. Do not split it by rank or data worker. It is iterated anew for each epoch, after
        `set_epoch(number)`, if it has that. With `state_dict` and `load_state_dict` (JSON, as torchdata has them, of
        the dataset or of its iterator) a restart goes on where it stood; without, it is read again up to there. That
        no sample is lost or repeated is then the dataset's promise. ParameterServer and Gossip refuse a stream.
        """

    def collate(self, samples: list[Any]) -> Any:
        """Return a batch of the samples: inputs and targets, each with the sample as its first dimension.

        Return all of them: the mean over fewer would be weighed as that over all, so such a batch is refused where
        ranks share it. Broken ones are left out in the dataset; or `loss` returns a sum and of how many. Unless a task
        has its own, torch's default_collate stacks them.

        One of its own may pad what differs in length:

            texts, labels = zip(*samples, strict=True)
            return pad_sequence(texts, batch_first=True), torch.tensor(labels)
        """
        return default_collate(samples)

    @abstractmethod
    def loss(self, outputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor | float]:
        """Return the mean of the samples' losses; or a pair of a sum, and how many things were added up.

        It is called for a part of the batch: that of a rank, or a micro-batch. Means are weighed by the number of their
        samples. A mean over something else than samples, such as tokens without those that `ignore_index` names, is no
        such mean, and would give other gradients for each number of ranks. Return it as a pair:

            return cross_entropy(outputs, targets, reduction="sum"), (targets != -100).sum()

        What is trained is then the sum over the whole batch by the count of the whole batch, whoever computes what.
        OneDevice, AllReduce, Mirrored, CentralStorage, FullySharded, Tensor and Mesh without pipeline carry it; the
        others, reproducible: true and TPUs refuse it.
        """

    @abstractmethod
    def optimizer(self, parameters: list[nn.Parameter]) -> Optimizer:
        """Return an optimizer for these parameters.

        It gets all parameters of the model, whatever the strategy, and then works on what a rank holds of them. So a
        hook of it takes parameters from `optimizer.param_groups` when it is called, and computes no norm over all of
        them: `spec.training.maxGradientNorm` shortens gradients.
        """

    def learning_rate_factor(self, fraction: float) -> float:  # noqa: ARG002 (for those who override it)
        """Return the factor of the optimizer's learning rate when this fraction of all steps is done."""
        return 1.0

    def scheduler(self, optimizer: Optimizer) -> LRScheduler | None:  # noqa: ARG002 (likewise)
        """Return a scheduler of torch.optim.lr_scheduler for this optimizer, in place of `learning_rate_factor`.

            return CosineAnnealingLR(optimizer, T_max=1000)

        It goes on by one after every step of the training (not every epoch), and its state is in checkpoints: a
        restart, or a job that begins with this one's checkpoint, goes on along the same curve. One with a
        scheduler of another type, or with none, begins with the rates of its own optimizer. ReduceLROnPlateau, which
        waits for a figure, is refused; so is any scheduler under ParameterServer and Gossip.
        """
        return None

    def metrics(self, outputs: Any, targets: Any) -> dict[str, Tensor | float]:  # noqa: ARG002 (likewise)
        """Return what else is to be known of a batch, by name: means over its samples, such as its accuracy.

            return {"accuracy": (outputs.argmax(dim=1) == targets).float().mean()}

        It is called beside `loss`, for the same parts of a batch and without gradients, and its means are weighed by
        the number of their samples. Give a tensor as it is: a number out of one would make a GPU wait in every step.
        The names, of 1 to 128 printable characters, are the same for every batch; NaN stands for what this batch
        cannot tell.
        """
        return {}

    def validation_dataset(self) -> Samples | None:
        """Return samples on which the model is tried whenever it is evaluated, in the same order on every call.

        They are shared among the ranks that hold the whole model, each is used exactly once, and the evaluation has
        their mean loss as `validation_loss`, and the mean of each of the `metrics`, by its name. Samples are as those
        of `dataset`. A figure that is no mean over samples, such as an F1 score, is for `evaluate`.
        """
        return None

    def evaluate(self, model: nn.Module) -> dict[str, float]:  # noqa: ARG002 (likewise)
        """Return figures of merit, such as accuracy. The model is in eval mode, without gradients.

        It is called after the last step and, with `spec.training.evaluateEverySteps`, after every so many steps; then
        it must leave the parameters as they are. (Buffers are put back, and random numbers of later steps do not
        depend on what it draws.)

        One rank calls this, and torch.distributed's default group has only that rank meanwhile, so that metrics which
        add themselves up over all ranks may be used. Where ranks split the model, all of them call this at once and
        `model` is this rank's part of it: calling it gives the whole model's outputs on every rank, but its parameters
        are not all there to be looked at.
        """
        return {}

    def model_layers(self, model: nn.Module) -> list[tuple[str, nn.Module]]:
        """Return the model as a chain, for Pipeline: what comes out of each layer is what goes into the next.

        Layers are modules of the model, each parameter in exactly one of them. They may hand on a tensor or a tuple
        of tensors, whose first dimension is the sample. Each stage is a run of layers with about the same number of
        parameters as the others. FullySharded brings one layer's parameters together at a time. A layer that computes
        several times is in the chain as often, and all on one stage if it has parameters. A model that is an
        `nn.Sequential` needs no method of its own; an example of one that does:

            return [("encoder", model.encoder), ("decoder", model.decoder)]

        Raises:
            ConfigurationError: the task does not say how this model can be cut.
        """
        if isinstance(model, nn.Sequential):
            # Not named_children(), which leaves out a module that is there a second time.
            return [(name, module) for name, module in model._modules.items() if module is not None]  # noqa: SLF001
        raise ConfigurationError(
            f"spec.training.task: {type(self).__name__} does not say how its model can be cut, and it is no "
            "nn.Sequential. Write its method model_layers(self, model): [(name, module), ...] in the order of the "
            "computation, or choose a strategy that does not cut between layers, such as FullySharded."
        )

    def tensor_plan(self, model: nn.Module) -> dict[str, ParallelStyle]:  # noqa: ARG002 (likewise)
        """Return which modules Tensor splits inside, and along what. Keys are names of modules, or patterns of them.

        Values are torch's styles (torch.distributed.tensor.parallel). The usual pair, after Shoeybi et al.,
        "Megatron-LM" (2019), needs one exchange for two layers:

            return {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel()}

        Modules that no pattern names are computed on all ranks alike.

        Raises:
            ConfigurationError: the task does not say how this model's layers can be split.
        """
        raise ConfigurationError(
            f"spec.training.task: {type(self).__name__} does not say how the layers of its model can be split. Write "
            "its method tensor_plan(self, model): {'blocks.*.up': ColwiseParallel(), 'blocks.*.down': "
            "RowwiseParallel()}, or choose a strategy that does not split inside layers, such as FullySharded."
        )

    def tensor_units(self) -> dict[str, int]:
        """Return what Tensor must share out evenly besides the layers' own sizes, such as `{"heads": 8}`."""
        return {}


def load_task(reference: str, arguments: Mapping[str, Any]) -> Task:
    """Return the task that `spec.training.task` and `spec.training.arguments` name.

    Raises:
        ConfigurationError: there is no such task, or the arguments are not its own.
    """
    kind = _find(reference)
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        what = " and no ".join(f"method {name}" for name in missing)
        raise ConfigurationError(
            f"spec.training.task: {reference} has no {what} of its own. Each task needs one: write it."
        )
    signature = inspect.signature(kind).replace(return_annotation=inspect.Signature.empty)
    _check_arguments(reference, signature, arguments)
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        # A file or download failed: the arguments may be right, even if it is a ValueError.
        names = (kind.__name__ for kind in type(error).__mro__)
        away = any("NotFound" in name or "Connection" in name for name in names)
        if away or isinstance(error, OSError) or is_garbled(error):
            raise
        raise ConfigurationError(
            f"spec.training.arguments: {reference} refused {dict(arguments)}: {error}. It takes {signature}."
        ) from error


def _find(reference: str) -> type[Task]:
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise ConfigurationError(f"spec.training.task: {reference!r} is not of the form 'module:Class'.")
    module = _import(module_name)
    kind = getattr(module, name, None)
    if isinstance(kind, type) and issubclass(kind, Task):
        return kind
    tasks = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Task) and value is not Task
    ]
    if kind is not None:
        raise ConfigurationError(
            f"spec.training.task: {reference!r} is no Task. Derive the class from trainmaster_trainer.task.Task."
        )
    raise ConfigurationError(
        f"spec.training.task: module {module_name!r} ({getattr(module, '__file__', '?')}) has no {name!r}; "
        f"its tasks are {tasks or 'none'}.{near(name, tasks)}"
    )


def _import(module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(missing + "."):
            raise ConfigurationError(
                f"spec.training.task: there is no module {missing!r}. It was looked for in the working directory "
                "and the installed packages; mount or install it, or correct the name."
            ) from None
        raise ConfigurationError(
            f"spec.training.task: {module_name!r} needs the module {missing!r}, which this image does not have. "
            "Install it in the image (spec.workers.image)."
        ) from error
    except SyntaxError as error:
        raise ConfigurationError(f"spec.training.task: {module_name!r} is not valid Python: {error}.") from error


def _check_arguments(reference: str, signature: inspect.Signature, arguments: Mapping[str, Any]) -> None:
    parameters = signature.parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        for name in arguments:
            if name not in signature.parameters:
                raise ConfigurationError(
                    f"spec.training.arguments.{name}: {reference} has no such argument; "
                    f"it takes {signature}.{near(name, signature.parameters)}"
                )
    for parameter in parameters:
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and parameter.default is parameter.empty and parameter.name not in arguments:
            raise ConfigurationError(
                f"spec.training.arguments.{parameter.name}: {reference} needs it; it takes {signature}."
            )
