"""Strategy is the one interface between the training loop and the ways to share a training among ranks.

The loop knows samples, steps, saving and reporting; a strategy knows where the model lives and how the ranks'
gradients or weights come together. It has these members:

    use        how its steps compute: precision, loss scale, clipping. Once, before the first.
    share      which part of every global batch this rank works on. Replicas of the whole model have one each
               (`Share(rank, world)`); ranks that split a model among them (pipeline, tensor) have the same; a
               parameter server has none.
    step       one step of training with that part; its mean loss, if this rank sees one.
    state      everything that must outlive the process, under names that do not depend on strategy or world size.
    restore    the reverse.
    snapshots  whether and how its state can be kept in memory at every step (`local_state`, `restore_local`).
    evaluate   the task's figures of merit for the model as it is.
    close      let go of threads and connections.

A tensor in `state` is either the same on every rank that names it, or a DTensor, which knows what part it is; that
is all that the checkpoint needs to split the work of writing and to read it back under another strategy. Where ranks
split a model, the state says on all of them what the whole is (`State.whole`); `restore` always gets whole tensors.

To add a strategy: one file here, one row in `trainmaster.wire.strategies`, and its page in `trainmaster.advice.pages`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import override

from trainmaster_trainer.answers import make_model, make_optimizer
from trainmaster_trainer.batch_loss import loss_of_batch
from trainmaster_trainer.checkpoint.checkpointable import WholeState
from trainmaster_trainer.checkpoint.model_state import ModelState
from trainmaster_trainer.checkpoint.state import MODEL, OPTIMIZER, State
from trainmaster_trainer.counted_loss import Loss
from trainmaster_trainer.data import WHOLE, Batch, Share
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group, alone
from trainmaster_trainer.numerics import Numerics, Quietly
from trainmaster_trainer.rates import Rates
from trainmaster_trainer.strategies.outside_changes import trained
from trainmaster_trainer.task import Task

if TYPE_CHECKING:
    from trainmaster_trainer.validation import Evaluator


class Strategy(WholeState):
    """A strategy is one way for the ranks of a group to train one model."""

    share: Share | None
    # Seconds of the last step in which this rank only waited for its peers, as far as that can be told.
    waited: float = 0.0
    averages: ClassVar[bool] = True  # its state may hold a moving average of the weights
    counts: ClassVar[bool] = False  # a loss may be a sum with a count
    task: Task
    group: Group
    model: nn.Module  # what this rank has of it
    numerics = Numerics()
    _state: ModelState | None = None  # of a rank that has the model's parameters and their optimizer

    @abstractmethod
    def __init__(self, task: Task, group: Group, options: Mapping[str, Any]) -> None:
        """Make the model and its optimizer, the same weights on all ranks.

        Raises:
            ConfigurationError: the strategy does not fit this group, or does not know an option.
        """

    def use(self, numerics: Numerics) -> None:
        """Compute with this precision, loss scale and clipping from now on."""
        self.numerics = numerics
        numerics.attach(self.model, self.group.device)
        if self._state:
            self._state.loss_scale = numerics.loss_scale

    def keep_average(self, decay: float) -> None:
        """Keep an exponential moving average of the weights from now on, in the state.

        Raises:
            ConfigurationError: this strategy has no weights that are one model's after each step.
        """
        if self._state is None or not self.averages:
            raise ConfigurationError(
                f"spec.training.ema: {type(self).__name__} has no weights that are one model's after each step. Remove "
                "ema, or choose another strategy, such as AllReduce."
            )
        self._state.keep_average(decay)

    @property
    def draws_as(self) -> int:
        """Return the rank whose random numbers this rank draws: its own, unless several compute alike."""
        return self.group.rank

    def trained(self) -> list[nn.Parameter]:
        """Return the parameters of this rank that are stepped."""
        return trained(self.model)

    def loss(self, batch: Batch) -> Loss:
        """Return the loss of a batch, or of a part of one."""
        return self.carried(loss_of_batch(self.task, self.model(batch.inputs), batch, counts=self.counts))

    def carried(self, loss: Loss) -> Loss:
        """Return a loss that this strategy can carry.

        Raises:
            ConfigurationError: it is a sum with a count, and gradients here are no part of one for the whole batch.
        """
        return loss if self.counts else loss.as_mean_for(type(self).__name__)

    @abstractmethod
    def step(self, batch: Batch) -> Tensor | None:
        """Take one step. Return the mean loss over this rank's share, still on the device; None without a share."""

    def settled(self, name: str) -> bool:  # noqa: ARG002 (an answer that is always right)
        """Return whether this tensor of `state` stays as it is until the next step's first optimizer step."""
        return False

    @abstractmethod
    def evaluate(self, trial: Evaluator) -> dict[str, float]:
        """Return the task's figures of the model, which goes on to be trained; rank 0's answer counts.

        All ranks call it together, between two steps or after the last.
        """

    def close(self) -> None:
        """Let go of threads and connections, after the last step."""
        return


