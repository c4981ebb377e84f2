"""Check that members that make their own models (ParameterServer, Gossip) have made the same model.

They exchange parameters by their places in flat buffers, so the numbers of a different model could be taken for valid
ones. So each member is asked for its shapes, `QUESTION`, before the first of its numbers is used.
"""

from __future__ import annotations

from typing import Any

from trainmaster_trainer.checkpoint.state import Shapes, first_difference
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.transport.frame import Message

QUESTION = "model"


def answer(shapes: Shapes) -> Message:
    """Return the answer to the question."""
    return Message(QUESTION, {"shapes": shapes})


def shapes_told(answer: Message) -> Shapes:
    """Return the shapes that an answer holds."""
    plain: dict[str, Any] = answer.values["shapes"]
    return {name: (str(dtype), tuple(shape)) for name, (dtype, shape) in plain.items()}


def check_alike(theirs: Shapes, own: Shapes, peer: int, rank: int) -> None:
    """Compare the model of rank `peer` with that of this `rank`.

    Raises:
        ConfigurationError: names the first tensor that differs.
    """
    difference = first_difference(theirs, own)
    if difference is not None:
        name, there, here = difference
        raise ConfigurationError(
            f"spec.training.task: it makes one model at rank {peer} and another one at rank {rank}. First difference: "
            f"{name} is {there} there and {here} here. Give all members the same image, variables and files: where "
            "spec.parameterServers has an image or env of its own, this counts too."
        )
