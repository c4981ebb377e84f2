"""Requests with one tensor each way: our own sockets against pyzmq with CURVE, and memory against our own sockets.

The peer is not one of our dependencies: `pip install pyzmq` into the environment first (docs/decisions/0030).
Two processes on one machine. Both sides prove themselves in all: ours by HMAC, CURVE by key pairs derived from the same
secret. Interleaved rounds; the ratio is that of the medians over the rounds.
"""

import hashlib
import multiprocessing
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from trainmaster.wire import codec, names
from trainmaster.wire.messages import Member, Rendezvous, Roster
from trainmaster_trainer.transport.directory import Directory
from trainmaster_trainer.transport.frame import Message, memory
from trainmaster_trainer.transport.handshake import identify
from trainmaster_trainer.transport.links import Links, Question
from trainmaster_trainer.transport.service import Service

from bench import results

SIZES = {"4 KiB": 1 << 12, "1 MiB": 1 << 20, "16 MiB": 1 << 24}
REQUESTS = {"4 KiB": 400, "1 MiB": 60, "16 MiB": 8}
ROUNDS = 5
KEY = "secret"
Ask = Callable[[Tensor, Tensor], None]
_fork = multiprocessing.get_context("fork")


def main() -> str:
    """Measure; gives the last line."""
    if find_spec("zmq") is None:
        return "transport: not measured, for the peer is not installed (pip install pyzmq)"
    micros: dict[str, dict[str, list[float]]] = {
        size: {name: [] for name in ("own", "memory", "zmq")} for size in SIZES
    }
    with TemporaryDirectory() as folder:
        contestants = {"own": _own(Path(folder), "sockets"), "memory": _own(Path(folder), "memory"), "zmq": _zmq()}
        for number in range(ROUNDS):
            for size in SIZES:
                for name in sorted(contestants, reverse=bool(number % 2)):
                    micros[size][name].append(_one(contestants[name][0], size))
        for _, process in contestants.values():
            process.kill()
            process.join()
    medians = {size: {name: results.median(values) for name, values in both.items()} for size, both in micros.items()}
    ratios = {size: each["zmq"] / each["own"] for size, each in medians.items()}
    through_memory = {size: each["own"] / each["memory"] for size, each in medians.items()}
    results.save(
        "transport",
        {"microseconds": micros, "medians": medians, "ratios": ratios, "memory_against_sockets": through_memory},
    )
    told = (f"{ratios[size]:.1f}x pyzmq, memory {through_memory[size]:.1f}x sockets at {size}" for size in SIZES)
    return "transport: " + "; ".join(told)


def _one(ask: Ask, size: str) -> float:
    """Microseconds of one request, tensor there and back: the median."""
    sent, place = torch.ones(SIZES[size] // 4), torch.zeros(SIZES[size] // 4)
    ask(sent, place)
    assert bool(torch.equal(sent, place))
    times = []
    for _ in range(REQUESTS[size]):
        begun = time.perf_counter()
        ask(sent, place)
        times.append((time.perf_counter() - begun) * 1e6)
    return results.median(times)


def _own(folder: Path, way: str) -> tuple[Ask, Any]:
    import socket  # noqa: PLC0415 (beside its peer's import)

    listener = socket.create_server(("127.0.0.1", 0))
    member = Member(names.WORKER, 0, 0, "127.0.0.1", 0, 1, (listener.getsockname()[1],))
    roster = folder / f"{way}.json"
    roster.write_bytes(codec.encode(Roster(1, (member,), "", Rendezvous(1, KEY), independent=True)))

    def serve() -> None:
        Service(listener, identify(0, 1, KEY), lambda _caller, request: Message("echo", {}, request.tensors))
        time.sleep(3600)

    process = _fork.Process(target=serve, daemon=True)
    process.start()
    link = Links(identify(1, 1, KEY), Directory(roster), shares_memory=way == "memory").to(0)
    return lambda sent, place: _ignore(link.ask(Question(Message("echo", {}, [sent]), [place]), 30)), process


def _zmq() -> tuple[Ask, Any]:
    address = f"tcp://127.0.0.1:{_free_port()}"
    process = _fork.Process(target=_serve_zmq, args=(address,), daemon=True)
    process.start()
    import zmq  # noqa: PLC0415 (not one of our dependencies)

    asking = zmq.Context().socket(zmq.REQ)
    asking.curve_publickey, asking.curve_secretkey = _curve("client")
    asking.curve_serverkey = _curve("server")[0]
    asking.connect(address)

    def ask(sent: Tensor, place: Tensor) -> None:
        asking.send_multipart([b'{"name":"echo","dtype":"float32"}', memory(sent)], copy=False)
        parts = asking.recv_multipart(copy=False)
        place.copy_(torch.frombuffer(parts[1].buffer, dtype=torch.float32))

    return ask, process


def _serve_zmq(address: str) -> None:
    import zmq  # noqa: PLC0415

    answering = zmq.Context().socket(zmq.REP)
    answering.curve_publickey, answering.curve_secretkey = _curve("server")
    answering.curve_server = True
    answering.bind(address)
    while True:
        head, body = answering.recv_multipart(copy=False)
        answering.send_multipart([head, body], copy=False)


def _curve(side: str) -> tuple[bytes, bytes]:
    """A key pair derived from the attempt's key, alike on every rank."""
    import zmq  # noqa: PLC0415
    from zmq.utils import z85  # noqa: PLC0415

    secret = z85.encode(hashlib.sha256(f"{KEY} {side}".encode()).digest())
    return zmq.curve_public(secret), secret


def _free_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _ignore(_answer: Message) -> None:
    return
