"""What passes by itself is waited for, as long as such things last, and blames nobody who has no part in it."""

import dataclasses
from datetime import timedelta

import pytest
from trainmaster.core.failures import signatures
from trainmaster.wire.messages import ErrorReport, ExitReport

from tests.builders import an_error
from tests.core.stage import Stage, a_running_group

ESTALE = an_error("[Errno 116] Stale file handle", kind="OSError")
AWAY = an_error("s3://b/job: EndpointConnectionError: Could not connect", kind="StorageError")
FULL = an_error("[Errno 28] No space left on device", kind="OSError")
HOUR = timedelta(hours=1)
MINUTES = [60, 120, 300, 600]


def pauses(stage: Stage, report: ExitReport, times: int) -> list[int]:
    """How long each restart is waited for, while the same comes again and again at one step; to the job's end."""
    waited: list[int] = []
    for attempt in range(1, times + 1):
        stage.rank_dies(f"worker-{attempt % 2}", dataclasses.replace(report, attempt=attempt))
        if stage.status.finished:
            return waited
        since = stage.now
        while stage.status.phase == "Restarting":
            assert stage.now - since < HOUR
            stage.wait(5)
        waited.append(round((stage.now - since).total_seconds()))
        stage.obey(step=10)
    assert stage.status.phase == "Running"
    return waited


@pytest.mark.parametrize(
    ("report", "seconds"),
    [(ESTALE, [0, 5, 15, 30]), (AWAY, [0, 5, 15, 30, *MINUTES, 600]), (FULL, [10, 30, 120, 300])],
)
def test_it_is_given_time_to_pass(report: ExitReport, seconds: list[int]) -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 4})
    assert pauses(stage, report, len(seconds)) == seconds


def test_a_service_may_be_away_for_hours_but_not_for_ever() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 0})
    assert 3 * 3600 < sum(pauses(stage, AWAY, 40)) < 6 * 3600
    assert (stage.status.phase, stage.status.reason) == ("Failed", "ServiceUnavailable")


def test_a_full_volume_is_not_waited_for_for_ever() -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 10})
    assert pauses(stage, FULL, 40) == [10, 30, 120, 300]
    assert (stage.status.phase, stage.status.reason) == ("Failed", "OutOfStorage")
    assert "The same error came 5 times at step 10" in (stage.status.message or "")


@pytest.mark.parametrize(("report", "avoided"), [(AWAY, []), (ESTALE, ["node-0"])])
def test_a_service_that_is_away_blames_no_node(report: ExitReport, avoided: list[str]) -> None:
    stage = a_running_group(workers=2, failurePolicy={"maxRestarts": 0})
    for attempt in (1, 2, 3):
        stage.rank_dies("worker-0", dataclasses.replace(report, attempt=attempt))
        if attempt < 3:
            stage.wait(60).obey(step=10)
    assert [node.node for node in stage.status.avoided_nodes] == avoided
    assert list(stage.status.incarnations.values()) == [1 for _ in avoided]


TORCH = 'File "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py", line 2806, in all_reduce'
RECORD = 'File "/usr/lib/python3/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355'
OURS = 'File "/usr/lib/python3/site-packages/trainmaster_trainer/transport/stream.py", line 99, in receive'
LOOP = 'File "/usr/lib/python3/site-packages/trainmaster_trainer/training_loop.py", line 99, in train'
USERS = 'File "/app/data.py", line 12, in fetch'


@pytest.mark.parametrize("kind", ["ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "TimeoutError"])
@pytest.mark.parametrize(
    ("frames", "failure_class"),
    [
        ([LOOP, TORCH], "PeerLost"),
        ([LOOP, OURS], "PeerLost"),
        ([LOOP, USERS], "ServiceUnavailable"),
        ([RECORD, USERS], "ServiceUnavailable"),
    ],
)
def test_a_broken_connection_is_a_peer_s_where_peers_talk(kind: str, frames: list[str], failure_class: str) -> None:
    trace = "\n".join(["Traceback (most recent call last):", *frames])
    error = ErrorReport(kind, "[Errno 110] timed out", "data.py:12 in fetch", trace)
    assert signatures.class_of(error) == failure_class
