"""What tensors lie in stays what it is when they are moved, cut or widened: a model asks its inputs for attributes."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.structure import each_tensor, leaves, part_of
from typing_extensions import override

Pair = namedtuple("Pair", ["first", "second"])  # noqa: PYI024 (as older code has them)


class Easy(dict[str, Any]):
    """A dict whose items are attributes, and which has one beside them."""

    def __init__(self, items: dict[str, Any], note: str) -> None:
        super().__init__(items)
        self.note = note

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


class Answer(OrderedDict[str, Any]):
    """A model's output whose items are attributes, and which is not updated."""

    @override
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    @override
    def update(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("an answer is not updated")


@dataclass(frozen=True)
class Record:
    """A model's output that checks what it is made of."""

    logits: Tensor
    note: str = ""

    def __post_init__(self) -> None:
        if self.note == "made anew":
            raise ValueError


def an_answer(logits: Tensor) -> Answer:
    answer = Answer()
    answer["logits"], answer["note"] = logits, "kept"
    return answer


ONES = torch.ones(4, 2)
STRUCTURES: list[Any] = [
    ONES,
    [ONES],
    (ONES, None),
    Pair(ONES, "kept"),
    {"logits": ONES},
    Easy({"logits": ONES}, "kept"),
    UserDict({"logits": ONES}),
    MappingProxyType({"logits": ONES}),
    an_answer(ONES),
    Record(ONES, "kept"),
    [{"inside": (Record(ONES, "kept"),)}],
]


@pytest.mark.parametrize("value", STRUCTURES, ids=lambda value: type(value).__name__)
def test_a_changed_structure_is_of_the_same_class(value: Any) -> None:
    changed = each_tensor(value, lambda tensor: tensor + 1)
    assert type(changed) is type(value)
    (leaf,) = leaves(changed)
    assert leaf.tolist() == [[2.0, 2.0]] * 4
    assert leaves(value)[0] is ONES
    (part,) = leaves(part_of(value, 1, 3))
    assert part.shape == (2, 2)


@pytest.mark.parametrize("value", STRUCTURES, ids=lambda value: type(value).__name__)
def test_an_unchanged_one_is_the_same_object(value: Any) -> None:
    assert each_tensor(value, lambda tensor: tensor) is value


def test_what_it_knows_besides_is_kept() -> None:
    easy = each_tensor(Easy({"logits": ONES}, "kept"), torch.neg)
    assert (easy.note, easy.logits.tolist()) == ("kept", (-ONES).tolist())
    answer = each_tensor(an_answer(ONES), torch.neg)
    assert (answer.note, answer.logits.tolist()) == ("kept", (-ONES).tolist())
    record = each_tensor(Record(ONES, "kept"), torch.neg)
    assert (record.note, record.logits.tolist()) == ("kept", (-ONES).tolist())


def test_texts_are_one_for_each_sample_wherever_default_collate_puts_them() -> None:
    inputs, targets = default_collate([({"text": str(one)}, str(one)) for one in range(5)])
    assert part_of(inputs, 1, 3) == {"text": ["1", "2"]}
    assert part_of(targets, 1, 3) == ("1", "2")
    assert part_of((b"a", b"b"), 0, 1) == (b"a",)
    pairs, _ = default_collate([((str(one), bytes([one])), one) for one in range(5)])
    assert [list(part_of(pairs, 3, 5)[place]) for place in (0, 1)] == [["3", "4"], [b"\x03", b"\x04"]]


@pytest.mark.parametrize("kind", ["Answer", "Record"])
def test_a_loss_in_16_bits_sees_the_models_own_answer_in_32(kind: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(2, 2)

        @override
        def forward(self, inputs: Tensor) -> Any:
            logits = self.line(inputs)
            assert logits.dtype == torch.bfloat16
            return an_answer(logits) if kind == "Answer" else Record(logits)

    model = Model()
    Numerics("BF16").attach(model, torch.device("cpu"))
    assert model(ONES).logits.dtype == torch.float32
