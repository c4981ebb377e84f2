"""JSON to frozen dataclasses and back, and the refusal of all that does not fit."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainmaster.wire import codec
from trainmaster.wire.agent_states import Verb
from trainmaster.wire.messages import ExitReport, Heartbeat, Member, Orders, RankProgress, Rendezvous, Roster
from trainmaster.wire.training import TrainingPlan

from tests.builders import a_heartbeat

NUMBERS = st.integers(-(2**53), 2**53)
RENDEZVOUS = st.builds(Rendezvous, NUMBERS, st.text())
MEMBERS = st.builds(Member, st.text(), NUMBERS, NUMBERS, st.text(), NUMBERS, NUMBERS)
ROSTERS = st.builds(Roster, NUMBERS, st.lists(MEMBERS, max_size=3).map(tuple), st.text(), RENDEZVOUS)
_SECONDS = st.floats(allow_nan=False, allow_infinity=False)  # JSON has neither
ORDERS = st.builds(Orders, st.sampled_from(Verb), NUMBERS, st.text(), st.none() | ROSTERS, NUMBERS, _SECONDS)
HEARTBEATS = st.builds(
    lambda text, number: dataclasses.replace(a_heartbeat(), job=text, index=number), st.text(), NUMBERS
)


@settings(max_examples=50, deadline=None)
@given(ORDERS | HEARTBEATS | ROSTERS)
def test_what_is_sent_arrives(message: Any) -> None:
    assert codec.decode(type(message), codec.encode(message)) == message


def test_equal_values_have_equal_bytes() -> None:
    one = TrainingPlan("AllReduce", strategy_options={"b": 1, "a": [1, 2]})
    other = TrainingPlan("AllReduce", strategy_options={"a": [1, 2], "b": 1})
    assert codec.encode(one) == codec.encode(other)
    assert b" " not in codec.encode(one)


def test_members_of_a_newer_agent_are_ignored() -> None:
    plain = {**json.loads(codec.encode(a_heartbeat())), "mood": "hopeful"}
    assert codec.from_plain(Heartbeat, plain) == a_heartbeat()


def test_members_that_an_older_agent_does_not_know_have_defaults() -> None:
    plain = json.loads(codec.encode(a_heartbeat()))
    for field in dataclasses.fields(Heartbeat):
        if field.default is not dataclasses.MISSING:
            plain.pop(field.name, None)
    assert codec.from_plain(Heartbeat, plain) == a_heartbeat()


@pytest.mark.parametrize(
    ("member", "value", "complaint"),
    [
        ("attempt", "1", "Heartbeat.attempt: expected int, got str"),
        ("attempt", 1.5, "Heartbeat.attempt: expected int, got float"),
        ("attempt", True, "Heartbeat.attempt: expected int, got bool"),
        ("attempt", None, "Heartbeat.attempt: expected int, got NoneType"),
        ("state", 7, "Heartbeat.state: 7 is none of Waiting, Running, Finished, Failed, Leaving"),
        ("hold", 1, "Heartbeat.hold: expected bool, got int"),
        ("ranks", {}, "Heartbeat.ranks: expected a list"),
        ("ranks", [3], "Heartbeat.ranks[0]: expected an object"),
        ("ranks", [{"rank": 0}], "Heartbeat.ranks[0].step: missing"),
        ("offer", [], "Heartbeat.offer: expected an object"),
        ("offer", {"port": 1}, "Heartbeat.offer.key: missing"),
        ("exit", {"attempt": 1, "rank": 0, "step": 0, "signal": 9}, "Heartbeat.exit.signal: expected str, got int"),
        ("ranks", [{"rank": 0, "step": 1, "loss": 10**400}], "Heartbeat.ranks[0].loss: the number is too large"),
    ],
)
def test_a_wrong_member_is_named(member: str, value: object, complaint: str) -> None:
    plain = {**json.loads(codec.encode(a_heartbeat())), member: value}
    with pytest.raises(codec.WireError, match="^" + complaint.replace("[", r"\[").replace(".", r"\.")):
        codec.from_plain(Heartbeat, plain)


def test_a_missing_member_is_named() -> None:
    with pytest.raises(codec.WireError, match=r"Heartbeat\.job: missing"):
        codec.decode(Heartbeat, "{}")


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"heartbeat"',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 100_000,
        b'{"job": ' + b"9" * 5000 + b"}",
        b'{"job": "\\ud800"}',
    ],
    ids=lambda hostile: repr(hostile[:12]),
)
def test_rubbish_is_refused(hostile: bytes) -> None:
    with pytest.raises(codec.WireError):
        codec.decode(Heartbeat, hostile)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_refused(number: str) -> None:
    with pytest.raises(codec.WireError):
        codec.decode(RankProgress, f'{{"rank": 0, "step": 0, "loss": {number}}}')


def test_whole_numbers_may_stand_for_floats() -> None:
    report = {"type": "E", "message": "m", "time": 3}
    plain = {"attempt": 1, "rank": 0, "step": 0, "error": report}
    error = codec.from_plain(ExitReport, plain).error
    assert error
    assert isinstance(error.time, float)


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([f.name for f in dataclasses.fields(Heartbeat)]), inner, max_size=5)
        ),
        max_leaves=10,
    )
)
def test_whatever_json_comes_is_taken_or_refused(plain: Any) -> None:
    try:
        codec.decode(Heartbeat, json.dumps(plain))
    except codec.WireError:
        return
    assert isinstance(plain, dict)


def test_free_objects_pass_untouched() -> None:
    options = {"a": [1, {"b": None}], "c": 1.5}
    plan = TrainingPlan("AllReduce", strategy_options=options)
    assert codec.decode(TrainingPlan, codec.encode(plan)).strategy_options == options
