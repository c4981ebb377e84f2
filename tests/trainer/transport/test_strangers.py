"""Whoever does not know the attempt's key is refused, whatever it says, and the others do not notice."""

import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
import torch
from trainmaster_trainer.transport import connection as connections
from trainmaster_trainer.transport import frame, handshake
from trainmaster_trainer.transport.connection import CALLER, Connection
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.handshake import HandshakeRefusedError, Identity, identify
from trainmaster_trainer.transport.links import Links, PeerLostError
from trainmaster_trainer.transport.service import STRANGERS
from trainmaster_trainer.transport.stream import receive

from tests.trainer.transport.harness import HOST, KEY, Town, listen, port_of

PATIENCE = 100.0
MOST = 1 << 20


@pytest.fixture
def port(town: Town) -> int:
    town.settle(1, most=MOST)
    return town.roster.members[0].ports[0]


@pytest.fixture
def friend(town: Town, port: int) -> Iterator[Links]:
    """Is connected before, and must not notice anything."""
    links = town.links(2)
    assert links.ask(1, Message("before"), PATIENCE).name == "echo"
    connected = links.to(1)._connection
    yield links
    assert links.ask(1, Message("after"), patience=0).name == "echo"
    assert links.to(1)._connection is connected


def dial(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=PATIENCE)


def was_closed(stranger: socket.socket) -> bool:
    try:
        while data := stranger.recv(4096):
            assert len(data) <= 64  # no more than a nonce and a proof ever reaches a stranger
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    "identity",
    [identify(3, 1, "another key"), identify(3, 2, KEY), identify(3, 0, KEY)],
    ids=["wrong key", "newer attempt", "older attempt"],
)
@pytest.mark.usefixtures("friend")
def test_who_has_another_key_or_attempt_is_refused(port: int, identity: Identity) -> None:
    with dial(port) as stranger, pytest.raises(ConnectionError):
        handshake.call(stranger, identity, 1)


@pytest.mark.usefixtures("friend")
def test_who_wanted_another_rank_is_refused(town: Town, port: int) -> None:
    with dial(port) as caller, pytest.raises(ConnectionError):
        handshake.call(caller, town.identity(3), 7)


@pytest.mark.usefixtures("friend")
def test_a_caller_who_cannot_answer_the_challenge_is_refused(town: Town, port: int) -> None:
    own = town.identity(3)
    with dial(port) as stranger:
        stranger.sendall(handshake._HELLO.pack(handshake.MAGIC, 1, own.rank, 1, own.life, os.urandom(32)))
        challenge = receive(stranger, 64)
        stranger.sendall(challenge[32:])  # the listener's own proof, sent back to it
        assert was_closed(stranger)


@pytest.mark.usefixtures("friend")
def test_a_recorded_conversation_opens_nothing(town: Town, port: int) -> None:
    recorded = record(town, port)
    with dial(port) as stranger:
        stranger.sendall(recorded)
        assert was_closed(stranger)


def record(town: Town, port: int) -> bytes:
    """Everything that a good caller says: a man in the middle listens."""
    middle = listen()
    said = bytearray()

    def pass_on() -> None:
        caller, _ = middle.accept()
        listener = dial(port)
        for size, reply in ((handshake._HELLO.size, 64), (32, 0)):
            data = receive(caller, size)
            said.extend(data)
            listener.sendall(data)
            caller.sendall(receive(listener, reply))
        listener.close()

    thread = threading.Thread(target=pass_on)
    thread.start()
    with dial(port_of(middle)) as caller:
        handshake.call(caller, town.identity(3), 1)
        thread.join()
    middle.close()
    return bytes(said)


