"""Samples that make no batch are named: which ones, what they have, and what to do."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from trainmaster_trainer.collating import collate
from trainmaster_trainer.data import Batches, Share
from trainmaster_trainer.errors import ConfigurationError


@pytest.mark.parametrize(
    ("first", "other", "said"),
    [
        (
            (torch.arange(3), 0),
            (torch.arange(4), 1),
            "inputs of sample 40 of its dataset() have the shape [3], those of sample 7 have the shape [4]",
        ),
        (
            (np.zeros((3, 2)), 0),
            (np.zeros((3, 1)), 1),
            "inputs of sample 40 of its dataset() have the shape [3, 2], those of sample 7 have the shape [3, 1]",
        ),
        (
            (1.0, [1, 2]),
            (1.0, [1, 2, 3]),
            "targets of sample 40 of its dataset() have 2 members, those of sample 7 have 3 members",
        ),
        (
            ({"ids": torch.zeros(2), "mask": torch.zeros(2)}, 0),
            ({"ids": torch.zeros(2), "mask": torch.zeros(5)}, 0),
            "inputs['mask'] of sample 40 of its dataset() have the shape [2], those of sample 7 have the shape [5]",
        ),
        (
            ({"ids": 1, "mask": 2}, 0),
            ({"ids": 1}, 0),
            "inputs of sample 40 of its dataset() have the keys ['ids', 'mask'], those of sample 7 have the keys",
        ),
    ],
)
def test_samples_of_different_shape_are_named_with_the_cure(first: Any, other: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)) as raised:
        collate([first, first, other], [40, 41, 7])
    assert "pad or cut them to one shape in the dataset" in str(raised.value)


@pytest.mark.parametrize(("thing", "said"), [(None, "None"), (object(), "an object of the type builtins.object")])
def test_what_is_no_number_array_or_text_is_named(thing: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"sample 7 of its dataset\(\) has {said} in its inputs\[1\]"):
        collate([((1, 2), 0), ((1, thing), 0)], [40, 7])


def test_the_number_is_the_place_in_the_dataset_whatever_share_is_taken() -> None:
    samples: Any = [(torch.zeros(2 if place == 5 else 1), 0) for place in range(8)]
    batches = Batches(samples, 8, 1, 0, torch.device("cpu"))
    with pytest.raises(ConfigurationError, match=r"(of sample 5 of its|those of sample 5 have)"):
        batches.take(1, Share(0, 1))
