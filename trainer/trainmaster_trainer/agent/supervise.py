"""Supervise: (state, event) -> (state, actions). Pure: no I/O, clock, threads or logging.

`engine` makes events of what happens and carries the actions out. All that an agent decides is
decided here: which orders count, when ranks start, what a death means, when to leave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, FrozenSet, Optional, Tuple, Union

from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import ErrorReport, ExitReport, GoodEnd, Member, Orders, Roster

# --- State -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agent:
    """Agent is everything that the supervisor knows."""

    role: str
    index: int
    state: AgentState = AgentState.WAITING
    attempt: int = 0  # that `state` speaks of
    roster: Optional[Roster] = None  # of `attempt`, from its start until newer orders
    live: FrozenSet[int] = frozenset()  # ranks of `attempt` whose processes have not ended yet
    pending: Optional[Orders] = None  # carried out when `live` is empty
    seen: int = 0  # the newest attempt that any orders named
    exit: Optional[ExitReport] = None
    stalled: Optional[ExitReport] = None  # ranks of `attempt` wait too long, perhaps for another agent's: they live on
    good_end: Optional[GoodEnd] = None  # of the first rank that ended well in the newest attempt that has one
    leaving: Optional[int] = None  # the exit code to leave with
    warm: bool = False

    @property
    def start(self) -> Optional[int]:
        """Return which of this replica's starts within the attempt `state` speaks of; None where all start together."""
        member = member_of(self.roster, self.role, self.index) if self.roster is not None else None
        return member.start if member is not None else None


# --- Events ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrdersArrived:
    """OrdersArrived says that the operator answered."""

    orders: Orders


@dataclass(frozen=True)
class RankEnded:
    """RankEnded says that a rank's process ended. `ours`: by the agent. `cause`: the local rank that erred first."""

    attempt: int
    rank: int
    step: int = 0
    exit_code: Optional[int] = None
    signal: Optional[str] = None
    out_of_memory: bool = False
    error: Optional[ErrorReport] = None
    ours: bool = False
    cause: Optional[int] = None
    said: str = ""  # the end of its standard error, where it left no error file

    @property
    def is_failure(self) -> bool:
        """Return whether the rank failed: it did not end with 0, and the agent did not end it."""
        return self.exit_code != 0 and not self.ours


@dataclass(frozen=True)
class RankDies:
    """RankDies says that a rank will end as `end` says: it computes no more, but holds memory. `RankEnded` follows."""

    end: RankEnded


@dataclass(frozen=True)
class RanksHung:
    """RanksHung says that ranks have ended no step for too long. `report` names the cause, as far as it is known."""

    report: ExitReport


@dataclass(frozen=True)
class RanksWait:
    """RanksWait says that ranks wait too long, perhaps for another agent's at something slow; None: not any more."""

    report: Optional[ExitReport]


@dataclass(frozen=True)
class ParentReady:
    """ParentReady says that the warm parent can fork."""


@dataclass(frozen=True)
class ParentLost:
    """ParentLost says that the warm parent has gone. `RankEnded` follows for each rank that it had started."""


@dataclass(frozen=True)
class ParentHopeless:
    """ParentHopeless says that the warm parent dies at its start, however often: no rank will ever run here."""


@dataclass(frozen=True)
class Terminate:
    """Terminate says that SIGTERM came, or that the process that this agent belongs to has gone, or its job."""

    grace_seconds: float
    exit_code: int = names.EXIT_TERMINATED


Event = Union[
    OrdersArrived, RankEnded, RankDies, RanksHung, RanksWait, ParentReady, ParentLost, ParentHopeless, Terminate
]

# --- Actions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StartRanks:
    """StartRanks starts this replica's ranks of `roster`. No other rank is alive then."""

    attempt: int
    roster: Roster


@dataclass(frozen=True)
class ShareRoster:
    """ShareRoster tells ranks that members came or went, but that nothing that they were started with changed."""

    roster: Roster


@dataclass(frozen=True)
class StopRanks:
    """StopRanks sends SIGTERM, then SIGKILL after `grace_seconds`; at once where that is 0.

    `for_good`: the replica ends, whether somebody has pressed Ctrl-C or a pod is deleted.
    """

    grace_seconds: float
    for_good: bool = False


@dataclass(frozen=True)
class DropStore:
    """DropStore ends the store of an ended attempt, which no rank needs any more."""


@dataclass(frozen=True)
class ReportNow:
    """ReportNow sends a heartbeat at once: the operator should not have to wait for the next long poll."""


