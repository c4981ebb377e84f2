"""The rank processes of one attempt: start them over the warm parent, stop them, tell how each came to its end.

Called by `engine` with the supervisor's actions; answers with the supervisor's events.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional

from trainmaster.wire import codec, names
from trainmaster.wire.messages import ErrorReport, Member, Rendezvous, Roster
from trainmaster.wire.progress import ProgressFile
from trainmaster_trainer.agent import environment, evidence, files, parent, process, rendezvous, supervise
from trainmaster_trainer.agent.output import Output
from trainmaster_trainer.agent.reactor import Reactor, Timer
from trainmaster_trainer.agent.settings import Settings

Emit = Callable[[supervise.Event], None]
# A start that killed the warm parent so often is the start's fault.
_MOST_STARTS = 2


@dataclass
class Rank:
    """One rank's process and files."""

    number: int
    identity: int
    page: ProgressFile
    error_file: str
    stdout: int
    stderr: int
    pid: Optional[int] = None
    signalled: Optional[float] = None  # when the agent told it to end


@dataclass
class Wanted:
    """An attempt that is to run, or runs."""

    attempt: int
    roster: Roster
    member: Member
    starts: int = 0


@dataclass
class Store:
    """The store that this replica serves. The listener is kept until the process that has it is known to run."""

    rendezvous: Rendezvous
    listener: Optional[socket.socket]
    identity: int = 0
    pid: Optional[int] = None


