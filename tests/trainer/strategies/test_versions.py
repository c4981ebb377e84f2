"""Members of two versions of the trainer in one job: the tag of an image has moved on, and one pod was replaced."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.strategies import same_models
from trainmaster_trainer.strategies.parameter_server.worker import Worker
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.handshake import Caller
from trainmaster_trainer.transport.service import RequestRefusedError

from tests.trainer.transport.harness import Town

SHAPES = {"w": (str(torch.float32), (3,))}


def older(_: Caller, request: Message) -> Message:
    """The answers of a server that does not know the question for its model."""
    raise RequestRefusedError(f"a server cannot {request.name}")


def test_a_server_that_cannot_tell_its_model_is_passed_over_and_no_other_is(tmp_path: Path) -> None:
    town = Town(tmp_path / "roster.json")
    town.settle(0, older)
    town.settle(1, lambda *_: same_models.answer({"w": (str(torch.float32), (4,))}))
    worker = object.__new__(Worker)
    worker.__dict__ |= {
        "_servers": [0],
        "_shapes": SHAPES,
        "_member": SimpleNamespace(links=town.links(2), rank=2, stop=None),
    }
    worker._check_servers()
    worker._servers = [0, 1]
    with pytest.raises(ConfigurationError, match="one model at rank 1 and another one at rank 2"):
        worker._check_servers()
    town.close()
