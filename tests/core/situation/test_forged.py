"""Heartbeats that are forged, replayed or absurd, clocks that jump: refused with a reason, or bounded."""

import dataclasses
import json
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trainmaster.core.failures import failures, fingerprint, signatures
from trainmaster.core.situation import credible
from trainmaster.core.situation.credible import doubt
from trainmaster.intake import HeartbeatRefusedError, Intake, Speaker
from trainmaster.wire import codec, names
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import (
    CheckpointRecord,
    ErrorReport,
    Evaluation,
    ExitReport,
    Figures,
    Heartbeat,
    RankProgress,
    Rendezvous,
)

from tests.builders import a_death, a_heartbeat, a_replica, a_slot, an_error
from tests.core.stage import Stage, a_running_group
from tests.core.test_hostile import ERRORS, RANKS, TEXTS

HUGE = 10**30
MEGABYTES = "x" * (2 << 20)


def beat(**members: Any) -> Heartbeat:
    """A good one, with these members."""
    return dataclasses.replace(a_heartbeat(), **members)


def test_what_agents_say_is_believed() -> None:
    rank = RankProgress(3, 40, "train", -0.5, 100.0, 0.1, 20, 0.09, 1.5)
    good = beat(ranks=(rank,), exit=an_error("bad"), checkpoint=CheckpointRecord(20, 1.0, "abc"))
    assert doubt(good) == ""
    assert doubt(dataclasses.replace(good, exit=a_death(exit_code=-9, stacks="x" * 60_000))) == ""


@pytest.mark.parametrize(
    ("attempt", "start", "is_believed"),
    [(2, 1, True), (None, None, True), (1, 1, False), (3, 1, False), (2, 0, False), (2, 2, False)],
)
def test_progress_counts_for_the_attempt_and_start_that_it_belongs_to(
    attempt: int | None, start: int | None, is_believed: bool
) -> None:
    """An agent that has begun an attempt may still have the pages of the last one. An older trainer does not say."""
    rank = RankProgress(0, 500, resumed_step=0, attempt=attempt, start=start)
    said = beat(state=AgentState.RUNNING, attempt=2, start=1, ranks=(rank,))
    assert credible.believed(said).ranks == ((rank,) if is_believed else ())


_MANY = Figures(evaluation=Evaluation(1, {str(number): 0.5 for number in range(1000)}))
_NEVER = Figures(evaluation=Evaluation(-1, {}))
FORGED: list[tuple[Heartbeat, str]] = [
    (beat(sequence=-1), "Heartbeat.sequence"),
    (beat(sequence=HUGE), "Heartbeat.sequence"),
    (beat(attempt=-1), "Heartbeat.attempt"),
    (beat(incarnation=-7), "Heartbeat.incarnation"),
    (beat(ranks=(RankProgress(0, -1),)), "Heartbeat.ranks[0].step"),
    (beat(ranks=(RankProgress(0, 1), RankProgress(1, HUGE))), "Heartbeat.ranks[1].step"),
    (beat(ranks=(RankProgress(-1, 1),)), "Heartbeat.ranks[0].rank"),
    (beat(ranks=(RankProgress(0, 1, resumed_step=-5),)), "Heartbeat.ranks[0].resumed_step"),
    (beat(ranks=(RankProgress(0, 1, attempt=-1),)), "Heartbeat.ranks[0].attempt"),
    (beat(ranks=(RankProgress(0, 1, attempt=1, start=HUGE),)), "Heartbeat.ranks[0].start"),
    (beat(ranks=tuple(RankProgress(i, 1) for i in range(5000))), "Heartbeat.ranks"),
    (beat(ranks=(RankProgress(0, 1, phase=MEGABYTES),)), "Heartbeat.ranks[0].phase"),
    (beat(ranks=(RankProgress(0, 1, figures=Figures({MEGABYTES: 1.0})),)), "Heartbeat.ranks[0].figures.metrics.name"),
    (beat(ranks=(RankProgress(0, 1, figures=_MANY),)), "Heartbeat.ranks[0].figures.evaluation.figures: 1000 are more"),
    (beat(ranks=(RankProgress(0, 1, figures=_NEVER),)), "Heartbeat.ranks[0].figures.evaluation.step"),
    (beat(offer=Rendezvous(-1, "k")), "Heartbeat.offer"),
    (beat(offer=Rendezvous(70_000, "k")), "Heartbeat.offer"),
    (beat(offer=Rendezvous(1, MEGABYTES)), "Heartbeat.offer.key"),
    (beat(rendezvous=Rendezvous(1, "k", (1, HUGE))), "Heartbeat.rendezvous"),
    (beat(exit=ExitReport(-1, 0, 0)), "Heartbeat.exit.attempt"),
    (beat(exit=ExitReport(1, 0, HUGE)), "Heartbeat.exit.step"),
    (beat(exit=ExitReport(1, 0, 0, exit_code=HUGE)), "Heartbeat.exit.exit_code"),
    (beat(exit=ExitReport(1, 0, 0, stacks=MEGABYTES)), "Heartbeat.exit.stacks"),
    (beat(stalled=ExitReport(1, 0, 0, stacks=MEGABYTES)), "Heartbeat.stalled.stacks"),
    (beat(exit=an_error(MEGABYTES)), "Heartbeat.exit.error.message"),
    (beat(exit=an_error("x", kind=MEGABYTES)), "Heartbeat.exit.error.type"),
    (beat(checkpoint=CheckpointRecord(-3, 0.0, "")), "Heartbeat.checkpoint.step"),
    (beat(state=MEGABYTES), "Heartbeat.state"),
    (beat(orders_seen=MEGABYTES), "Heartbeat.orders_seen"),
]