class Ranks(parent.Listener):
    """At most one attempt at a time: the supervisor sees to that."""

    def __init__(self, settings: Settings, reactor: Reactor, output: Output, emit: Emit) -> None:
        self.offer = rendezvous.Offer(settings.address, output.say)
        self.files = files.Files(settings)
        self._settings = settings
        self._reactor = reactor
        self._output = output
        self._emit = emit
        self._parent = parent.Parent(reactor, self, settings.warm_socket, output.say)
        self._interface = rendezvous.interface_of(settings.address)
        self._identities = itertools.count(1)
        self._wanted: Optional[Wanted] = None
        self._live: Dict[int, Rank] = {}  # by identity
        self._store: Optional[Store] = None
        self._kill_timer: Optional[Timer] = None
        self._kills_before = 0

    def open(self) -> None:
        """Begin to warm up."""
        self._parent.open()

    def close(self) -> None:
        """Leave the warm parent."""
        self._parent.close()

    # --- actions ---

    def start(self, attempt: int, roster: Roster) -> None:
        """Start this replica's ranks, now or as soon as there is a warm parent."""
        member = supervise.member_of(roster, self._settings.role, self._settings.index)
        assert member is not None, "the supervisor starts members only"
        self._wanted = Wanted(attempt, roster, member)
        self._cancel_kill()
        if not self._take_store(roster):
            self._refuse(self._wanted, "the meeting point that the orders name is not, or no more, offered here")
        elif self._parent.ready:
            self._launch(self._wanted)

    def share(self, roster: Roster) -> None:
        """Replace the roster that the ranks may read."""
        if self._wanted is not None:
            self._wanted.roster = roster
            self.files.write_roster(codec.encode(roster))

    def stop(self, grace_seconds: float) -> None:
        """End all ranks: SIGTERM and SIGKILL later, or SIGKILL at once."""
        wanted = self._wanted
        if wanted is not None and not self._live:  # not even started
            self._give_up(wanted)
            return
        self._cancel_kill()
        for rank in self._live.values():
            rank.signalled = rank.signalled or time.time()
            self._signal(rank, signal.SIGTERM if grace_seconds > 0 else signal.SIGKILL)
        if grace_seconds > 0:
            self._kill_timer = self._reactor.after(grace_seconds, lambda: self.stop(0.0))

    def drop_store(self) -> None:
        """End the store process, if there is one here."""
        store, self._store = self._store, None
        if store is not None and store.pid is not None:
            process.kill_group(store.pid, signal.SIGKILL)
        if store is not None and store.listener is not None:
            store.listener.close()

    # --- what the warm parent says ---

    def parent_ready(self) -> None:
        """Start what has been waiting for it."""
        self._emit(supervise.ParentReady())
        if self._wanted is not None and not self._live:
            self._launch(self._wanted)

    def parent_lost(self) -> None:
        """Its ranks died with it. Where none had been started yet, the next parent gets the work."""
        self._emit(supervise.ParentLost())
        wanted, lost = self._wanted, [*self._live.values()]
        if wanted is None or not lost:
            return
        self._live.clear()
        if self._store is not None:
            self._store.pid = None
        for rank in lost:
            if rank.pid is not None:
                process.kill_group(rank.pid, signal.SIGKILL)  # what they had started lives on
            self._close(rank)
        if all(rank.pid is None and rank.signalled is None for rank in lost) and wanted.starts < _MOST_STARTS:
            return  # launched again by parent_ready
        for rank in lost:
            self._emit(self._lost_rank(wanted, rank))

    def started(self, identity: int, pid: int) -> None:
        """Note the process; if it was to end meanwhile, end it."""
        if self._store is not None and identity == self._store.identity:
            self._store_runs(self._store, pid)
            return
        rank = self._live.get(identity)
        if rank is None:  # an old store, or a rank that was given up
            process.kill_group(pid, signal.SIGKILL)
            return
        rank.pid = pid
        if rank.signalled is not None:
            self._signal(rank, signal.SIGKILL)

    def ended(self, identity: int, end: Dict[str, Any]) -> None:
        """A rank has ended: gather what can be known about it."""
        rank = self._live.pop(identity, None)
        if rank is None:
            if self._store is not None and identity == self._store.identity:
                self._store = None
            return
        self._close(rank)
        assert self._wanted is not None
        event = self._rank_ended(self._wanted, rank, end)
        if not self._live:
            self._wanted = None
            self._cancel_kill()
        self._emit(event)

    # --- starting ---

    def _launch(self, wanted: Wanted) -> None:
        wanted.starts += 1
        self._kills_before = evidence.out_of_memory_kills()
        pages = self.files.begin(wanted.attempt, wanted.member, codec.encode(wanted.roster))
        agent_store = self._serve_store(wanted.roster)
        for local_rank, page in enumerate(pages):
            self._launch_rank(wanted, local_rank, page, agent_store)

    def _launch_rank(self, wanted: Wanted, local_rank: int, page: ProgressFile, agent_store: bool) -> None:
        number = wanted.member.first_rank + local_rank
        place = environment.Place(
            job_uid=self._settings.job_uid,
            attempt=wanted.attempt,
            roster=wanted.roster,
            member=wanted.member,
            local_rank=local_rank,
            agent_store=agent_store,
            interface=self._interface,
            progress_file=self.files.progress(number),
            error_file=self.files.error(number),
            roster_file=self.files.roster,
        )
        variables = environment.rank_environment(os.environ, place)
        (stdout, stdout_end), (stderr, stderr_end) = os.pipe(), os.pipe()
        rank = Rank(number, next(self._identities), page, place.error_file, stdout, stderr)
        self._live[rank.identity] = rank
        prefix = f"[{self._settings.name} rank {number}] " if wanted.member.ranks > 1 else ""
        self._output.add(stdout, stderr, prefix)
        request = {"start": "rank", "id": rank.identity, "environment": variables}
        self._parent.start(request, [stdout_end, stderr_end])
        os.close(stdout_end)
        os.close(stderr_end)

    def _take_store(self, roster: Roster) -> bool:
        """Take the offered socket if the ranks are to meet at it. False: they are to meet here, but cannot."""
        if self._store is not None and self._store.rendezvous == roster.rendezvous:
            return True  # only this replica starts anew, the others have been at this store all the time
        self.drop_store()
        if roster.rendezvous == self.offer.rendezvous:
            self._store = Store(roster.rendezvous, self.offer.take())
            return True
        host = next((member for member in roster.members if member.role == names.WORKER), roster.members[0])
        return (host.role, host.index) != (self._settings.role, self._settings.index)

    def _serve_store(self, roster: Roster) -> bool:
        """Have the store served here if the ranks meet here. False: rank 0 must open it itself."""
        store = self._store
        if store is None or store.listener is None:
            return True  # another agent's affair, or served already
        if not self._parent.stores:
            store.listener.close()
            store.listener = None
            return False
        store.identity = next(self._identities)
        host, port = roster.rendezvous_address, roster.rendezvous.port
        request = {"start": "store", "id": store.identity, "host": host, "port": port}
        self._parent.start({**request, "world_size": roster.world_size}, [store.listener.fileno()])
        return True

    def _store_runs(self, store: Store, pid: int) -> None:
        store.pid = pid
        if store.listener is not None:
            store.listener.close()  # else a late rank could connect to a port that nobody serves any more
            store.listener = None

    # --- ending ---

    def _signal(self, rank: Rank, number: int) -> None:
        if rank.pid is not None:
            process.kill_group(rank.pid, number)

    def _cancel_kill(self) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
            self._kill_timer = None

    def _close(self, rank: Rank) -> None:
        self._output.finish(rank.stdout, rank.stderr)

    def _give_up(self, wanted: Wanted) -> None:
        self._wanted = None
        for number in range(wanted.member.first_rank, wanted.member.first_rank + wanted.member.ranks):
            self._emit(supervise.RankEnded(wanted.attempt, number, signal="SIGTERM", ours=True))

    def _refuse(self, wanted: Wanted, why: str) -> None:
        self._wanted = None
        error = ErrorReport(type="StartFailed", message=why, time=time.time())
        for number in range(wanted.member.first_rank, wanted.member.first_rank + wanted.member.ranks):
            self._emit(supervise.RankEnded(wanted.attempt, number, error=error))

    def _rank_ended(self, wanted: Wanted, rank: Rank, end: Dict[str, Any]) -> supervise.RankEnded:
        own_error = evidence.read_error(rank.error_file)
        by_us = rank.signalled is not None and (own_error is None or own_error.time >= rank.signalled)
        killed = end.get("signal") == "SIGKILL" and not by_us
        return supervise.RankEnded(
            attempt=wanted.attempt,
            rank=rank.number,
            step=rank.page.read().step,
            exit_code=end.get("code"),
            signal=end.get("signal"),
            out_of_memory=killed and evidence.out_of_memory_kills() > self._kills_before,
            error=_failure(end) or self._first_error(wanted.member),
            ours=by_us,
        )

    def _first_error(self, member: Member) -> Optional[ErrorReport]:
        numbers = range(member.first_rank, member.first_rank + member.ranks)
        return evidence.first_error(map(self.files.error, numbers))

    def _lost_rank(self, wanted: Wanted, rank: Rank) -> supervise.RankEnded:
        if not self._live:
            self._wanted = None
        text = "the process from which this rank was forked has died, and the rank with it"
        return supervise.RankEnded(
            attempt=wanted.attempt,
            rank=rank.number,
            step=rank.page.read().step,
            signal="SIGKILL",
            out_of_memory=evidence.out_of_memory_kills() > self._kills_before,
            error=ErrorReport(type="WarmParentLost", message=text, time=time.time()),
            ours=rank.signalled is not None,
        )


def _failure(end: Dict[str, Any]) -> Optional[ErrorReport]:
    """A process that never came to be."""
    if "failure" not in end:
        return None
    return ErrorReport(type="StartFailed", message=end["failure"], time=time.time())


