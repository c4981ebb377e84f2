"""StageGroup is a process group for torch whose ranks are the stages of a pipeline on one host.

Torch's schedules send activations and gradients to neighbouring stages. Those of up to a MiB go through memory
(`tensor_messages.py`): between processes that compute without a pause, gloo's threads have to be given a core first, at
both ends. All else goes to gloo (`over_gloo.py`).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives import over_gloo
from trainmaster_trainer.collectives.over_gloo import OverGloo
from trainmaster_trainer.collectives.tensor_messages import Messages, share_messages
from trainmaster_trainer.group import Group


class StageGroup(OverGloo):
    """StageGroup is a group of ranks, each of which sends to the one before and the one after it."""

    backend = "trainmaster-stages"

    def __init__(self, gloo: Any, messages: Messages) -> None:
        super().__init__(gloo)
        self._messages = messages

    # Names and arguments from here on are torch's.

    @override
    def send(self, tensors: list[Tensor], dstRank: int, tag: int) -> Any:
        if self._messages.takes(tensors[0], dstRank):
            return self._messages.send(tensors[0], dstRank)
        return self._gloo.send(tensors, dstRank, tag)

    @override
    def recv(self, tensors: list[Tensor], srcRank: int, tag: int) -> Any:
        if self._messages.takes(tensors[0], srcRank):
            return self._messages.receive(tensors[0], srcRank)
        return self._gloo.recv(tensors, srcRank, tag)


def offer(group: Group) -> str | None:
    """Return the backend's name, if ranks of this group may exchange through memory; else None."""
    return over_gloo.offer(StageGroup.backend, group, _create)


def _create(among: Group, gloo: Any) -> Any:
    """Return the group of the ranks that share memory; on all of them gloo's group, where one of them cannot."""
    messages = share_messages(among)
    return StageGroup(gloo, messages) if messages else gloo