@pytest.mark.parametrize(("forged", "member"), FORGED, ids=[member for _, member in FORGED])
def test_what_cannot_be_is_named(forged: Heartbeat, member: str) -> None:
    assert doubt(forged).startswith(member)


async def believed(token: str) -> Speaker:
    if token != "good":
        raise HeartbeatRefusedError("not this pod's token", HTTPStatus.UNAUTHORIZED)
    return Speaker("a", lambda _: None)


def with_loss(number: bytes) -> bytes:
    """As it comes from a stranger."""
    return codec.encode(beat(ranks=(RankProgress(0, 1, loss=0.5),))).replace(b"0.5", number)


GOOD = {"Authorization": "Bearer good"}


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (codec.encode(beat(hold=False, pod_uid="a")), GOOD, 200, "has not looked"),
        (codec.encode(beat(hold=False, pod_uid="a")), {"Authorization": "Bearer bad"}, 401, "not this pod's token"),
        (codec.encode(beat(hold=False, pod_uid="a")), {}, 401, "no bearer token"),
        (codec.encode(beat(hold=False, pod_uid="a")), {"Authorization": "Bearer gööd"}, 401, "no bearer token"),
        (codec.encode(beat(sequence=-1)), GOOD, 400, "Heartbeat.sequence"),
        (b'{"job": 7}', GOOD, 400, "Heartbeat"),
        (b"[" * 100_000, GOOD, 400, "not JSON"),
        (b'{"job": ' + b"9" * 5000 + b"}", GOOD, 400, ""),
        (with_loss(b"9" * 400), GOOD, 400, "Heartbeat.ranks[0].loss"),
        (b"\xff\xfe", GOOD, 400, ""),
        (b"x" * (names.MAX_HEARTBEAT_BYTES + 1), GOOD, 413, ""),
        (b"[" * 100_000, {}, 401, "no bearer token"),
        (b"[" + b"1," * 60_000 + b"1]", GOOD, 400, "values"),
        (codec.encode(beat(ranks=(RankProgress(0, 1),) * 1025)), GOOD, 400, "Heartbeat.ranks: 1025 are more than 1024"),
        (codec.encode(beat(pod_uid="a")), {**GOOD, "Content-Encoding": "gzip"}, 411, "as it is"),
    ],
    ids=[
        "good",
        "foreign token",
        "no token",
        "no ASCII",
        "forged",
        "no heartbeat",
        "deep",
        "a long number",
        "a large number",
        "no text",
        "too long",
        "a stranger's body is not read",
        "too many values",
        "a list that is too long",
        "compressed",
    ],
)
async def test_the_door_refuses_with_a_reason(body: bytes, headers: dict[str, str], status: int, says: str) -> None:
    intake = Intake(believed, lambda _key: None)
    async with TestClient(TestServer(intake.application())) as client:
        answer = await client.post(names.HEARTBEAT_PATH, data=body, headers=headers)
        assert (answer.status, says in await answer.text()) == (status, True)
        assert (intake.heartbeat("a") is not None) == (status == 200)


async def test_a_replayed_heartbeat_is_answered_but_not_believed() -> None:
    intake = Intake(believed, lambda _key: None)
    newest = beat(hold=False, pod_uid="a", sequence=9, state=AgentState.RUNNING, attempt=2)
    replayed = beat(hold=False, pod_uid="a", sequence=4, state=AgentState.FINISHED, attempt=2)
    async with TestClient(TestServer(intake.application())) as client:
        for one in (newest, replayed, replayed):
            answer = await client.post(names.HEARTBEAT_PATH, data=codec.encode(one), headers=GOOD)
            assert answer.status == 200
    assert intake.heartbeat("a") == newest


async def test_the_door_lets_no_progress_of_another_attempt_in() -> None:
    intake = Intake(believed, lambda _key: None)
    ranks = (RankProgress(0, 500, attempt=1, start=0), RankProgress(1, 7, attempt=2, start=0))
    said = beat(hold=False, pod_uid="a", state=AgentState.RUNNING, attempt=2, ranks=ranks)
    async with TestClient(TestServer(intake.application())) as client:
        await client.post(names.HEARTBEAT_PATH, data=codec.encode(said), headers=GOOD)
    heard = intake.heartbeat("a")
    assert heard is not None
    assert [rank.step for rank in heard.ranks] == [7]


# What is of the right kind and still not true.


def test_a_finished_that_is_replayed_from_an_older_attempt_ends_nothing() -> None:
    stage = a_running_group(workers=1).rank_dies("worker-0", a_death()).obey()
    stage.say("worker-0", lambda old: dataclasses.replace(old, state=AgentState.FINISHED, attempt=1))
    assert stage.status.phase == "Running"


