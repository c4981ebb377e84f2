"""Run the agent's one loop: wait for events, step the supervisor, carry out its actions.

Nothing is decided here, see `supervise`.
"""

from __future__ import annotations

import collections
import os
import signal
from typing import Any, Callable, Deque, Dict, Optional

from trainmaster.wire import names
from trainmaster.wire.agent_states import AgentState, Verb
from trainmaster.wire.messages import ExitReport, Orders

from trainmaster_trainer.agent import process, supervise
from trainmaster_trainer.agent.agent_settings import AgentSettings
from trainmaster_trainer.agent.first_steps import FirstSteps
from trainmaster_trainer.agent.followers import Followers
from trainmaster_trainer.agent.hang_watch import HangWatch
from trainmaster_trainer.agent.hangs import Policy
from trainmaster_trainer.agent.output import Output
from trainmaster_trainer.agent.ranks import Ranks
from trainmaster_trainer.agent.reactor import Reactor
from trainmaster_trainer.agent.reporter import Reporter
from trainmaster_trainer.agent.status_collector import StatusCollector
from trainmaster_trainer.agent.supervise import Agent


class Engine:
    """Engine is one agent process."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._agent = Agent(settings.role, settings.index)
        self._exit_code = 0
        self._reason = ""
        self._limits = settings.plan.hang_seconds, settings.plan.evaluation_seconds  # after which ranks hang
        self._events: Deque[supervise.Event] = collections.deque()
        self._reactor = Reactor()
        self._output = Output()
        self._ranks = Ranks(settings, self._reactor, self._output, self._handle)
        self._status_collector = StatusCollector(settings, self._ranks.files)
        self._first_steps = FirstSteps(self._reactor, self._ranks.files, self._report_now)
        self._followers = Followers(settings, self._reactor, self._ranks.files, self._output.say, self._report_now)
        self._hang_watch = HangWatch(self._reactor, self._ranks, self._output.say, self._handle)
        self._reporter = Reporter(
            settings.operator,
            settings.token_file,
            self._status_collector,
            self._orders_arrived,
            self._output.say,
            gone=self._job_gone,
        )
        self._actions: Dict[type, Callable[[Any], None]] = {
            supervise.StartRanks: self._start_ranks,
            supervise.ShareRoster: lambda action: self._ranks.share(action.roster),
            supervise.StopRanks: lambda action: self._ranks.stop(action.grace_seconds, action.for_good),
            supervise.DropStore: lambda _: self._ranks.drop_store(),
            supervise.ReportNow: lambda _: self._report_now(),
            supervise.Leave: self._leave,
        }

    def run(self) -> int:
        """Work until the supervisor leaves; return the process's exit code."""
        signal.set_wakeup_fd(self._reactor.waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._reactor.call(self._terminate))
        signal.signal(signal.SIGCHLD, lambda *_: self._reactor.call(_reap))
        self._watch_owner()
        self._ranks.open()
        self._put_up()
        self._reporter.start()
        self._reactor.run()
        self._reporter.stop()
        self._ranks.close()
        self._output.close()
        return self._exit_code

    def _handle(self, event: supervise.Event) -> None:
        """Handle one event at a time: an action may bring up the next one."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            self._step(self._events[0])
            self._events.popleft()

    def _step(self, event: supervise.Event) -> None:
        before = self._agent
        self._agent, actions = supervise.step(before, event)
        if self._agent.state != before.state or self._agent.attempt != before.attempt:
            agent = self._agent
            failed = agent.exit if agent.state == AgentState.FAILED else None
            why = _describe(failed) if failed is not None else self._reason
            self._output.say(f"{self._settings.name}: {agent.state}, attempt {agent.attempt}{why and f': {why}'}")
        if self._agent.state != AgentState.RUNNING:
            self._hang_watch.forget()
        for action in actions:
            self._actions[type(action)](action)
        self._put_up()

    def _start_ranks(self, action: supervise.StartRanks) -> None:
        self._ranks.start(action.attempt, action.roster)
        others = [member for member in action.roster.members if member.ranks]
        script = bool(self._settings.plan.command)
        roster, shared = action.roster, len(others) > 1
        fixed, evaluation = self._limits
        policy = Policy(fixed, roster.independent, shared, script, roster.world_size, evaluation=evaluation)
        self._hang_watch.expect(action.attempt, policy)
        awaited = 1 if self._settings.plan.command else self._settings.ranks  # of a script often one rank alone tells
        self._first_steps.expect(awaited, action.attempt, self._agent.start or 0)
        self._followers.expect(action.roster, self._agent.start or 0)

    def _put_up(self) -> None:
        offer, problems = self._ranks.offer.rendezvous, self._followers.problems
        self._status_collector.put_up(self._agent, offer, problems)

    def _report_now(self) -> None:
        self._put_up()
        self._reporter.report_now()

    def _leave(self, action: supervise.Leave) -> None:
        self._first_steps.forget()
        self._exit_code = action.exit_code
        self._followers.end(action.exit_code, self._reactor.stop)

    def _orders_arrived(self, orders: Orders) -> None:
        """Hand orders over to the main thread. This runs in a reporter's thread."""
        self._reactor.call(lambda: self._take_orders(orders))

    def _take_orders(self, orders: Orders) -> None:
        self._reason = orders.reason
        if orders.verb == Verb.RUN:
            self._limits = orders.hang_seconds, orders.evaluation_seconds
            self._hang_watch.allow(*self._limits)
        self._handle(supervise.OrdersArrived(orders))

    # --- the outside ---

    def _terminate(self) -> None:
        self._reason = "told to end"
        self._handle(supervise.Terminate(self._settings.grace_seconds))

    def _job_gone(self, why: str) -> None:
        """Have this agent leave, as no orders would ever tell it to. This runs in a reporter's thread."""

        def leave() -> None:
            self._reason = why
            self._handle(supervise.Terminate(self._settings.grace_seconds, names.EXIT_JOB_GONE))

        self._reactor.call(leave)

    def _watch_owner(self) -> None:
        """End with the local process that started this agent, if there is one: nothing else would ever end it."""
        if self._settings.parent_pid is None:
            return
        try:
            owner = os.pidfd_open(self._settings.parent_pid)
            self._reactor.watch(owner, lambda: self._owner_gone(owner))
            process.wake_with_parent()
        except ProcessLookupError:
            self._reactor.call(self._owner_gone)

    def _owner_gone(self, descriptor: Optional[int] = None) -> None:
        if descriptor is not None:
            self._reactor.unwatch(descriptor)  # it stays readable, and this process may still have to wait
        self._reason = "the process that started this agent has gone"
        self._handle(supervise.Terminate(0.0))


def _describe(end: ExitReport) -> str:
    """Return a rank's end in a few words."""
    if end.hung:
        return end.error.message if end.error else f"rank {end.rank} hangs"
    how = end.signal or f"exit code {end.exit_code}"
    memory = ", out of memory" if end.out_of_memory else ""
    error = f", {end.error.type}: {end.error.message.splitlines()[0][:200]}" if end.error and end.error.message else ""
    return f"rank {end.rank} ended at step {end.step} by {how}{memory}{error}"


def _reap() -> None:
    """Reap all that has ended. As PID 1 this process inherits every orphan; its own child is the warm parent only."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
