"""The table of failures: what is reported, and the class, exit and fingerprint that it is given."""

import dataclasses

import pytest
from trainmaster.core import failures
from trainmaster.core.facts import Slot
from trainmaster.core.observed import Replica
from trainmaster.wire.messages import ErrorReport, ExitReport

from tests.builders import a_replica, deleting, ended, evicted

SLOT = Slot("worker", 3, 0, 1, a_replica(3))


def report(**members: object) -> ExitReport:
    """An exit report with these members."""
    plain = ExitReport(attempt=1, rank=3, step=42)
    return dataclasses.replace(plain, **members)  # type: ignore[arg-type]


def error(kind: str, message: str, frame: str = "train.py:9 in step") -> ErrorReport:
    """The first Python error of a rank."""
    return ErrorReport(kind, message, frame)


RANKS = [
    (report(exit_code=78), "Configuration", "exit code 78"),
    (report(exit_code=78, error=error("ImportError", "no module")), "Configuration", "exit code 78"),
    (report(signal="SIGKILL", out_of_memory=True), "OutOfMemory", "SIGKILL (out of memory)"),
    (
        report(exit_code=1, out_of_memory=True, error=error("OutOfMemoryError", "CUDA")),
        "DeviceOutOfMemory",
        "exit code 1",
    ),
    (report(signal="SIGSEGV"), "Crash", "SIGSEGV"),
    (report(exit_code=3), "ProcessExit", "exit code 3"),
    (report(exit_code=1, error=error("ValueError", "bad")), "PythonError", "exit code 1"),
    (report(exit_code=1, error=error("RuntimeError", "Connection closed by peer")), "PeerLost", "exit code 1"),
    (report(exit_code=1, error=error("DistNetworkError", "...")), "PeerLost", "exit code 1"),
    (
        report(exit_code=1, error=error("RuntimeError", "[gloo/gloo/transport/tcp/pair.cc:1] timed out")),
        "PeerLost",
        "exit code 1",
    ),
    (report(exit_code=1, error=error("DistBackendError", "NCCL error")), "PeerLost", "exit code 1"),
]


@pytest.mark.parametrize(("told", "failure_class", "exit_text"), RANKS)
def test_the_death_of_a_rank(told: ExitReport, failure_class: str, exit_text: str) -> None:
    failure = failures.of_rank(SLOT, told)
    assert (failure.failure_class, failure.exit) == (failure_class, exit_text)
    assert (failure.replica, failure.node, failure.step) == ("worker-3 rank 3", "node-3", 42)


REPLICAS = [
    (evicted(a_replica()), "Disruption", "no exit code"),
    (dataclasses.replace(ended(a_replica(), 137), disruption="NodeShutdown"), "Disruption", "exit code 137"),
    (ended(a_replica(), 137, "OOMKilled"), "OutOfMemory", "exit code 137"),
    (deleting(a_replica()), "ReplicaDeleted", "deleted"),
    (ended(a_replica(), 78), "Configuration", "exit code 78"),
    (ended(a_replica(), 2), "ReplicaEnded", "exit code 2"),
    (ended(a_replica(), None, "NodeLost"), "Disruption", "no exit code"),
    (ended(a_replica(), 0), "ReplicaEnded", "exit code 0"),
]


@pytest.mark.parametrize(("replica", "failure_class", "exit_text"), REPLICAS)
def test_the_loss_of_a_replica(replica: Replica, failure_class: str, exit_text: str) -> None:
    failure = failures.of_replica(replica, step=7)
    assert (failure.failure_class, failure.exit, failure.step) == (failure_class, exit_text, 7)
    assert failure.evidence


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (error("ValueError", "batch 7 at 0xfe"), error("ValueError", "batch 12 at 0xab"), True),
        (error("ValueError", "bad\nmore"), error("ValueError", "bad\nother"), True),
        (error("ValueError", "bad"), error("KeyError", "bad"), False),
        (error("ValueError", "bad", "a.py:1 in f"), error("ValueError", "bad", "a.py:1 in g"), False),
        (error("ValueError", "bad", "a.py:1 in f"), error("ValueError", "bad", "a.py:2 in f"), True),
    ],
)
def test_what_counts_as_the_same_again(one: ErrorReport, other: ErrorReport, same: bool) -> None:
    first, second = (failures.of_rank(SLOT, report(exit_code=1, error=told)) for told in (one, other))
    assert (first.fingerprint == second.fingerprint) is same


def test_evidence_is_one_line_of_bounded_length() -> None:
    failure = failures.of_rank(SLOT, report(exit_code=1, error=error("ValueError", "x" * 5000 + "\nmore")))
    assert len(failure.evidence) <= 1000
    assert "\n" not in failure.evidence


@pytest.mark.parametrize("step", [-1, 10**30])
def test_a_step_that_cannot_be_is_bounded(step: int) -> None:
    assert 0 <= failures.of_rank(SLOT, report(step=step)).step <= 2**53
