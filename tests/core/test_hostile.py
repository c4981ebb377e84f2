"""Whatever people write into a status and agents say in a heartbeat: a decision is made, and no exception."""

import dataclasses
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from trainmaster.api.job import TrainingJob
from trainmaster.api.model import fields_of
from trainmaster.api.status import TrainingJobStatus
from trainmaster.core.decide import decide
from trainmaster.core.states.observed import Ending, Observed, Obstacle, Replica, ReplicaPhase
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import CheckpointRecord, ErrorReport, ExitReport, RankProgress

from tests.builders import NOON, a_heartbeat, a_job, a_replica, saying

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("9999-12-31T23:59:59Z"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys((str(field.alias) for field in fields_of(TrainingJobStatus).values()), JSON),
        "phase": st.sampled_from(["Pending", "Suspended", "Starting", "Running", "Restarting", "Resizing", "Failed"]),
        "attempt": st.integers(-1, 2**60),
        "incarnations": st.dictionaries(st.sampled_from(["worker-0", "worker-1", "x"]), st.integers()),
        "absent": st.sampled_from([["worker-0", "worker-1"], ["x", "worker-0"], ["worker-1"] * 3]),
        "startTime": st.datetimes().map(lambda time: time.isoformat() + "Z"),
        "avoidedNodes": st.lists(
            st.fixed_dictionaries(
                {"node": st.sampled_from(["node-0", "node-1", ""]), "until": st.just("9999-12-31T23:59:59Z")},
                optional={"lifted": st.booleans()},
            ),
            max_size=2,
        ),
        "goodput": st.dictionaries(st.sampled_from(["time", "training", "saving", "tryFrom", "lostWork"]), JSON),
        "progress": st.fixed_dictionaries({"step": st.integers(), "time": st.just("9999-12-31T23:59:59Z")}),
    },
)
ELASTIC = {"minReplicas": 1, "maxReplicas": 4}
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "suspend": st.booleans(),
        "activeDeadlineSeconds": st.integers(1, 10**9),
        "ttlSecondsAfterFinished": st.integers(0, 10**9),
        "elasticity": st.just(ELASTIC),
    },
)
NUMBERS = st.floats() | st.integers().map(float)
STATES = st.sampled_from(AgentState)
RANKS = st.builds(
    RankProgress, st.integers(), st.integers(), st.text(max_size=5), NUMBERS, NUMBERS, NUMBERS,
    st.none() | st.integers(), st.none() | NUMBERS, st.none() | NUMBERS,
)  # fmt: skip
TEXTS = st.text(st.characters(exclude_categories=()))  # with what no encoding can say
ERRORS = st.builds(ErrorReport, TEXTS, TEXTS, TEXTS, TEXTS, NUMBERS)
EXITS = st.builds(
    ExitReport, st.integers(), st.integers(), st.integers(), st.none() | st.integers(), st.none() | TEXTS,
    st.booleans(), st.none() | ERRORS, st.booleans(), TEXTS, st.booleans(),
)  # fmt: skip
RECORDS = st.builds(CheckpointRecord, st.integers(), NUMBERS, TEXTS)
OBSTACLES = st.builds(Obstacle, st.sampled_from(["ErrImagePull", "Odd"]), st.text(), st.none() | NUMBERS)


@st.composite
def replicas(draw: st.DrawFn, index: int) -> Replica:
    """A replica in any state, with an agent that says anything."""
    replica = dataclasses.replace(
        a_replica(index, draw(st.integers(0, 1))),
        phase=draw(st.sampled_from(ReplicaPhase)),
        created=draw(NUMBERS),
        deleting=draw(st.booleans()),
        disruption=draw(st.sampled_from(["", "Evicted"])),
        ending=draw(st.none() | st.builds(Ending, st.none() | st.integers(), st.text(), st.text())),
        obstacle=draw(st.none() | OBSTACLES),
    )
    beat = dataclasses.replace(
        a_heartbeat(),
        state=draw(STATES),
        attempt=draw(st.integers(-1, 3)),
        ranks=tuple(draw(st.lists(RANKS, max_size=2))),
        exit=draw(st.none() | EXITS),
        stalled=draw(st.none() | EXITS),
        checkpoint=draw(st.none() | RECORDS),
    )
    return saying(replica, beat) if draw(st.booleans()) else replica


def a_hostile_job(spec: dict[str, Any], status: dict[str, Any]) -> TrainingJob:
    """A valid spec and any status."""
    job = a_job().with_workers(2).where(**spec)
    return TrainingJob.parse({"metadata": job.metadata, "spec": job.spec, "status": status})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SPECS, STATUSES, replicas(0), replicas(1), st.lists(OBSTACLES, max_size=1))
def test_a_decision_is_always_made(
    spec: dict[str, Any], status: dict[str, Any], first: Replica, second: Replica, refused: list[Obstacle]
) -> None:
    job = a_hostile_job(spec, status)
    decision = decide(job, Observed((first, second), frozenset({"Service"}), tuple(refused)), NOON)
    assert json.dumps(decision.status.to_dict(), ensure_ascii=False, allow_nan=False).encode()
    assert decision.status.attempt >= job.status.attempt or not job.status.attempt
    assert decision.wake_at is None or decision.wake_at > NOON


@settings(max_examples=30, deadline=None, derandomize=True)
@given(STATUSES)
def test_it_settles_in_a_few_turns(status: dict[str, Any]) -> None:
    job, turns = a_hostile_job({"elasticity": ELASTIC}, status), 0
    while (decision := decide(job, Observed(), NOON)).again:
        job = job.model_copy(update={"status": decision.status})
        turns += 1
        assert turns < 5