def test_steps_and_checkpoints_beyond_the_last_are_not_believed() -> None:
    stage = a_running_group(workers=1)
    record = CheckpointRecord(10**12, 0.0, "forged")
    stage.say("worker-0", lambda old: dataclasses.replace(old, checkpoint=record, ranks=(RankProgress(0, 10**12),)))
    stage.wait(20).rank_dies("worker-0", a_death(step=10**12))
    assert stage.status.checkpoint is None
    assert stage.status.progress
    assert stage.status.progress.summary == "1000/1000"
    assert (stage.status.restarts[-1].step, stage.status.restarts[-1].steps_lost) == (1000, 1000)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(ERRORS, TEXTS, st.booleans(), st.none() | st.integers())
def test_any_error_has_a_class_an_evidence_and_a_fingerprint(
    error: ErrorReport, stacks: str, hung: bool, code: int | None
) -> None:
    report = ExitReport(1, 0, 5, exit_code=code, error=error, hung=hung, stacks=stacks)
    failure = failures.of_rank(a_slot(a_replica()), report)
    assert json.dumps(dataclasses.asdict(failure), ensure_ascii=False).encode()
    assert len(failure.evidence) <= 1000
    assert len(failure.fingerprint) <= 400


@pytest.mark.parametrize(
    "piece", ["a", "1", "0x", "/run/", ":", "ab12", "DataLoader worker ", "Cuda failure ", "é", "tmp"]
)
def test_no_text_keeps_the_tables_busy(piece: str) -> None:
    """Their patterns are linear, or see a bounded part only: this would not come to an end otherwise."""
    error = ErrorReport(piece * 100_000, piece * 300_000, piece * 100_000)
    assert signatures.class_of(error)
    assert len(fingerprint.of_error("PythonError", error)) <= 300


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=8), st.lists(RANKS, max_size=1))
def test_a_clock_that_jumps_disturbs_no_training(jumps: list[int], ranks: list[RankProgress]) -> None:
    stage = a_running_group(workers=2, step=5)
    if ranks:
        stage.say("worker-1", lambda old: dataclasses.replace(old, ranks=tuple(ranks)))
    for seconds in jumps:
        stage.now += timedelta(seconds=seconds)
        stage.settle()
        assert (stage.status.phase, stage.status.attempt, stage.status.restarts) == ("Running", 1, ())
        assert stage.wake_at is None or stage.wake_at > stage.now
        assert stage.status.goodput is None or stage.status.goodput.total >= 0


@pytest.mark.parametrize("jump", [-(10**8), 10**8])
def test_a_failure_while_the_clock_jumps_is_a_failure_like_any_other(jump: int) -> None:
    stage = a_running_group(workers=2)
    stage.now += timedelta(seconds=jump)
    stage.rank_dies("worker-0", ExitReport(1, 0, 5, exit_code=1, error=ErrorReport("gaierror", "[Errno -3]")))
    stage.now -= timedelta(seconds=jump)
    stage.wait(60).obey()
    assert stage.status.phase == "Running"
    assert (stage.status.restarts[-1].seconds_lost or 0) >= 0


def edited(stage: Stage, **members: Any) -> Stage:
    """Somebody edits the status by hand (camelCase)."""
    plain = {**stage.status.to_dict(), **members}
    document = {"metadata": stage.job.metadata.to_dict(), "spec": stage.job.spec.to_dict(), "status": plain}
    stage.job = type(stage.job).parse(document)
    return stage.settle()


NEVER = "9999-12-31T23:59:59Z"


@pytest.mark.parametrize(
    "members",
    [
        {"restarts": "rubbish"},
        {"restarts": [{"attempt": 1, "time": NEVER, "class": "Infrastructure", "step": 2**53, "decision": "Restart"}]},
        {"restarts": [{"attempt": 1, "time": NEVER, "class": "PeerLost", "step": 1, "decision": "Wait"}]},
        {"goodput": {"time": NEVER, "training": 1e12, "tryFrom": 2**53}},
        {"goodput": [1, 2]},
        {"avoidedNodes": [{"node": f"node-{index}", "until": NEVER} for index in range(3)]},
        {
            "conditions": [
                {"type": "Straggling", "status": "True", "reason": "RankXIsSlow", "lastTransitionTime": NEVER}
            ]
        },
        {"progress": {"step": 2**53, "time": NEVER}, "checkpoint": {"step": 2**53}},
        {"incarnations": {"worker-9": 7, "../..": 3}},
        {"annotations": {"kopf.zalando.org/last-handled-configuration": "{"}},
    ],
)
def test_a_status_that_was_edited_by_hand_trains_on(members: dict[str, Any]) -> None:
    stage = edited(a_running_group(workers=2), **members)
    stage.wait(10).rank_dies("worker-1", a_death(stage.status.attempt)).wait(700).call_in().obey(step=20)
    assert stage.status.phase == "Running"
    assert stage.wait(10).finish().status.phase == "Succeeded"
