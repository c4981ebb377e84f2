"""The rank processes of one attempt: start them over the warm parent, stop them, tell how each came to its end.

What is to be done are the supervisor's actions, and what has happened its events.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from trainmaster.wire import codec, frameworks, names
from trainmaster.wire.messages import Member, Roster

from trainmaster_trainer.agent import (
    environment,
    evidence,
    learning,
    memory_folder,
    parent,
    printed_figures,
    process,
    rank_death,
    rank_store,
    rendezvous,
    supervise,
)
from trainmaster_trainer.agent.agent_settings import AgentSettings
from trainmaster_trainer.agent.attempt_files import Files
from trainmaster_trainer.agent.listeners import Listeners
from trainmaster_trainer.agent.output import Output
from trainmaster_trainer.agent.reactor import Reactor, Timer

Emit = Callable[[supervise.Event], None]
# A start that killed the warm parent so often is the start's fault.
_MOST_STARTS = 2
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
_YOUNG_SECONDS = 60.0
_BEGUN_SECONDS = 0.2  # until then ranks have the processor for themselves
_AHEAD_SECONDS = 2.0  # from a start until the next store: nothing else is to be forked while ranks begin
_NOT_OFFERED = "the meeting point that the orders name is not, or no more, offered here"
_TOO_EARLY = (
    "exit code 0 before its training was over: something in the task or in a library of it has ended the process "
    "(sys.exit, os._exit)"
)


@dataclass
class Rank:
    """One rank's process and files."""

    number: int
    stdout: int
    stderr: int
    pid: Optional[int] = None
    signalled: Optional[float] = None  # when the agent told it to end
    begun: float = field(default_factory=time.monotonic)
    lifeline: Optional[rank_death.Lifeline] = None


@dataclass
class WantedAttempt:
    """An attempt that is to run, or runs."""

    attempt: int
    roster: Roster
    member: Member
    starts: int = 0
    kills_before: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def numbers(self) -> range:
        """Return the ranks of this replica."""
        return range(self.member.first_rank, self.member.first_rank + self.member.ranks)


