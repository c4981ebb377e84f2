"""Send tensors from a rank to its neighbour on the same host through memory; to send need not wait.

Each direction between two neighbours is a lane: a few slots of one message each, in the receiver's memory. That is the
bounded buffer of Dijkstra (1965): one semaphore counts the messages that lie there, another the slots that are free.

Only the two ends carry a message, in the thread that computes. So each send, receive or wait moves everything that can
be moved. Two neighbours that wait for a message of each other are therefore not stuck, as with messages that other
threads carry.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from trainmaster_trainer.collectives.peer_memory import MemoryPeerLostError, connect
from trainmaster_trainer.group import Group
from trainmaster_trainer.shared_memory import semaphores
from trainmaster_trainer.shared_memory.segment import Segment
from trainmaster_trainer.shared_memory.semaphores import Semaphore

ROOM = 1 << 20  # bytes of a slot. What is larger takes a while to compute, too, and gloo's threads carry it meanwhile
SLOTS = 4
_FIRST_SLOT = 2 * semaphores.SIZE
_LANE = _FIRST_SLOT + SLOTS * ROOM
_BELOW, _ABOVE = 0, 1  # where in a rank's memory the lanes from its neighbours are
_PAUSE_SECONDS = 0.0002  # while messages in both directions have to wait


class TensorMessage(dist.Work):
    """TensorMessage is a tensor on its way, for which torch waits."""

    def __init__(self, tensor: Tensor, finish: Callable[[TensorMessage], None]) -> None:
        super().__init__()
        self.tensor = tensor.detach()
        self.done = False
        self._finish = finish

    @override
    def wait(self, timeout: Any = None) -> bool:
        if not self.done:
            self._finish(self)
        return True

    @override
    def is_completed(self) -> bool:
        return self.done


class Lane:
    """Lane is one direction between this rank and a neighbour, seen from one of its ends."""

    def __init__(self, owner: Segment, place: int, *, outwards: bool) -> None:
        first = place * _LANE
        self._outwards = outwards
        full, free = (Semaphore(owner.address + first + at * semaphores.SIZE) for at in (0, 1))
        self.ready, self._passed_on = (free, full) if outwards else (full, free)
        slots = owner.data[first + _FIRST_SLOT : first + _LANE]
        self._slots = list(slots.chunk(SLOTS))
        self._number = 0
        self.waiting: deque[TensorMessage] = deque()

    def move(self) -> bool:
        """Move as many messages as can be moved now; return whether there were any."""
        moved = False
        while self.waiting and self.ready.try_wait(1):
            self.take_turn()
            moved = True
        return moved

    def take_turn(self) -> None:
        """Move the next message: `ready` has been counted down for it."""
        message = self.waiting.popleft()
        like = message.tensor
        slot = self._slots[self._number][: like.nbytes].view(like.dtype).view(like.shape)
        if self._outwards:
            slot.copy_(message.tensor)
        else:
            message.tensor.copy_(slot)
        self._number = (self._number + 1) % SLOTS
        self._passed_on.post()
        message.done = True


class Messages:
    """Messages holds all lanes of one rank."""

    def __init__(self, segments: dict[int, Segment], rank: int, patience: timedelta) -> None:
        self._segments = segments
        self._patience = patience
        neighbours = [peer for peer in (rank - 1, rank + 1) if peer in segments]
        places = {rank - 1: _BELOW, rank + 1: _ABOVE}
        theirs = {rank - 1: _ABOVE, rank + 1: _BELOW}
        self._out = {peer: Lane(segments[peer], theirs[peer], outwards=True) for peer in neighbours}
        self._in = {peer: Lane(segments[rank], places[peer], outwards=False) for peer in neighbours}
        self._lanes = [*self._out.values(), *self._in.values()]

    def takes(self, tensor: Tensor, peer: int) -> bool:
        """Return whether this tensor goes through memory. Both ends give the same answer."""
        return peer in self._out and 0 < tensor.nbytes <= ROOM

    def send(self, tensor: Tensor, peer: int) -> TensorMessage:
        """Send a tensor, which must not be changed until it is done."""
        return self._begin(self._out[peer], peer, tensor)

    def receive(self, tensor: Tensor, peer: int) -> TensorMessage:
        """Receive into a tensor of the size that was sent."""
        return self._begin(self._in[peer], peer, tensor)

    def _begin(self, lane: Lane, peer: int, tensor: Tensor) -> TensorMessage:
        message = TensorMessage(tensor, partial(self._finish, lane, peer))
        lane.waiting.append(message)
        self._move_all()
        return message

    def _move_all(self) -> bool:
        moved = [lane.move() for lane in self._lanes]  # all of them, not up to the first that can
        return any(moved)

    def _finish(self, lane: Lane, peer: int, message: TensorMessage) -> None:
        deadline = time.monotonic() + self._patience.total_seconds()
        while not message.done:
            if self._move_all():
                continue
            # Nothing else has to be moved meanwhile.
            if not any(other.waiting for other in self._lanes if other is not lane):
                lane.ready.wait(partial(self._watch, peer, deadline))
                lane.take_turn()
            else:
                time.sleep(_PAUSE_SECONDS)
                try:
                    self._watch(peer, deadline)
                except MemoryPeerLostError:
                    if not self._move_all():  # what it has sent last is there
                        raise

    def _watch(self, peer: int, deadline: float) -> None:
        if not self._segments[peer].owner_lives():
            raise MemoryPeerLostError(f"rank {peer} of this group, which shares memory with this rank, has ended")
        if time.monotonic() > deadline:
            raise MemoryPeerLostError(
                f"rank {peer} of this group was silent for {self._patience.total_seconds():.0f} s"
            )


def share_messages(group: Group) -> Messages | None:
    """Return the lanes between a group's neighbours; None, on all ranks, if one cannot. All ranks of it call this."""
    segments = connect(group, "messages", range(group.world_size), 2 * _LANE, prepare=_prepare)
    return Messages(segments, group.rank, group.patience) if segments else None


def _prepare(segment: Segment) -> None:
    for place in (_BELOW, _ABOVE):
        first = segment.address + place * _LANE
        Semaphore(first).create(0)
        Semaphore(first + semaphores.SIZE).create(SLOTS)