@dataclass(frozen=True)
class Leave:
    """Leave sends the last heartbeat, then exits."""

    exit_code: int


Action = Union[StartRanks, ShareRoster, StopRanks, DropStore, ReportNow, Leave]
Step = Tuple[Agent, Tuple[Action, ...]]


def step(agent: Agent, event: Event) -> Step:
    """Return what the agent is after `event`, and what is to be done."""
    return _HANDLERS[type(event)](agent, event)


def member_of(roster: Roster, role: str, index: int) -> Optional[Member]:
    """Return the line of one replica in the roster; None where it has none."""
    for member in roster.members:
        if member.role == role and member.index == index:
            return member
    return None


# --- Orders ----------------------------------------------------------------------------------------------------


def _orders_arrived(agent: Agent, event: OrdersArrived) -> Step:
    orders = event.orders
    if agent.leaving is not None:
        return agent, ()
    if orders.verb == Verb.EXIT:
        return _leave(agent, orders.exit_code, orders.grace_seconds)
    if orders.attempt < agent.seen:
        return agent, ()  # a late answer: newer orders have been seen
    agent = replace(agent, seen=orders.attempt)
    if orders.verb == Verb.RUN and orders.roster is not None:
        return _run(agent, orders, orders.roster)
    if orders.verb == Verb.WAIT and orders.attempt > agent.attempt:
        return _when_empty(agent, orders)
    return agent, ()


def _run(agent: Agent, orders: Orders, roster: Roster) -> Step:
    if orders.attempt == agent.attempt and agent.roster is not None:
        if agent.roster.digest == roster.digest or _is_older(agent, roster):
            return agent, ()
        # Where members start alone, ranks that have ended start anew only when the roster has a later start of theirs.
        if (agent.live or roster.independent) and agent.pending is None and _same_start(agent, agent.roster, roster):
            return replace(agent, roster=roster), (ShareRoster(roster), ReportNow())
    return _when_empty(agent, orders)


def _same_start(agent: Agent, old: Roster, new: Roster) -> bool:
    """Return whether ranks started with `old` may go on under `new`. Without a group, members may come and go."""
    return (
        old.rendezvous == new.rendezvous
        and (new.independent or old.rendezvous_address == new.rendezvous_address)  # the first worker may be another
        and member_of(old, agent.role, agent.index) == member_of(new, agent.role, agent.index)
    )


def _is_older(agent: Agent, roster: Roster) -> bool:
    """Return whether this is a late answer, as it names an older start of this replica than the present one."""
    member = member_of(roster, agent.role, agent.index)
    return member is not None and (member.start or 0) < (agent.start or 0)


def _when_empty(agent: Agent, orders: Orders) -> Step:
    """Carry `orders` out now, or after the ranks that still live have ended."""
    if not agent.live:
        return _carry_out(agent, orders)
    if agent.pending is not None and agent.pending.version == orders.version:
        return agent, ()
    return replace(agent, pending=orders), (StopRanks(orders.grace_seconds),)


def _carry_out(agent: Agent, orders: Orders) -> Step:
    member = member_of(orders.roster, agent.role, agent.index) if orders.roster is not None else None
    if orders.attempt > agent.attempt:
        # Where orders ended ranks because they hung, the hang is how they ended.
        agent = replace(agent, exit=agent.stalled or agent.exit)
    agent = replace(agent, attempt=orders.attempt, pending=None, roster=orders.roster, stalled=None)
    if orders.verb == Verb.WAIT or orders.roster is None or member is None or member.ranks == 0:
        return replace(agent, state=AgentState.WAITING), (DropStore(), ReportNow())
    ranks = frozenset(range(member.first_rank, member.first_rank + member.ranks))
    agent = replace(agent, state=AgentState.RUNNING, live=ranks)
    return agent, (StartRanks(orders.attempt, orders.roster), ReportNow())


# --- Ends ------------------------------------------------------------------------------------------------------


def _rank_ended(agent: Agent, event: RankEnded) -> Step:
    if event.attempt != agent.attempt or event.rank not in agent.live:
        return agent, ()
    agent = _noted(replace(agent, live=agent.live - {event.rank}), event)
    actions: Tuple[Action, ...] = ()
    if event.is_failure:
        agent, actions = _rank_died(agent, event)
    if agent.live:
        return agent, actions
    agent, more = _all_ended(agent)
    return agent, actions + more