class Ranks(parent.WarmListener):
    """These are the ranks of at most one attempt at a time: the supervisor sees to that."""

    def __init__(self, settings: AgentSettings, reactor: Reactor, output: Output, emit: Emit) -> None:
        plan = settings.plan
        independent = plan.strategy in frameworks.FRAMEWORKS[plan.framework or frameworks.TORCH].independent_under
        ports = settings.ranks if independent or plan.framework else 0
        self.offer = rendezvous.Offer(settings.address, output.say, ports, listening=independent)
        self.files = Files(settings)
        self._settings = settings
        self._reactor = reactor
        self._output = output
        self._emit = emit
        self._parent = parent.Parent(reactor, self, settings.warm_socket, settings.ranks, output.say)
        self._learning = learning.Learning(reactor, self.files, self._parent, settings.plan.working_directory)
        self._interface = rendezvous.interface_of(settings.address)
        self._identities = itertools.count(1)
        self._store = rank_store.StoreKeeper(settings, self.offer, self._parent, self._identities)
        self._memory = memory_folder.make(settings)
        self._wanted: Optional[WantedAttempt] = None
        self._listeners = Listeners()
        self._live: Dict[int, Rank] = {}  # by identity
        self._newest: Dict[int, Rank] = {}  # by number, with the end of its output still to be read
        search = printed_figures.Search(settings.plan.progress, output.say)
        self._said = printed_figures.Reader(search, reactor, self._take_output, self.files.note_said)
        self._kill_timer: Optional[Timer] = None
        self._by_hand = False  # the stop that goes on is somebody's Ctrl-C

    def open(self) -> None:
        """Connect to the warm parent, or start one."""
        self._parent.open()

    def close(self) -> None:
        """Leave the warm parent, and give the memory of the snapshots back."""
        self._parent.close()
        memory_folder.remove(self._memory)

    def pids(self) -> Dict[int, int]:
        """Return the living processes, by rank."""
        return {rank.number: rank.pid for rank in self._live.values() if rank.pid is not None}

    # --- actions ---

    def start(self, attempt: int, roster: Roster) -> None:
        """Start this replica's ranks, now or as soon as there is a warm parent."""
        member = supervise.member_of(roster, self._settings.role, self._settings.index)
        if member is None:
            raise ValueError("the supervisor starts members only")
        self._cancel_kill()
        self._wanted = WantedAttempt(attempt, roster, member)
        if not (self._take_listeners(self._wanted) and self._store.take(roster)):
            self._fail(self._wanted, [*self._wanted.numbers], {"failure": _NOT_OFFERED})
        elif self._parent.ready:
            self._launch(self._wanted)

    def _take_listeners(self, wanted: WantedAttempt) -> bool:
        """Take the offered sockets of ranks that have ports; return False if these are not offered here."""
        self._listeners.drop_all()
        if not wanted.member.ports:
            return True
        taken = self.offer.take_ports(wanted.member.ports)
        self._listeners = Listeners(wanted.member.first_rank, taken or ())
        return taken is not None

    def share(self, roster: Roster) -> None:
        """Replace the roster that the ranks may read."""
        if self._wanted is not None:
            self._wanted.roster = roster
            if self._live:  # else they have no folder yet
                with contextlib.suppress(OSError):  # a full disk: the older roster holds as long as it can
                    self.files.write_roster(codec.encode(roster))

    def stop(self, grace_seconds: float, for_good: bool = False) -> None:
        """End all ranks: send SIGTERM and, after `grace_seconds`, SIGKILL; SIGKILL at once where that is 0."""
        wanted = self._wanted
        if wanted is not None and not self._live:  # it waits for a warm parent
            self._wanted = None
            self._listeners.drop_all()
            for number in wanted.numbers:
                self._emit(supervise.RankEnded(wanted.attempt, number, signal="SIGTERM", ours=True))
            return
        self._cancel_kill()
        # On a laptop a script that minds only Ctrl-C gets what Ctrl-C gives, and can save in `except
        # KeyboardInterrupt`.
        self._by_hand = for_good and self._settings.parent_pid is not None and bool(self._settings.plan.command)
        for rank in self._live.values():
            rank.signalled = rank.signalled or time.time()
            if grace_seconds > 0:
                # SIGTERM goes to the rank, but not to its helpers, which it needs to save; below a shell, to the
                # program.
                if rank.pid is not None:
                    process.ask_to_end(rank.pid, interrupt=self._by_hand)
            else:
                _signal(rank, signal.SIGKILL)
        if grace_seconds > 0:
            self._kill_timer = self._reactor.after(grace_seconds, lambda: self.stop(0.0))

    def drop_store(self) -> None:
        """End the store, if it is served here."""
        self._store.drop()

    # --- what the warm parent says ---

    def parent_ready(self) -> None:
        """Start what has been waiting for it."""
        self._emit(supervise.ParentReady())
        if self._wanted is not None and not self._live:
            self._launch(self._wanted)

    def parent_lost(self) -> None:
        """Report its ranks, which died with it. Where none had been started yet, the next parent gets the work."""
        self._emit(supervise.ParentLost())
        self._store.parent_lost()
        wanted, lost = self._wanted, [*self._live.values()]
        self._live.clear()
        for rank in lost:
            _signal(rank, signal.SIGKILL)  # what the rank had started lives on
            self._finish(rank)
        fresh = all(rank.pid is None and rank.signalled is None for rank in lost)
        if wanted is not None and lost and not (fresh and wanted.starts < _MOST_STARTS):
            self._fail(wanted, [rank.number for rank in lost], parent.LOST)

    def parent_hopeless(self) -> None:
        """Report that no rank will ever run here."""
        self._emit(supervise.ParentHopeless())

    def started(self, identity: int, pid: int) -> None:
        """Note the process of a rank or store; if it was to end meanwhile, end it."""
        rank = self._live.get(identity)
        if rank is not None:
            rank.pid = pid
            self._listeners.drop(rank.number)
            if rank.signalled is not None and self._kill_timer is not None:  # within its grace
                process.ask_to_end(pid, interrupt=self._by_hand)
            elif rank.signalled is not None:
                _signal(rank, signal.SIGKILL)
        elif not self._store.started(identity, pid):
            process.kill_group(pid, signal.SIGKILL)  # nobody wants it any more

    def ended(self, identity: int, end: Dict[str, Any]) -> None:
        """Gather what can be known about a rank that has ended, and report it."""
        rank, wanted = self._live.pop(identity, None), self._wanted
        if rank is None or wanted is None:
            if self._store.ended(identity):
                self._output.say(f"the store at which the ranks meet has ended ({end})")
            return
        own = rank.signalled is None and end.get("code") != 0 and end is not parent.LOST
        read = own or bool(self._settings.plan.progress)
        words = self._output.finish_and_tell(rank.stdout, rank.stderr) if read else ""
        self._said.look(rank.number, at_the_end=True)
        self._finish(rank)
        for line in end.get("left_running", ()):
            self._output.say(
                f"rank {rank.number} has ended with 0, and nothing waits for what it had started: {line}. "
                "If that is the training, start it without '&' and setsid, or end the command with 'wait'."
            )
        if end is parent.LOST:
            _signal(rank, signal.SIGKILL)  # what the rank had started lives on
        elif self._was_young(rank, end):
            self._parent.distrust(identity)
        event = self._judge(wanted, rank.number, rank.signalled, self._whole(rank.number, end), words if own else "")
        if not self._live:
            self._wanted = None
            self._listeners.drop_all()
            self._learning.forget()
            self._cancel_kill()
        self._emit(event)

    # --- starting ---

    def _launch(self, wanted: WantedAttempt) -> None:
        wanted.starts += 1
        if not wanted.roster.independent:
            self._listeners.drop_all()  # servers of the framework bind to the ports themselves
        wanted.kills_before = evidence.out_of_memory_kills()
        missing = [*wanted.numbers]
        try:
            start, waited = wanted.member.start or 0, time.monotonic() - wanted.since
            self.files.begin(wanted.attempt, wanted.numbers, codec.encode(wanted.roster), start, waited)
            self._said.expect(wanted.numbers)
            agent_store = self._store.by_agent(bool(self._settings.plan.command) and wanted.roster.world_size == 1)
            while missing:
                self._launch_rank(wanted, missing[0], agent_store)
                missing.pop(0)
            self._store.serve()
            self._reactor.after(_AHEAD_SECONDS, self._store.get_ahead)
            if self._settings.plan.framework is None:  # only such ranks hold on to lifelines
                self._reactor.after(_BEGUN_SECONDS, self._follow)
        except OSError as error:  # no space for files, no descriptors left
            self._fail(wanted, missing, {"failure": f"the rank could not be started: {error}"})

    def _launch_rank(self, wanted: WantedAttempt, number: int, agent_store: bool) -> None:
        place = environment.RankPlace(
            job_uid=self._settings.job_uid,
            attempt=wanted.attempt,
            roster=wanted.roster,
            member=wanted.member,
            local_rank=number - wanted.member.first_rank,
            agent_store=agent_store,
            interface=self._interface,
            progress_file=str(self.files.progress(number)),
            error_file=str(self.files.error(number)),
            stacks_file=str(self.files.stacks(number)),
            roster_file=str(self.files.roster),
            memory_folder=str(self._memory or ""),
            imports_file="" if number > wanted.member.first_rank else self._learning.notes(number),
        )
        (stdout, stdout_end), (stderr, stderr_end) = os.pipe(), os.pipe()
        identity = next(self._identities)
        self._live[identity] = self._newest[number] = Rank(number, stdout, stderr)
        prefix = f"[{self._settings.name} rank {number}] " if wanted.member.ranks > 1 else ""
        self._output.add(stdout, stderr, prefix)
        if self._settings.plan.progress:
            self._output.follow(stdout, stderr)
        variables = environment.rank_environment(os.environ, place)
        if place.imports_file:
            self._learning.expect(place, variables, lambda: self.pids().get(number))
        descriptors = [stdout_end, stderr_end, *self._listeners.descriptors(number)]
        self._parent.start({"start": "rank", "id": identity, "environment": variables}, descriptors)
        os.close(stdout_end)
        os.close(stderr_end)

    def _take_output(self, number: int, at_the_end: bool) -> str:
        rank = self._newest.pop(number, None) if at_the_end else self._newest.get(number)
        return self._output.take(rank.stdout, rank.stderr, whole=not at_the_end) if rank is not None else ""

    # --- ending ---

    def _follow(self) -> None:
        """Follow the lifelines of all ranks, to hear of their deaths at once."""
        for identity, rank in self._live.items():
            if rank.lifeline is None:
                with contextlib.suppress(OSError, RuntimeError):  # no descriptors or threads left: heard of later
                    rank.lifeline = rank_death.Lifeline(str(self.files.progress(rank.number)))
                    rank.lifeline.follow(partial(self._reactor.call, partial(self._let_go, identity)))

    def _let_go(self, identity: int) -> None:
        """Look at the rank in a moment: if the warm parent has died, its channel is closed, and is read first."""
        self._reactor.after(0.0, lambda: self._dies(identity))

    def _dies(self, identity: int) -> None:
        """Report how a rank ends, which is known by now if it does end; `ended` will say it again.

        What a script has printed last is read when its process has ended, so only of one that was killed, and has no
        last words, is enough known by now.
        """
        rank, wanted = self._live.get(identity), self._wanted
        status = process.end_of(rank.pid) if rank is not None and rank.pid is not None else None
        if rank is not None and wanted is not None and status is not None:
            exited = os.WIFEXITED(status)
            end = {"code": os.WEXITSTATUS(status)} if exited else {"signal": names.signal_name(os.WTERMSIG(status))}
            plan = self._settings.plan
            if plan.command and (plan.progress or end.get("signal") != "SIGKILL"):
                return
            self._emit(supervise.RankDies(self._judge(wanted, rank.number, rank.signalled, end)))

    def _cancel_kill(self) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
            self._kill_timer = None

    def _finish(self, rank: Rank) -> None:
        self._output.finish(rank.stdout, rank.stderr)
        if rank.lifeline is not None:
            rank.lifeline.drop()

    def _fail(self, wanted: WantedAttempt, numbers: List[int], end: Dict[str, Any]) -> None:
        """Report ranks whose end was not seen, or that never began."""
        if not self._live:
            self._wanted = None
            self._listeners.drop_all()
        for number in numbers:
            self._emit(self._judge(wanted, number, None, end))

    def _whole(self, number: int, end: Dict[str, Any]) -> Dict[str, Any]:
        """Return `end`, or a failure for a task's rank that ended with 0 without having said that its work is done."""
        tells = self._settings.role == names.WORKER and not self._settings.plan.command
        if end.get("code") == 0 and tells and not self.files.is_done(number):
            return {"failure": _TOO_EARLY, "type": "EndedEarly"}
        return end

    def _was_young(self, rank: Rank, end: Dict[str, Any]) -> bool:
        """Return whether a rank failed, or had to be stopped, before anything showed that it can do its work at all."""
        if self.files.step(rank.number) > 0 or end.get("code") == 0:
            return False
        age = time.monotonic() - rank.begun
        failed = rank.signalled is None and end.get("signal") not in _FROM_OUTSIDE
        return failed and age < _YOUNG_SECONDS if self._settings.plan.command else failed or age > _YOUNG_SECONDS

    def _judge(
        self, wanted: WantedAttempt, number: int, signalled: Optional[float], end: Dict[str, Any], said: str = ""
    ) -> supervise.RankEnded:
        begun = bool(wanted.starts)  # else the files that lie there are those of an older attempt
        step = self.files.step(number) if begun else 0
        death = evidence.Death(wanted.attempt, number, step, end, signalled, wanted.kills_before, said)
        return evidence.judge(death, {other: self.files.error(other) for other in wanted.numbers if begun})


def _signal(rank: Rank, number: int) -> None:
    if rank.pid is not None:
        process.kill_group(rank.pid, number)