def test_a_false_listener_is_told_nothing(town: Town) -> None:
    listener = listen()

    def pretend() -> None:
        caller, _ = listener.accept()
        heard.append(caller.recv(4096))
        caller.sendall(os.urandom(64))
        heard.append(caller.recv(4096))

    heard: list[bytes] = []
    thread = threading.Thread(target=pretend)
    thread.start()
    with (
        dial(port_of(listener)) as caller,
        pytest.raises(HandshakeRefusedError, match="does not have this attempt's key"),
    ):
        handshake.call(caller, town.identity(3), 1)
    thread.join()
    listener.close()
    assert len(heard[0]) == handshake._HELLO.size
    assert heard[1] == b""


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n" + b"x" * 200, b"\0" * 4096, b"\xff" * 4096, os.urandom(100_000)],
    ids=["http", "zeros", "ones", "noise"],
)
@pytest.mark.usefixtures("friend")
def test_garbage_is_refused(port: int, data: bytes) -> None:
    with dial(port) as stranger:
        try:
            stranger.sendall(data)
        except ConnectionError:
            return
        assert was_closed(stranger)


def verified(town: Town, port: int) -> tuple[socket.socket, bytes]:
    caller = dial(port)
    return caller, handshake.call(caller, town.identity(3), 1)


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<4sIQQQ", b"TMf1", 0, 1 << 60, 0, 0),
        struct.pack("<4sIQQQ", b"TMf1", 1, 10, MOST + 1, 0),
        struct.pack("<4sIQQQ", b"TMf1", 1 << 31, 10, 10, 0),
        struct.pack("<4sIQQQ", b"HTTP", 0, 10, 0, 0),
        struct.pack("<4sIQQQ", b"TMf1", 0, 10, 0, 5),
    ],
    ids=["huge text", "huge tensors", "too many tensors", "no magic", "out of order"],
)
@pytest.mark.usefixtures("friend")
def test_a_header_that_lies_ends_the_connection_before_memory_is_taken(town: Town, port: int, header: bytes) -> None:
    caller, _key = verified(town, port)
    caller.sendall(header + b"\0" * frame.SIGNATURE)
    assert was_closed(caller)


@pytest.mark.usefixtures("friend")
def test_a_forged_or_repeated_message_ends_the_connection(town: Town, port: int) -> None:
    for key_of in (lambda _key: b"k" * 32, lambda key: key):
        caller, key = verified(town, port)
        data, _ = frame.encode(Message("any"), key_of(key), CALLER, 0)
        caller.sendall(data + data)  # the second time, even the right one is a repetition
        conversation = Connection(caller, key, CALLER)
        if key_of(key) == key:
            assert conversation.receive().name == "echo"
        with pytest.raises(ConnectionError):
            conversation.receive()


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"name":"a","values":{},"tensors":[["object",[1]]]}', b"[" * 9000])
@pytest.mark.usefixtures("friend")
def test_a_signed_message_that_makes_no_sense_ends_its_own_connection_only(town: Town, port: int, text: bytes) -> None:
    caller, key = verified(town, port)
    header = struct.pack("<4sIQQQ", b"TMf1", 1, len(text), 8, 0)
    caller.sendall(header + frame.sign(header, text, key, CALLER) + text + b"\0" * 8)
    assert was_closed(caller)


@pytest.mark.usefixtures("friend")
def test_a_peer_that_dies_in_the_middle_of_a_tensor_harms_nobody(town: Town, port: int) -> None:
    caller, key = verified(town, port)
    head, views = frame.encode(Message("any", tensors=[torch.zeros(1000)]), key, CALLER, 0)
    caller.sendall(head + bytes(views[0])[:1000])
    caller.close()


def test_strangers_who_say_nothing_keep_nobody_out(town: Town, port: int) -> None:
    silent = [dial(port) for _ in range(STRANGERS + 8)]
    assert town.links(2).ask(1, Message("any"), PATIENCE).name == "echo"
    for stranger in silent:
        stranger.close()


def test_a_listener_of_another_attempt_is_not_believed(town: Town) -> None:
    town.settle(1)
    links = Links(identify(2, 2, KEY), town.links(0).directory)
    with pytest.raises(PeerLostError):
        links.ask(1, Message("any"), patience=0.1)
    links.close()


def test_an_empty_key_is_no_key() -> None:
    with pytest.raises(ValueError, match="no key"):
        identify(0, 1, "")


def test_a_silent_caller_is_dropped_in_time(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster_trainer.transport.service.HANDSHAKE_SECONDS", 0.1)
    town.settle(1)
    with dial(town.roster.members[0].ports[0]) as stranger:
        assert was_closed(stranger)
    assert connections.MOST_BYTES > MOST
