"""JSON lines with descriptors beside them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from trainmaster_trainer.agent.channel import Channel

Pair = tuple[Channel, Channel]


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair()
    channels = Channel(left), Channel(right)
    yield channels
    for channel in channels:
        channel.close()


def test_descriptors_stay_with_their_messages(pair: Pair) -> None:
    ours, theirs = pair
    reader, writer = os.pipe()
    ours.send({"number": 1})
    ours.send({"number": 2}, [writer])
    ours.send({"number": 3})
    ours.send({"number": 4}, [writer, reader])
    received = theirs.receive()
    assert [(one.message["number"], len(one.descriptors)) for one in received] == [(1, 0), (2, 1), (3, 0), (4, 2)]
    os.write(received[1].descriptors[0], b"through")
    assert os.read(reader, 99) == b"through"
    for descriptor in [reader, writer, *received[1].descriptors, *received[3].descriptors]:
        os.close(descriptor)


def test_received_descriptors_are_not_inherited(pair: Pair) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    pair[0].send({}, [writer])
    ((_, (mine,)),) = pair[1].receive()
    assert not os.get_inheritable(mine)
    for descriptor in (reader, writer, mine):
        os.close(descriptor)


def test_nothing_there_is_no_wait(pair: Pair) -> None:
    assert pair[0].receive() == []


def test_the_last_messages_are_heard_before_the_end(pair: Pair) -> None:
    pair[0].send({"last": True})
    pair[0].close()
    assert [one.message for one in pair[1].receive()] == [{"last": True}]
    with pytest.raises(EOFError):
        pair[1].receive()


def test_a_reader_that_has_read_and_gone_is_no_error(pair: Pair) -> None:
    pair[0].send({"big": "x" * 50_000})
    (received,) = pair[1].wait()
    pair[1].close()
    assert len(received.message["big"]) == 50_000
    with pytest.raises(OSError, match="Broken pipe"):
        pair[0].send({"nobody": "listens"})


def test_nobody_waits_for_ever_for_one_who_does_not_read() -> None:
    """Half a message may be there: no other one follows it."""
    left, right = socket.socketpair()
    ours, theirs = Channel(left, 0.01), Channel(right)
    with pytest.raises(BlockingIOError):
        ours.send({"text": "x" * 10**7})
    with pytest.raises(BrokenPipeError):
        ours.send({})
    with pytest.raises(EOFError):
        theirs.receive()
    for channel in (ours, theirs):
        channel.close()
