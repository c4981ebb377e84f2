"""Send and receive tensors between two ranks over torch's process group, and count every byte.

gloo carries CPU tensors, NCCL those on GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch.distributed as dist
from torch import Tensor

from trainmaster_trainer.collectives.reducer import Traffic, size_of

Message = tuple[Tensor, int]  # what, and to or from which rank


class TensorLinks:
    """TensorLinks connects a rank to its peers. `group` must serve nothing else: messages are told apart by order."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self.traffic = Traffic()

    def exchange(self, send: Iterable[Message] = (), receive: Iterable[Message] = ()) -> None:
        """Send and receive at the same time; return when all is done. Empty tensors are not sent."""
        outgoing = [message for message in send if message[0].numel()]
        incoming = [message for message in receive if message[0].numel()]
        operations = [dist.P2POp(dist.isend, tensor, peer, self._group) for tensor, peer in outgoing]
        operations += [dist.P2POp(dist.irecv, tensor, peer, self._group) for tensor, peer in incoming]
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()
        self.traffic.sent += sum(size_of(tensor) for tensor, _ in outgoing)
        self.traffic.received += sum(size_of(tensor) for tensor, _ in incoming)