class WholeModel(Strategy):
    """WholeModel is the base of the strategies that keep a whole model and its optimizer on every rank."""

    optimizer: Optimizer
    _state: ModelState
    settles: ClassVar[bool] = False  # nothing but an optimizer's step changes parameters and what belongs to them

    def build(self, task: Task, group: Group) -> None:
        """Make model and optimizer on the group's device."""
        self.task, self.group = task, group
        self.model = make_model(task).to(group.device)
        self.make_optimizer(self.model)
        self._gradients_ready = 0.0
        # The first layer's gradient comes last: after it, a rank waits for its peers. One hook on one parameter costs
        # a microsecond. On a GPU, where kernels run behind the host's back, the host seldom waits here, and the time
        # says little.
        first = next((parameter for parameter in self.model.parameters() if parameter.requires_grad), None)
        if first is not None:
            first.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]

    def make_optimizer(self, model: nn.Module) -> None:
        """Make the task's optimizer over `model`; both together are the state."""
        self.optimizer = make_optimizer(self.task, list(model.parameters()))
        self._state = ModelState(model, self.optimizer)
        stepped = {parameter for group in self.optimizer.param_groups for parameter in group["params"]}
        self._stepped = {name for name, one in model.named_parameters() if one in stepped and one.requires_grad}
        self._rates = Rates(self.task, self.optimizer)
        self._state.of_the_moment, self._state.schedule = self._rates.settings, self._rates.schedule

    def update(self, batch: Batch, weight: float = 1.0, quietly: Quietly = nullcontext) -> Tensor:
        """Run forward, backward and optimizer step at the present learning rate. Return the batch's mean loss."""
        self.set_learning_rate(batch.fraction_done)
        self.optimizer.zero_grad()
        self._gradients_ready = 0.0
        loss = self.numerics.backward(batch, self.loss, weight, quietly)
        self.waited = time.monotonic() - self._gradients_ready if self._gradients_ready else 0.0
        loss = self.numerics.over_counts(loss, batch.global_size, self.total)
        self.check_gradients()
        self.numerics.take_step(self.optimizer)
        return loss

    def total(self, count: Tensor) -> Tensor:
        """Return the sum of the ranks' counts. All ranks call it together."""
        return self.group.sum(count.cpu().clone())

    def check_gradients(self) -> None:
        """Check the gradients before the optimizer's step. A subclass that finds them wrong raises an error."""
        return

    def _note(self, _: Tensor) -> None:
        self._gradients_ready = time.monotonic()

    def set_learning_rate(self, fraction_done: float) -> None:
        """Set the task's learning rate for when this fraction of all steps is done."""
        self._rates.set(fraction_done)

    @override
    def state(self) -> State:
        return self._state.capture()

    @override
    def restore(self, state: State) -> None:
        self._state.restore(state)

    @override
    def settled(self, name: str) -> bool:
        return self.settles and (name.startswith(OPTIMIZER) or name.removeprefix(MODEL) in self._stepped)

    @override
    def evaluate(self, trial: Evaluator) -> dict[str, float]:
        with trial.untouched(self.model):
            with alone():
                mine = trial.sums(self.model, self.share or WHOLE)
            parts = [part for rank in self.group.gather(mine) for part in rank]
            if not self.group.is_first:
                return {}
            with alone():
                return trial.together(parts, trial.own(self.model))


def check_options(strategy: str, options: Mapping[str, Any], known: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse options, or values of them, that the strategy does not have.

    Raises:
        ConfigurationError: names the field and what it may be.
    """
    field = f"spec.strategy.{strategy[0].lower()}{strategy[1:]}"
    for name, value in options.items():
        if name not in known:
            raise ConfigurationError(
                f"{field}.{name}: {strategy} has no such option; it has {sorted(known) or 'none'}."
            )
        if known[name] and value not in known[name]:
            raise ConfigurationError(f"{field}.{name}: {value!r} is not one of {', '.join(known[name])}.")


def check_one_machine(strategy: str, group: Group) -> None:
    """Refuse ranks of several workers.

    Raises:
        ConfigurationError: there are some.
    """
    if group.local_world_size != group.world_size:
        raise ConfigurationError(
            f"spec.workers.replicas: {strategy} trains on the devices of one worker, here are {group.world_size} ranks "
            f"of which {group.local_world_size} are this worker's. Set it to 1 and gpus to the number of devices, or "
            "choose AllReduce."
        )