def _noted(agent: Agent, event: RankEnded) -> Agent:
    """Note that a rank has ended well: who still exchanges with it fails, and its error does not say why."""
    asked = event.ours or agent.pending is not None or agent.leaving is not None
    known = agent.good_end is not None and agent.good_end.attempt == event.attempt
    if event.exit_code != 0 or asked or known:
        return agent
    return replace(agent, good_end=GoodEnd(event.attempt, event.rank))


def _rank_dies(agent: Agent, event: RankDies) -> Step:
    """Take the death as known before the rank's memory is free: only the next start has to wait for that."""
    end = event.end
    known = end.attempt == agent.attempt and end.rank in agent.live
    return _rank_died(agent, end) if known and end.is_failure else (agent, ())


def _rank_died(agent: Agent, event: RankEnded) -> Step:
    """Report the first death of a start, which is its cause; what dies after it is a consequence."""
    if agent.exit is not None and (agent.exit.attempt, agent.exit.start) == (agent.attempt, agent.start):
        return agent, ()
    report = ExitReport(
        attempt=event.attempt,
        rank=event.rank if event.cause is None else event.cause,
        step=event.step,
        exit_code=event.exit_code,
        signal=event.signal,
        out_of_memory=event.out_of_memory,
        error=event.error,
        start=agent.start,
        said=event.said,
    )
    agent = replace(agent, exit=report, stalled=None)
    if agent.state == AgentState.RUNNING and agent.pending is None:
        agent = replace(agent, state=AgentState.FAILED)
    stop: Tuple[Action, ...] = (StopRanks(0.0),) if agent.live and agent.leaving is None else ()
    return agent, (*stop, ReportNow())


def _ranks_hung(agent: Agent, event: RanksHung) -> Step:
    """Treat hung ranks as dead: none of them will end by itself."""
    if not _is_busy(agent) or event.report.attempt != agent.attempt:
        return agent, ()
    return replace(agent, exit=event.report, stalled=None, state=AgentState.FAILED), (StopRanks(0.0), ReportNow())


def _ranks_wait(agent: Agent, event: RanksWait) -> Step:
    """Tell the operator, and do nothing else: it knows what all agents say, and decides."""
    if not _is_busy(agent) or (event.report is not None and event.report.attempt != agent.attempt):
        return agent, ()
    return replace(agent, stalled=event.report), (ReportNow(),)


def _is_busy(agent: Agent) -> bool:
    """Return whether ranks run, and nothing is known that will end them."""
    return agent.state == AgentState.RUNNING and agent.pending is None and bool(agent.live)


def _all_ended(agent: Agent) -> Step:
    if agent.leaving is not None:
        return agent, (Leave(agent.leaving),)
    if agent.pending is not None:
        return _carry_out(agent, agent.pending)
    if agent.state == AgentState.RUNNING:
        return replace(agent, state=AgentState.FINISHED), (ReportNow(),)
    return agent, ()


def _terminate(agent: Agent, event: Terminate) -> Step:
    if agent.leaving is None:
        return _leave(agent, event.exit_code, event.grace_seconds, for_good=event.grace_seconds > 0)
    # Told to end once more. Nobody waits any longer for what a rank may still save where there is no grace any more.
    return agent, (StopRanks(0.0),) if agent.live and event.grace_seconds == 0 else ()


def _leave(agent: Agent, exit_code: int, grace_seconds: float, for_good: bool = False) -> Step:
    agent = replace(agent, state=AgentState.LEAVING, leaving=exit_code, pending=None)
    if agent.live:
        return agent, (StopRanks(grace_seconds, for_good), ReportNow())
    return agent, (Leave(exit_code),)


# --- The warm parent -------------------------------------------------------------------------------------------


def _parent_ready(agent: Agent, _: ParentReady) -> Step:
    return replace(agent, warm=True), (ReportNow(),)


def _parent_lost(agent: Agent, _: ParentLost) -> Step:
    return replace(agent, warm=False), ()


def _parent_hopeless(agent: Agent, _: ParentHopeless) -> Step:
    return (agent, ()) if agent.leaving is not None else _leave(agent, names.EXIT_NO_WARM_PARENT, 0.0)


_HANDLERS: Dict[type, Callable[[Agent, Any], Step]] = {
    OrdersArrived: _orders_arrived,
    RankEnded: _rank_ended,
    RankDies: _rank_dies,
    RanksHung: _ranks_hung,
    RanksWait: _ranks_wait,
    ParentReady: _parent_ready,
    ParentLost: _parent_lost,
    ParentHopeless: _parent_hopeless,
    Terminate: _terminate,
}
