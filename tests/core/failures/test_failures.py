"""The table of failures: what is reported, and the class, exit and fingerprint that it is given."""

import dataclasses

import pytest
from trainmaster.core.failures import failures
from trainmaster.core.states.observed import Ending, Replica, ReplicaPhase
from trainmaster.wire.messages import ErrorReport, ExitReport

from tests.builders import a_replica, a_slot, deleting, ended, evicted

SLOT = a_slot(a_replica(3))


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
    (ended(a_replica(), 2), "AgentFailed", "exit code 2"),
    (ended(a_replica(), 137), "ReplicaEnded", "exit code 137"),
    (ended(a_replica(), None, "NodeLost"), "Disruption", "no exit code"),
    (ended(a_replica(), 0), "ReplicaEnded", "exit code 0"),
]


@pytest.mark.parametrize(("replica", "failure_class", "exit_text"), REPLICAS)
def test_the_loss_of_a_replica(replica: Replica, failure_class: str, exit_text: str) -> None:
    failure = failures.of_replica(replica, step=7)
    assert (failure.failure_class, failure.exit, failure.step) == (failure_class, exit_text, 7)
    assert failure.evidence


# The end of a log as the kubelet keeps it: 2 KiB, which begin in the middle of a line. And how it must be told.
LOG = (
    "ython3.11/importlib/__init__.py, line 126\n"
    + "  File x\n" * 250
    + "\nModuleNotFoundError: No module named 'zlib'\n"
)
PYTHON_38 = (
    "ERROR: ld.so: object 'x.so' cannot be preloaded\nThe image has Python 3.8.18, and the agent needs 3.9 or newer."
)
NO_PYTHON = 'runc create failed: exec: "python3": executable file not found in $PATH: unknown'
BROKEN_HOME = """ModuleNotFoundError: No module named 'encodings'
trainmaster agent: the process that ranks are forked from has died 6 times. Are these variables right: PYTHONHOME?
trainmaster agent: worker/0: Leaving, attempt 3: Attempt 3: all 1 replicas are here."""
GONE = "trainmaster agent: worker/0: Leaving, attempt 1: the operator refused the heartbeat: 410"
LAST_WORDS = [
    (ended(a_replica(), 70, "Error", BROKEN_HOME), "6 times. Are these variables right: PYTHONHOME? (before that: Mod"),
    (ended(a_replica(), 1, "Error", GONE), "refused the heartbeat: 410"),
    (
        ended(a_replica(), 1, "Error", LOG),
        "ended with exit code 1: ModuleNotFoundError: No module named 'zlib' (before",
    ),
    (ended(a_replica(), 1, "Error", "x" * 2000 + "the error"), "xthe error"),
    (ended(a_replica(), 1, "Error", " \n"), "ended with exit code 1: it said nothing"),
    (
        dataclasses.replace(
            a_replica(), phase=ReplicaPhase.FAILED, ending=Ending(1, "Error", "a\nno such bucket", "fetch")
        ),
        "the init container fetch of digits-worker-0-0 ended with exit code 1: no such bucket (before that: a)",
    ),
    (
        ended(a_replica(), 78, "Error", PYTHON_38),
        "The image has Python 3.8.18, and the agent needs 3.9 or newer. (before",
    ),
    (
        ended(a_replica(), 128, "StartError", NO_PYTHON),
        "The image has no python3 in its PATH (that of a source in spec.workers.envFrom goes before",
    ),
    (ended(a_replica(), 128, "StartError", "exec python3: exec format error"), "another kind of processor"),
]


@pytest.mark.parametrize(("replica", "words"), LAST_WORDS)
def test_the_last_line_of_a_log_is_the_evidence(replica: Replica, words: str) -> None:
    """The error itself stands there; whatever is cut off is what came before it."""
    evidence = failures.of_replica(replica, step=0).evidence
    assert words in evidence
    assert len(evidence) <= 1200
    assert "\n" not in evidence


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


@pytest.mark.parametrize(
    ("frame", "failure_class"),
    [("multiprocessing/synchronize.py", "OutOfMemory"), ("multiprocessing/pool.py", "OutOfStorage")],
)
def test_a_full_dev_shm_is_known_by_what_python_keeps_there(frame: str, failure_class: str) -> None:
    trace = f'Traceback (most recent call last):\n  File "/usr/lib/python3.11/{frame}", line 57, in __init__\n'
    told = ErrorReport("OSError", "[Errno 28] No space left on device", f"{frame}:57 in __init__", trace)
    assert failures.of_rank(SLOT, report(exit_code=1, error=told)).failure_class == failure_class


def test_evidence_is_one_line_of_bounded_length() -> None:
    failure = failures.of_rank(SLOT, report(exit_code=1, error=error("ValueError", "x" * 5000 + "\nmore")))
    assert len(failure.evidence) <= 1000
    assert "\n" not in failure.evidence


def test_a_mistake_is_told_to_its_end_where_the_cure_is() -> None:
    """As of a model that another error, of several lines, says does not fit."""
    told = error("ConfigurationError", "m does not take it:\n\tsize mismatch for weight.\nMake it as it was.")
    assert failures.of_rank(SLOT, report(exit_code=78, error=told)).evidence == (
        "m does not take it: size mismatch for weight. Make it as it was"
    )


@pytest.mark.parametrize(
    ("said", "evidence"),
    [
        ("", "rank 0 ended with exit code 3"),
        ("clear message\n", "rank 0 ended with exit code 3: clear message"),
        ("one\ntwo\n", "rank 0 ended with exit code 3: two (before that: one)"),
        (
            "trainmaster: this rank gets a Python of its own, which takes longer to start: why",
            "rank 0 ended with exit code 3",
        ),
        (
            "W0000 00:00:179.4 10 dataset.cc:997] odd\nI0000 00:00:179.5 10 server.cc:467] Started server",
            "rank 0 ended with exit code 3: W0000 00:00:179.4 10 dataset.cc:997] odd",
        ),
    ],
)
def test_the_standard_error_of_a_program_is_its_evidence(said: str, evidence: str) -> None:
    failure = failures.of_rank(SLOT, report(exit_code=3, said=said, rank=0))
    assert (failure.failure_class, failure.evidence) == ("ProcessExit", evidence)


CALM = """t.py:210, rank 0 INFO A snapshot of step 40 is in memory.
2026-11-25 14:00:00,123 rank 0 INFO A snapshot of step 41 is in memory.
[worker-0 rank 1] 2026-11-25 14:00:00,123 rank 1 INFO A snapshot of step 41 is in memory.
trainmaster agent: worker-0: Running, attempt 1: all 2 replicas are here
"""


@pytest.mark.parametrize(
    ("log", "tells"),
    [
        (CALM, "ended: its agent was ended by SIGKILL (exit code 137)"),
        (CALM + "terminate called after throwing\n" + CALM, "; its log ends with: terminate called after throwing"),
    ],
)
def test_what_a_log_has_of_a_run_that_goes_well_is_no_evidence(log: str, tells: str) -> None:
    evidence = failures.of_replica(ended(a_replica(), 137, "Error", log), step=0).evidence
    assert evidence.endswith(tells)
    assert "INFO" not in evidence


@pytest.mark.parametrize("step", [-1, 10**30])
def test_a_step_that_cannot_be_is_bounded(step: int) -> None:
    assert 0 <= failures.of_rank(SLOT, report(step=step)).step <= 2**53
