"""Exchange messages over one stream to a verified peer. Two peers of one host move it into memory."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import torch
from torch import Tensor

from trainmaster_trainer.shared_memory.segment import create_segment, open_segment
from trainmaster_trainer.transport import frame, memory_stream
from trainmaster_trainer.transport.frame import BadFrameError, Message, OtherTensorsError
from trainmaster_trainer.transport.memory_stream import MemoryStream
from trainmaster_trainer.transport.stream import SocketStream, Stream

CALLER, LISTENER = b"caller", b"listener"
MOST_BYTES = 1 << 36
MEMORY = "memory"  # the message with which a caller offers some
_TEXT_BYTES = 1 << 13  # more than header and JSON of a message that is worth a hurry


class Connection:
    """Connection is one side of a socket to a verified peer. One thread may send while another one receives."""

    def __init__(self, connected: socket.socket, key: bytes, side: bytes, most: int = MOST_BYTES) -> None:
        self._socket = connected
        self._stream: Stream = SocketStream(connected)
        self._key = key
        self._side = side
        self._other = LISTENER if side == CALLER else CALLER
        self._most = most
        self._sent = self._received = 0

    def set_timeout(self, seconds: float) -> None:
        """Set for how many seconds the other side may be silent, within a message or before one; 0: for ever."""
        self._stream.set_timeout(seconds)

    def offer_memory(self) -> None:
        """Offer memory as the caller: if the listener is on this host and agrees, all further messages go through it.

        Raises:
            OSError: the peer is gone, silent, or does not talk as agreed.
        """
        if self._socket.getpeername()[0] != self._socket.getsockname()[0]:
            return  # another host, or another pod
        segment = create_segment(memory_stream.SIZE)
        if segment is None:
            return
        try:
            memory_stream.prepare_rings(segment)
            self.send(Message(MEMORY, segment.page()))
            taken = self.receive().values.get("taken")
        finally:
            segment.close_file()
        if taken:
            self._stream = MemoryStream(self._socket, segment, is_caller=True)

    def take_memory(self, offer: Message) -> None:
        """Take the memory that the caller offers, if it can be opened here: all further messages go through it then.

        Raises:
            OSError: the peer is gone, silent, or does not talk as agreed.
        """
        segment = open_segment(offer.values, memory_stream.SIZE)
        self.send(Message(MEMORY, {"taken": segment is not None}))
        if segment is not None:
            segment.close_file()
            self._stream = MemoryStream(self._socket, segment, is_caller=False)

    def takes_at_once(self, message: Message) -> bool:
        """Return whether an answer can be sent without waiting for a peer that may be slow."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in message.tensors)
        return size + _TEXT_BYTES <= self._stream.room

    def send(self, message: Message) -> None:
        """Send a message whole.

        Raises:
            OSError: the peer is gone, or takes nothing.
        """
        head, views = frame.encode(message, self._key, self._side, self._sent)
        self._sent += 1
        self._stream.write([memoryview(head), *(view for view in views if len(view))])

    def receive(self, into: Sequence[Tensor] = ()) -> Message:
        """Return the next message. Its tensors are written into `into` if given; dtypes and shapes must match.

        Raises:
            OSError: the peer is gone, silent, or does not talk as agreed.
            OtherTensorsError: they do not match. The connection cannot be used any more.
        """
        data = self._stream.read(frame.HEADER_SIZE)
        header = frame.decode_header(data, self._received, self._most)
        text = self._stream.read(header.json_length)
        message, described = frame.decode_text(data, text, self._key, self._other)
        self._received += 1
        if sum(frame.size_of(*tensor) for tensor in described) != header.payload:
            raise BadFrameError("the tensors are not as long as the header says")
        message.tensors = (
            list(into)
            if into and described
            else [torch.empty(shape, dtype=frame.DTYPES[dtype]) for dtype, shape in described]
        )
        if (expected := frame.describe(message.tensors)) != described:
            raise OtherTensorsError(
                f"spec.training.task: it makes another model here than at a peer, which sent {described!s:.200} where "
                f"{expected!s:.200} have their place. Give all members the same image, variables and files."
            )
        for tensor in message.tensors:
            self._stream.fill(frame.memory(tensor))
        return message

    def close(self) -> None:
        """Close the connection, even while another thread waits on it."""
        self._stream.close()
