"""What a process lacks for a moment (descriptors, threads) makes its service deaf for no longer; all else is told."""

import resource
import socket
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from trainmaster_trainer.independent_member import IndependentMember
from trainmaster_trainer.transport.frame import Message
from trainmaster_trainer.transport.handshake import Caller
from trainmaster_trainer.transport.stream import close

from tests.trainer.transport.harness import HOST, Town, listen

PATIENCE = 100.0


def wait_for(holds: Callable[[], Any]) -> None:
    waiting = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if holds():
            return
        waiting.wait(0.01)
    raise AssertionError("it never happened")


def test_without_descriptors_a_service_waits_for_some(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.settle(1)
    caller = socket.socket()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        caller.connect((HOST, town.roster.members[0].ports[0]))
        wait_for(lambda: "No caller can be heard at the moment: [Errno 24]" in caplog.text)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        caller.close()
    assert town.links(2).ask(1, Message("hello"), PATIENCE).name == "echo"


def test_without_threads_it_does_too(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel's limit on threads does not hold for root, who runs the tests."""
    town.settle(1)
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def scarce(thread: threading.Thread) -> None:
        if thread.name == "peer" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    assert town.links(2).ask(1, Message("hello"), PATIENCE).name == "echo"
    assert "A caller cannot be heard at the moment: can't start new thread" in caplog.text


def test_a_listener_that_is_lost_is_told(town: Town) -> None:
    listener = listen()
    failures: list[Exception] = []
    town.settle(1, listener=listener, failed=failures.append)
    close(listener)
    wait_for(lambda: failures)
    assert isinstance(failures[0], OSError)


def test_an_error_over_somebody_who_has_gone_is_told(town: Town) -> None:
    failures: list[Exception] = []

    def gone(_caller: Caller) -> None:
        raise LookupError("who was that?")

    town.settle(1, gone=gone, failed=failures.append)
    links = town.links(2)
    links.ask(1, Message("hello"), PATIENCE)
    links.close()
    wait_for(lambda: failures)
    assert isinstance(failures[0], LookupError)


def test_an_error_in_a_members_thread_is_raised_in_its_main_thread() -> None:
    nothing: dict[str, Any] = {field.name: None for field in fields(IndependentMember)}
    member = IndependentMember(**{**nothing, "failures": []})

    def work() -> None:
        raise LookupError("what nobody thought of")

    member.beside(work, "work")
    wait_for(lambda: member.failures)
    with pytest.raises(LookupError, match="what nobody thought of"):
        member.check()
