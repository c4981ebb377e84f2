"""A loss that is no mean over samples is told where ranks or parts share a batch, and changes nothing."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trainmaster_trainer import batch_loss
from trainmaster_trainer.batch_loss import loss_of_batch
from trainmaster_trainer.data import Batch
from trainmaster_trainer.tasks.digits import Digits
from typing_extensions import override

OUTPUTS = torch.arange(8.0).reshape(4, 2).requires_grad_()
TARGETS = torch.tensor([0, 1, 0, -100])  # the last one does not count


class Given(Digits):
    """A task of which only the loss is asked."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.calls = way, 0
        self.sizes: list[int] = []  # of all calls: a shallow copy has the same list

    @override
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        self.calls += 1
        self.sizes.append(len(targets))
        if self.way == "draws":
            outputs = outputs * torch.rand(outputs.shape)
        if self.way == "knows four" and len(targets) < 4:
            raise ValueError("no quadruple")
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        if self.way == "sum":
            return losses.sum()
        return losses.mean() if self.way == "over samples" else losses.sum() / (targets >= 0).sum()


@pytest.mark.parametrize(
    ("way", "told", "batch", "counts"),
    [
        ("over what counts", True, {}, True),
        ("sum", True, {}, True),
        ("over samples", False, {}, True),
        ("draws", False, {}, True),
        ("knows four", False, {}, True),
        ("over what counts", False, {"step": 2}, True),
        ("over what counts", False, {"global_size": 4}, True),
        ("over what counts", False, {}, False),
    ],
)
def test_it_is_told_in_the_first_step_of_a_share(
    way: str, told: bool, batch: dict[str, int], counts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    batch_loss._tell.cache_clear()
    share = Batch(OUTPUTS, TARGETS, size=4, fraction_done=0.1, **{"global_size": 8, "step": 1, **batch})
    before = torch.get_rng_state()
    task = Given(way)
    with caplog.at_level(logging.WARNING):
        loss = loss_of_batch(task, OUTPUTS, share, counts=counts)
    assert task.calls == 1
    assert ("loss() of Given is no mean over samples" in caplog.text) == told
    if way != "draws":
        assert torch.equal(torch.get_rng_state(), before)
    assert loss.value.requires_grad


def test_of_several_micro_batches_the_first_one_is_looked_at() -> None:
    share = Batch(OUTPUTS, TARGETS, size=4, global_size=8, fraction_done=0.1, step=1, shares=2)
    task = Given("over samples")
    for part in share.parts(2):
        loss_of_batch(task, part.inputs, part, counts=True)
    assert task.sizes == [2, 1, 1, 2]
