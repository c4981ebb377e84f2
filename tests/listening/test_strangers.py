"""What strangers may cost a listener: each kind of attack against the real thing; what it leaves open is counted."""

import contextlib
import socket

import pytest
from trainmaster.listening.limits import Limits
from trainmaster.wire import names

from tests.listening.asking import BEAT, Served, post
from tests.listening.served import GOOD

CALM_TIMES = 1.5


REFUSED: dict[str, tuple[str, bytes, int]] = {
    "no token, and no body yet": (post(200_000, ""), b"", 401),
    "a bad token, and no body yet": (post(200_000, "bad"), b"", 401),
    "no token, with a body": (post(5, ""), b"[1,2]", 401),
    "too long, and no body yet": (post(names.MAX_HEARTBEAT_BYTES + 1), b"", 413),
    "of no length": (post(None, GOOD, "Transfer-Encoding: chunked"), b"", 411),
    "a head without end": ("GET / HTTP/1.1\r\nX: " + "x" * 10_000, b"", 431),
    "another path": ("GET /metrics HTTP/1.1\r\nHost: x", b"", 404),
    "another method": (f"GET {names.HEARTBEAT_PATH} HTTP/1.1\r\nHost: x", b"", 405),
    "no HTTP": ("\x16\x03\x01", b"", 400),
    "a second request within the first": (post(len(BEAT)), BEAT + b"GET / HTTP/1.1\r\n\r\n", 0),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_is_refused_before_its_body(served: Served, case: str) -> None:
    head, body, status = REFUSED[case]
    assert served.ask(head, body) == status
    served.beat()


def test_a_line_is_kept_for_the_next_heartbeat(served: Served) -> None:
    with served.connect() as line:
        for _ in range(3):
            line.sendall(post(len(BEAT)).encode() + b"\r\n\r\n" + BEAT)
            assert line.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_a_head_and_a_body_may_come_in_pieces(served: Served) -> None:
    said = post(len(BEAT)).encode() + b"\r\n\r\n" + BEAT
    with served.connect() as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(said), 37):
            line.sendall(said[start : start + 37])
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_a_crowd_of_strangers_costs_little_and_keeps_nobody_out(served: Served) -> None:
    """More connections than may be open: idle ones, half a head, a whole head, and nearly all of a large body."""
    served.beat()
    calm, limits = served.kilobytes, Limits()
    pieces = [
        b"",
        b"POST /v1/heart",
        post(1 << 20, "").encode(),
        post(1 << 20, "").encode() + b"\r\n\r\n" + b"x" * 50_000,
    ]
    with contextlib.ExitStack() as crowd:
        for number in range(3 * limits.strangers_of_address):
            line = crowd.enter_context(served.connect())
            with contextlib.suppress(OSError):  # it may have been closed for those who came later
                line.sendall(pieces[number % len(pieces)])
            if number % 100 == 0:
                served.beat()
        served.beat()
        assert served.connections < limits.strangers_of_address + 20
        assert served.kilobytes < CALM_TIMES * calm
