"""Requests that are none, floods and forgeries: each has an end, is logged seldom, and keeps no true agent out."""

import contextlib
import os
import signal
import socket
import threading

import pytest
from trainmaster.intake import MOST_ITEMS, MOST_VALUES
from trainmaster.listening.limits import Limits
from trainmaster.log_rate import BURST
from trainmaster.wire import names

from tests.listening.asking import BEAT, Served, post
from tests.listening.served import GOOD

CALM_TIMES = 1.5
BURST_OF_CONNECTIONS, QUEUED_SECONDS = 600, 10.0
HEAD = post(None)
SIZED = post(len(BEAT))
PATH = names.HEARTBEAT_PATH


def of(body: bytes) -> tuple[str, bytes, set[int]]:
    """A body that is none of a heartbeat."""
    return post(len(body)), body, {400}


# What is sent, before the empty line, and after; and what may be answered: 0 is a closed connection.
ODD: dict[str, tuple[str, bytes, set[int]]] = {
    "two lengths": (f"{SIZED}\r\nContent-Length: 5", BEAT, {400}),
    "a length and chunks": (f"{SIZED}\r\nTransfer-Encoding: chunked", b"0\r\n\r\n", {400, 411}),
    "a length with a sign": (f"{HEAD}\r\nContent-Length: +5", BEAT, {400}),
    "a list of lengths": (f"{HEAD}\r\nContent-Length: 5, 5", BEAT, {400}),
    "a length in hexadecimal digits": (f"{HEAD}\r\nContent-Length: 0x5", BEAT, {400}),
    "a negative length": (f"{HEAD}\r\nContent-Length: -5", BEAT, {400}),
    "a length of other digits": (f"{HEAD}\r\nContent-Length: \u0665", BEAT, {400}),
    "a length beyond numbers": (f"{HEAD}\r\nContent-Length: {'9' * 5000}", BEAT, {400, 413}),
    "an odd encoding": (f"{HEAD}\r\nTransfer-Encoding: xchunked", b"0\r\n\r\n", {400, 411, 501}),
    "two encodings": (f"{HEAD}\r\nTransfer-Encoding: chunked, identity", b"0\r\n\r\n", {400, 411}),
    "compressed": (f"{SIZED}\r\nContent-Encoding: gzip", BEAT, {411}),
    "NUL in the path": (SIZED.replace(PATH, f"{PATH}\0"), BEAT, {400, 404}),
    "NUL in a header": (f"{SIZED}\r\nX: \0", BEAT, {400}),
    "a bare CR in a header": (f"{SIZED}\r\nX: a\rb", BEAT, {400}),
    "a folded header": (f"{SIZED}\r\nX: a\r\n b", BEAT, {200, 400}),
    "a space before the colon": (f"{SIZED}\r\nX : a", BEAT, {400}),
    "no name of a header": (f"{SIZED}\r\n: a", BEAT, {400}),
    "lines that end with LF": (SIZED.replace("\r\n", "\n"), BEAT, {200, 400}),
    "a second request within the head": (f"GET / HTTP/1.1\nHost: x\n\n{SIZED}", BEAT, {0, 400, 404}),
    "many headers": (SIZED + "\r\nA: b" * 1000, BEAT, {200, 400, 431}),
    "a long method": ("X" * 4000 + f" {PATH} HTTP/1.1\r\nHost: x", b"", {400, 404, 405}),
    "no version": (f"POST {PATH}", b"", {0, 400, 401}),
    "version 2": ("PRI * HTTP/2.0", b"SM\r\n\r\n", {0, 400}),
    "an old version": (SIZED.replace("HTTP/1.1", "HTTP/1.0"), BEAT, {200}),
    "a path of dots": (SIZED.replace(PATH, f"/v1/../..{PATH}"), BEAT, {404}),
    "an absolute address": (SIZED.replace(PATH, f"http://elsewhere{PATH}"), BEAT, {200, 404}),
    "an upgrade": (f"{SIZED}\r\nConnection: Upgrade\r\nUpgrade: websocket", BEAT, {200, 400}),
    "another expectation": (f"{SIZED}\r\nExpect: the worst", BEAT, {417}),
    "two tokens, the first good": (f"{SIZED}\r\nAuthorization: Bearer bad", BEAT, {200, 400, 401}),
    "two tokens, the second good": (f"{post(len(BEAT), 'bad')}\r\nAuthorization: Bearer {GOOD}", BEAT, {400, 401}),
    "a token with a space": (post(len(BEAT), f"{GOOD} x"), BEAT, {401}),
    "no heartbeat": (post(2), b"[]", {400}),
    "half of a heartbeat": (post(9), BEAT[:9], {400}),
    "no text": (post(4), b"\xff\xfe\0\0", {400}),
    "deep": (post(100_000), b"[" * 100_000, {400}),
    "many values": of(b"[" + b"1," * (MOST_VALUES + 1) + b"1]"),
    "many ranks": of(BEAT[:-1] + b',"ranks":[' + b"{}," * MOST_ITEMS + b"{}]}"),
    "infinite": of(BEAT[:-1] + b',"attempt":1e9999}'),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_request_is_answered_or_closed_and_harms_nobody(served: Served, case: str) -> None:
    head, body, allowed = ODD[case]
    assert served.ask(head, body) in allowed
    served.beat()


def test_who_waits_to_be_asked_for_its_body_is_asked_and_answered(served: Served) -> None:
    with served.connect() as line:
        line.sendall(f"{SIZED}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 100")
        line.sendall(BEAT)
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_bad_requests_without_end_are_few_lines_and_no_forged_one(served: Served) -> None:
    """What a stranger sends comes into the log as one line, without escapes."""
    before = served.log.read_bytes().count(b"\n")
    forged = "\x1b]52;c;cm0=\x07\r\n2026-01-01 00:00:00,000 INFO trainmaster.lease: this operator leads"
    for number in range(200):
        served.ask(f"{number} no HTTP\x1b[2J {forged}")
        served.ask(post(5, f"bad-{number}").replace("Host: x", f"Host: {number}\x1b[2J"), b"[1,2]")
    lines = served.log.read_bytes().splitlines()[before:]
    assert len(lines) <= 2 * (2 * BURST + 20)
    assert not [line for line in lines if b"\x1b" in line or b"\x07" in line or line.startswith(b"2026-01-01")]


def test_floods_of_many_kinds_keep_no_true_agent_out(served: Served) -> None:
    """All at once, for as long as fifty heartbeats take: bad requests, slow heads and bodies, and answers not read."""
    served.beat()
    calm, stop = served.kilobytes, threading.Event()

    def flood(words: bytes) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), served.connect() as line:
                line.sendall(words)
                line.recv(100)

    def linger(words: bytes) -> None:
        with contextlib.ExitStack() as crowd:
            for _ in range(Limits().strangers_of_address):
                with contextlib.suppress(OSError):
                    crowd.enter_context(served.connect()).sendall(words)
                if stop.is_set():
                    return
            stop.wait()

    whole = f"{SIZED}\r\n\r\n".encode() + BEAT
    floods = [b"\x16\x03\x01\r\n\r\n", whole.replace(GOOD.encode(), b"bad"), b"GET / HTTP/1.1\r\nX: " + b"x" * 9000]
    slow = [b"POST /v1/heart", post(1 << 18, "").encode() + b"\r\n\r\n" + b"[" * 50_000]
    threads = [threading.Thread(target=flood, args=(words,)) for words in floods]
    threads += [threading.Thread(target=linger, args=(words,)) for words in slow]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            served.beat()
        assert served.kilobytes < CALM_TIMES * calm
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_answers_that_nobody_reads_cost_little(served: Served) -> None:
    served.beat()
    calm = served.kilobytes
    with contextlib.ExitStack() as crowd:
        for _ in range(200):
            line = crowd.enter_context(served.connect())
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            with contextlib.suppress(OSError):
                for _ in range(20):
                    line.sendall(f"{post(5, '')}\r\n\r\n".encode())
        served.beat()
        assert served.kilobytes < CALM_TIMES * calm


def test_a_burst_of_connections_waits_in_the_kernel_and_is_served(served: Served) -> None:
    """A client whose connection finds the kernel's queue full tries again a second later, so its heartbeat is late."""
    with contextlib.ExitStack() as lines:
        os.kill(served.pid, signal.SIGSTOP)
        try:
            for _ in range(BURST_OF_CONNECTIONS):
                lines.enter_context(socket.create_connection((served.host, served.port), QUEUED_SECONDS))
        finally:
            os.kill(served.pid, signal.SIGCONT)
        served.beat()
