"""Peers of one host talk through memory: every length, both ends' deaths, and what must not be believed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from trainmaster_trainer.shared_memory.segment import create_segment, open_segment
from trainmaster_trainer.transport import memory_stream
from trainmaster_trainer.transport.connection import CALLER, LISTENER, MEMORY, Connection
from trainmaster_trainer.transport.frame import BadFrameError, Message
from trainmaster_trainer.transport.links import PeerLostError
from trainmaster_trainer.transport.memory_stream import CHUNK, SLOTS, MemoryStream

from tests.trainer.transport.harness import Town, worker, write_roster

PATIENCE = 100.0
DESCRIPTORS = Path("/proc/self/fd")
KEY = b"a key of a conversation"
CHILD = """
import sys, time
from pathlib import Path
from trainmaster_trainer.transport.frame import Message
from tests.trainer.transport.harness import Town, listen, port_of

town = Town(Path(sys.argv[1]))
listener = listen()
town.settle(1, (lambda _caller, request: time.sleep(1000) if request.name == "never" else Message("echo")), listener)
print(port_of(listener), flush=True)
time.sleep(1000)
"""


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    """Its links share memory."""
    town = Town(tmp_path / "roster.json")
    yield town
    town.close()


@pytest.fixture
def pair() -> Iterator[tuple[Connection, Connection]]:
    """A caller and a listener that have moved into memory."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    caller, listener = Connection(ours, KEY, CALLER), Connection(theirs, KEY, LISTENER)
    taking = threading.Thread(target=lambda: listener.take_memory(listener.receive()))
    taking.start()
    caller.offer_memory()
    taking.join()
    yield caller, listener
    caller.close()
    listener.close()


def stream_of(connection: Connection) -> MemoryStream:
    stream = connection._stream
    assert isinstance(stream, MemoryStream)
    return stream


@pytest.mark.parametrize("size", [0, 1, CHUNK - 300, CHUNK, CHUNK + 1, SLOTS * CHUNK, 3 * SLOTS * CHUNK + 7])
def test_messages_of_every_length_arrive_again_and_again(pair: tuple[Connection, Connection], size: int) -> None:
    caller, listener = pair
    sent = [torch.randint(0, 256, (size,), dtype=torch.uint8) for _ in range(SLOTS + 3)]

    def echo() -> None:
        for _ in sent:
            listener.send(listener.receive())

    echoing = threading.Thread(target=echo)
    echoing.start()
    for tensor in sent:
        caller.send(Message("any", tensors=[tensor]))
        assert torch.equal(caller.receive().tensors[0], tensor)
    echoing.join()


def test_what_fits_is_sent_without_a_reader(pair: tuple[Connection, Connection]) -> None:
    caller, listener = pair
    fits = Message("any", tensors=[torch.zeros(SLOTS * CHUNK - (1 << 13), dtype=torch.uint8)])
    assert listener.takes_at_once(fits)
    listener.send(fits)  # nobody reads yet
    assert not listener.takes_at_once(Message("any", tensors=[torch.zeros(SLOTS * CHUNK)]))
    assert caller.receive().name == "any"


def test_what_was_said_before_hanging_up_is_heard(pair: tuple[Connection, Connection]) -> None:
    caller, listener = pair
    listener.send(Message("farewell"))
    listener.close()
    assert caller.receive().name == "farewell"
    with pytest.raises(ConnectionError):
        caller.receive()


def test_silence_ends_with_the_time_limit(pair: tuple[Connection, Connection]) -> None:
    caller, _ = pair
    caller.set_timeout(0.1)
    with pytest.raises(TimeoutError):
        caller.receive()


@pytest.mark.parametrize("size", [0, CHUNK + 1, 1 << 63])
def test_a_slot_that_lies_about_its_length_is_refused(pair: tuple[Connection, Connection], size: int) -> None:
    caller, listener = pair
    half = stream_of(listener)._out
    memory_stream._length.pack_into(half.view, half.slot, size)
    half.full.post()
    with pytest.raises(BadFrameError):
        caller.receive()


@pytest.mark.parametrize(
    "page",
    [
        {},
        {"boot": "another host", "process": 1, "file": 1, "mark": ""},
        {"process": "../../etc", "file": "passwd"},
        {"process": os.getpid(), "file": 0, "mark": "00" * 64},
        {"process": [], "file": None, "mark": 7},
    ],
)
def test_an_offer_that_is_none_is_declined_and_the_socket_goes_on(town: Town, page: dict[str, object]) -> None:
    town.settle(1)
    town.shares_memory = False
    links = town.links(0)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert links.ask(1, Message(MEMORY, {"boot": boot, **page}), PATIENCE).values == {"taken": False}
    assert links.ask(1, Message("any"), PATIENCE).name == "echo"


def test_memory_that_is_too_short_or_of_another_is_not_taken() -> None:
    segment = create_segment(64)
    assert segment is not None
    page = segment.page()
    assert open_segment(page, 64) is not None
    assert open_segment(page, 1 << 20) is None
    assert open_segment({**page, "mark": "00" * 64}, 64) is None


def test_between_processes_a_death_is_noticed_and_a_successor_found(town: Town) -> None:
    links = town.links(0)
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", CHILD, town.path], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            port = int(child.stdout.readline())
            write_roster(town.path, town.roster.__class__(1, (worker(1, port),), "", town.roster.rendezvous))
            assert links.ask(1, Message("any", tensors=[torch.zeros(1 << 21)]), PATIENCE).name == "echo"
            connection = links.to(1)._connection
            assert connection is not None
            assert stream_of(connection).room == SLOTS * CHUNK
            threading.Timer(0.2, child.send_signal, [signal.SIGKILL]).start()
            with pytest.raises(PeerLostError):
                links.ask(1, Message("never"), patience=0)


def test_connections_leave_no_descriptor_behind(town: Town) -> None:
    town.settle(1)
    links = town.links(0)
    before = len(list(DESCRIPTORS.iterdir()))
    for _ in range(20):
        assert links.ask(1, Message("any"), PATIENCE).name == "echo"
        links.to(1).close()
    deadline = time.monotonic() + PATIENCE
    while len(list(DESCRIPTORS.iterdir())) > before:  # the last ones go with the listener's threads
        assert time.monotonic() < deadline
