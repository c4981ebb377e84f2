"""What an agent decides, as tables and as laws."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainmaster.wire import messages
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import ErrorReport, Member, Orders, Rendezvous, Roster
from trainmaster_trainer.agent import supervise
from trainmaster_trainer.agent.supervise import (
    Agent,
    DropStore,
    Leave,
    OrdersArrived,
    ParentHopeless,
    ParentLost,
    ParentReady,
    RankDies,
    RankEnded,
    RanksHung,
    RanksWait,
    ReportNow,
    ShareRoster,
    StartRanks,
    StopRanks,
    Terminate,
)


def a_roster(attempt: int, ranks: int = 2, peers: int = 1, port: int = 1, me: int = 0) -> Roster:
    """`me` ranks come before ours."""
    members = [Member("worker", 0, 0, "10.0.0.1", me, ranks)]
    members += [Member("worker", index, 0, f"10.0.0.{index + 1}", ranks * index, ranks) for index in range(1, peers)]
    return Roster(attempt, tuple(members), "10.0.0.1", Rendezvous(port, "key"))


def run(attempt: int, **more: int) -> OrdersArrived:
    return OrdersArrived(Orders(Verb.RUN, attempt, "why", a_roster(attempt, **more), grace_seconds=0.5))


def ordered(roster: Roster) -> OrdersArrived:
    return OrdersArrived(Orders(Verb.RUN, roster.attempt, "why", roster, grace_seconds=0.5))


def alone(start: int, peers: int = 1) -> OrdersArrived:
    """Attempt 1 of members that come and go; our own line says `start`."""
    group = a_roster(1, peers=peers)
    members = (dataclasses.replace(group.members[0], start=start), *group.members[1:])
    return OrdersArrived(
        Orders(Verb.RUN, 1, "why", dataclasses.replace(group, members=members, independent=True), grace_seconds=0.5)
    )


def moved() -> Roster:
    """The same, and the first worker has come back elsewhere."""
    return dataclasses.replace(alone(0).orders.roster or a_roster(1), rendezvous_address="10.0.9.9")


def wait(attempt: int) -> OrdersArrived:
    return OrdersArrived(Orders(Verb.WAIT, attempt, "why", grace_seconds=3.0))


def leave(code: int) -> OrdersArrived:
    return OrdersArrived(Orders(Verb.EXIT, 1, "why", exit_code=code, grace_seconds=3.0))


def died(attempt: int, rank: int, **more: object) -> RankEnded:
    return RankEnded(attempt, rank, signal="SIGKILL", **more)  # type: ignore[arg-type]


def dies(attempt: int, rank: int, **more: object) -> RankDies:
    return RankDies(died(attempt, rank, **more))


def done(attempt: int, rank: int) -> RankEnded:
    return RankEnded(attempt, rank, exit_code=0)


def hung(attempt: int, rank: int) -> RanksHung:
    return RanksHung(messages.ExitReport(attempt, rank, 9, hung=True))


def after(*events: supervise.Event) -> tuple[Agent, tuple[supervise.Action, ...]]:
    """The agent after all events, and the actions of the last one."""
    agent, actions = Agent("worker", 0), tuple[supervise.Action, ...]()
    for event in events:
        agent, actions = supervise.step(agent, event)
    return agent, actions


START_1 = StartRanks(1, a_roster(1))
START_2 = StartRanks(2, a_roster(2))
FAST, SLOW, KILL = StopRanks(0.5), StopRanks(3.0), StopRanks(0.0)
NOW = ReportNow()
SHARE_3 = ShareRoster(a_roster(1, peers=3))

SHARE_ALONE = ShareRoster(alone(0, 3).orders.roster or a_roster(1))

OURS_1_0, OURS_1_1 = died(1, 0, ours=True), died(1, 1, ours=True)

TABLE: dict[str, tuple[list[supervise.Event], str, int, tuple[supervise.Action, ...]]] = {
    "Run starts ranks": ([run(1)], "Running", 1, (START_1, NOW)),
    "Run of what runs changes nothing": ([run(1), run(1)], "Running", 1, ()),
    "Run of what has finished changes nothing": ([run(1), done(1, 0), done(1, 1), run(1)], "Finished", 1, ()),
    "Run of what has failed changes nothing": ([run(1), died(1, 0), died(1, 1), run(1)], "Failed", 1, ()),
    "Run of the next attempt ends the old ranks first": ([run(1), run(2)], "Running", 1, (FAST,)),
    "... and starts when the last has gone": ([run(1), run(2), OURS_1_0, OURS_1_1], "Running", 2, (START_2, NOW)),
    "... said twice stops once": ([run(1), run(2), run(2)], "Running", 1, ()),
    "Run after a failure starts at once": ([run(1), died(1, 0), died(1, 1), run(2)], "Running", 2, (START_2, NOW)),
    "Run of an old attempt is a late answer": ([run(2), run(1)], "Running", 2, ()),
    "Wait of an old attempt too": ([run(2), wait(1)], "Running", 2, ()),
    "Wait for the running attempt changes nothing": ([run(1), wait(1)], "Running", 1, ()),
    "Wait for a newer attempt ends ranks": ([run(1), wait(2)], "Running", 1, (SLOW,)),
    "... and then waits": ([run(1), wait(2), done(1, 0), done(1, 1)], "Waiting", 2, (DropStore(), NOW)),
    "Run overtakes Wait": ([run(1), wait(2), run(2), OURS_1_0, OURS_1_1], "Running", 2, (START_2, NOW)),
    "Wait at the beginning": ([wait(0)], "Waiting", 0, ()),
    "the first death ends the others at once": ([run(1), died(1, 0)], "Failed", 1, (KILL, NOW)),
    "the last rank's death has nobody to end": ([run(1, ranks=1), died(1, 0)], "Failed", 1, (NOW,)),
    "a death of an older attempt says nothing": ([run(2), died(1, 0)], "Running", 2, ()),
    "a rank that dies is told, and ends the others": ([run(1), dies(1, 0)], "Failed", 1, (KILL, NOW)),
    "... and it is told once": ([run(1), dies(1, 0), died(1, 0)], "Failed", 1, ()),
    "... and nothing starts before it has gone": ([run(1), dies(1, 0), run(2), OURS_1_1], "Failed", 1, ()),
    "... but then": ([run(1), dies(1, 0), run(2), OURS_1_1, OURS_1_0], "Running", 2, (START_2, NOW)),
    "one alone that dies": ([run(1, ranks=1), dies(1, 0)], "Failed", 1, (KILL, NOW)),
    "one that we end dies": ([run(1), dies(1, 0, ours=True)], "Running", 1, ()),
    "one of an older attempt dies": ([run(2), dies(1, 0)], "Running", 2, ()),
    "one dies when it has gone": ([run(1), died(1, 0), dies(1, 0)], "Failed", 1, ()),
    "all ended well": ([run(1), done(1, 0), done(1, 1)], "Finished", 1, (NOW,)),
    "one ended well": ([run(1), done(1, 0)], "Running", 1, ()),
    "one well, one not": ([run(1), done(1, 0), died(1, 1)], "Failed", 1, (NOW,)),
    "Exit without ranks": ([leave(3)], "Leaving", 0, (Leave(3),)),
    "Exit with ranks": ([run(1), leave(3)], "Leaving", 1, (SLOW, NOW)),
    "... and when they have gone": ([run(1), leave(3), done(1, 0), OURS_1_1], "Leaving", 1, (Leave(3),)),
    "SIGTERM": ([run(1), Terminate(20.0)], "Leaving", 1, (StopRanks(20.0, for_good=True), NOW)),
    "its job is gone": ([Terminate(20.0, 69)], "Leaving", 0, (Leave(69),)),
    "SIGTERM without ranks": ([Terminate(20.0)], "Leaving", 0, (Leave(143),)),
    "its owner dies after SIGTERM": ([run(1), Terminate(9.0), Terminate(0.0)], "Leaving", 1, (StopRanks(0.0),)),
    "SIGTERM twice": ([run(1), Terminate(20.0), Terminate(20.0)], "Leaving", 1, ()),
    "no rank will ever run": ([run(1), ParentLost(), ParentHopeless(), OURS_1_0, OURS_1_1], "Leaving", 1, (Leave(70),)),
    "no orders while leaving": ([run(1), Terminate(20.0), run(2)], "Leaving", 1, ()),
    "a rank that crashes then does not hurry the others": ([run(1), Terminate(9.0), died(1, 0)], "Leaving", 1, (NOW,)),
    "a hang is a death of all": ([run(1), hung(1, 1)], "Failed", 1, (KILL, NOW)),
    "... and what then dies is its consequence": ([run(1), hung(1, 1), OURS_1_0, OURS_1_1], "Failed", 1, ()),
    "... and a new attempt starts": ([run(1), hung(1, 1), run(2), OURS_1_0, OURS_1_1], "Running", 2, (START_2, NOW)),
    "a hang of an older attempt says nothing": ([run(2), hung(1, 1)], "Running", 2, ()),
    "a hang while ranks end says nothing": ([run(1), wait(2), hung(1, 1)], "Running", 1, ()),
    "a hang of what has failed says nothing": ([run(1), died(1, 0), hung(1, 1)], "Failed", 1, ()),
    "a hang of what has ended says nothing": ([run(1), done(1, 0), done(1, 1), hung(1, 1)], "Finished", 1, ()),
    "a hang while leaving says nothing": ([run(1), Terminate(9.0), hung(1, 1)], "Leaving", 1, ()),
    "warm": ([ParentReady()], "Waiting", 0, (NOW,)),
    "members come, our start is the same": ([run(1), run(1, peers=3)], "Running", 1, (SHARE_3, NOW)),
    "our own line says anew": ([alone(0), alone(1)], "Running", 1, (FAST,)),
    "a late answer names an older start": ([alone(1), alone(0)], "Running", 1, ()),
    "who finished stays finished": ([alone(0), done(1, 0), done(1, 1), alone(0, 3)], "Finished", 1, (SHARE_ALONE, NOW)),
    "who died waits for its line": ([alone(0), died(1, 0), died(1, 1), alone(0, 3)], "Failed", 1, (SHARE_ALONE, NOW)),
    "the first worker is another": ([alone(0), ordered(moved())], "Running", 1, (ShareRoster(moved()), NOW)),
    "our ranks change": ([run(1), run(1, ranks=3)], "Running", 1, (FAST,)),
    "the meeting point changes": ([run(1), run(1, port=2)], "Running", 1, (FAST,)),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_table(name: str) -> None:
    events, state, attempt, actions = TABLE[name]
    agent, given_actions = after(*events)
    assert (agent.state, agent.attempt, given_actions) == (state, attempt, actions)


def test_a_replica_that_is_not_in_the_roster_waits() -> None:
    stranger = Agent("worker", 7)
    agent, actions = supervise.step(stranger, run(1))
    assert (agent.state, agent.attempt, actions) == ("Waiting", 1, (DropStore(), NOW))
    assert supervise.step(agent, run(1)) == (agent, ()), "and does not answer the same orders by a report each time"


def test_the_first_death_is_the_cause() -> None:
    error = ErrorReport("ValueError", "no")
    agent, _ = after(run(1), RankEnded(1, 1, step=7, exit_code=1, error=error), died(1, 0, ours=True))
    assert agent.exit == messages.ExitReport(attempt=1, rank=1, step=7, exit_code=1, error=error)


def test_the_rank_that_erred_first_is_named_even_when_another_ended_first() -> None:
    agent, _ = after(run(1), RankEnded(1, 1, exit_code=1, cause=0))
    assert agent.exit is not None
    assert agent.exit.rank == 0


def test_the_first_good_end_of_an_attempt_is_told_whatever_follows() -> None:
    agent, _ = after(run(1), done(1, 1), died(1, 0))
    assert agent.good_end == messages.GoodEnd(1, 1)
    agent, _ = after(run(1), done(1, 0), done(1, 1), wait(2))
    assert (agent.state, agent.good_end) == (AgentState.WAITING, messages.GoodEnd(1, 0))


def test_an_end_that_was_asked_for_is_no_good_end() -> None:
    agent, _ = after(run(1), wait(2), done(1, 0), done(1, 1))
    assert agent.good_end is None


def test_the_report_of_a_hang_stands_and_not_that_of_the_kill() -> None:
    agent, _ = after(run(1), hung(1, 1), died(1, 1, ours=True), died(1, 0, ours=True))
    assert agent.exit is not None
    assert (agent.exit.hung, agent.exit.rank, agent.exit.signal) == (True, 1, None)


def test_ranks_that_wait_for_other_agents_live_until_orders_come() -> None:
    """One of the others may be at something slow; the operator knows what all of them say."""
    told = hung(1, 1).report
    agent, actions = after(run(1), RanksWait(told))
    assert (agent.state, agent.stalled, agent.exit, actions) == ("Running", told, None, (NOW,))
    agent, actions = after(run(1), RanksWait(told), RanksWait(None))
    assert (agent.stalled, actions) == (None, (NOW,))
    agent, _ = after(run(1), RanksWait(told), wait(2), died(1, 0, ours=True), died(1, 1, ours=True))
    assert (agent.state, agent.stalled, agent.exit) == ("Waiting", None, told)


def test_a_death_while_the_others_wait_is_told_and_not_that_they_waited() -> None:
    agent, _ = after(run(1), RanksWait(hung(1, 1).report), died(1, 0), died(1, 1, ours=True), run(2))
    assert agent.exit is not None
    assert (agent.exit.rank, agent.exit.hung) == (0, False)


def test_a_crash_is_told_even_when_orders_to_stop_came_first() -> None:
    agent, actions = after(run(1), run(2), died(1, 0))
    assert agent.exit is not None
    assert (agent.exit.attempt, actions) == (1, (KILL, NOW))


def test_the_report_of_an_end_outlives_the_attempt() -> None:
    """The operator may learn of the cause only after it has ordered the next attempt for a consequence of it."""
    agent, _ = after(run(1), died(1, 0), died(1, 1), run(2))
    assert agent.exit is not None
    assert (agent.state, agent.attempt, agent.exit.attempt) == ("Running", 2, 1)


def test_ranks_that_we_ended_are_no_failure() -> None:
    agent, _ = after(run(1), wait(2), died(1, 0, ours=True), died(1, 1, ours=True))
    assert agent.exit is None


def test_losing_the_warm_parent_is_no_end_by_itself() -> None:
    agent, actions = after(ParentReady(), run(1), ParentLost())
    assert (agent.state, agent.warm, actions) == ("Running", False, ())


EVENTS = st.one_of(
    st.builds(run, st.integers(1, 4), ranks=st.integers(1, 3), port=st.integers(1, 2)),
    st.builds(wait, st.integers(0, 4)),
    st.builds(leave, st.integers(0, 3)),
    st.builds(RankEnded, st.integers(1, 4), st.integers(0, 2), exit_code=st.sampled_from([0, 1]), ours=st.booleans()),
    st.builds(dies, st.integers(1, 4), st.integers(0, 2), ours=st.booleans()),
    st.builds(hung, st.integers(1, 4), st.integers(0, 2)),
    st.builds(RanksWait, st.one_of(st.none(), st.builds(lambda attempt: hung(attempt, 0).report, st.integers(1, 4)))),
    st.just(ParentReady()),
    st.just(ParentLost()),
    st.just(ParentHopeless()),
    st.builds(Terminate, st.just(1.0)),
)


@given(st.lists(EVENTS, max_size=30))
def test_laws(events: list[supervise.Event]) -> None:
    agent = Agent("worker", 0)
    for event in events:
        before = agent
        agent, actions = supervise.step(before, event)
        starts = [action for action in actions if isinstance(action, StartRanks)]
        assert not starts or not (before.live - {getattr(event, "rank", None)}), "ranks of two attempts at once"
        assert agent.attempt >= before.attempt
        assert agent.seen >= before.seen
        assert before.leaving is None or agent.leaving == before.leaving, "once leaving, always leaving"
        assert not (starts and agent.leaving is not None)
        assert agent.state == AgentState.LEAVING or agent.leaving is None
        assert not agent.live or agent.state in {AgentState.RUNNING, AgentState.FAILED, AgentState.LEAVING}
        assert agent.pending is None or agent.live, "orders wait for nothing but ranks"
        if agent != dataclasses.replace(before, warm=agent.warm, seen=agent.seen, pending=agent.pending):
            assert actions or agent.live < before.live, "a change that nobody hears of"


@given(st.lists(EVENTS, max_size=20), st.integers(1, 4))
def test_orders_are_idempotent(events: list[supervise.Event], attempt: int) -> None:
    agent = Agent("worker", 0)
    for event in events:
        agent, _ = supervise.step(agent, event)
    once, _ = supervise.step(agent, run(attempt))
    assert supervise.step(once, run(attempt)) == (once, ())
