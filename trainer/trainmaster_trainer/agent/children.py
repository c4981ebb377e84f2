"""Keep children of the warm parent standing by, so that starting a rank costs a message, not a fork.

A fork of a process with torch in it takes 5 to 30 ms and several ranks are forked one after the
other; a child that stands by already has its own session and waits for its request.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from trainmaster.wire import names

from trainmaster_trainer.agent import left_running, process, rank_process, rehearsal, teardown, working_set
from trainmaster_trainer.agent.channel import Channel
from trainmaster_trainer.agent.huge_pages import HugePages

Rest = Callable[[], int]  # what a forked child goes on with, after it has left the parent's loop
# Ranks that have just been started need the processor for themselves.
_QUIET_SECONDS = 1.0
_POOR_SECONDS = 60.0
_SETTLED_SECONDS = 3.0
_PAUSE_SECONDS = 0.03  # between two pieces of memory
_MOST_STANDING_BY = 64


@dataclass(frozen=True)
class ChildEnd:
    """ChildEnd is how a child ended: `code` or the name of `signal`, and the command lines of what it left running."""

    pid: int
    code: Optional[int]
    signal: Optional[str]
    left_running: List[str] = field(default_factory=list)


class Children:
    """Children holds all processes that this one has started and not yet reaped."""

    def __init__(self) -> None:
        self._wanted = 0  # how many should stand by
        self._pid = os.getpid()
        self._at_work: Dict[int, str] = {}  # each with the name of its progress file, if it is a rank
        self._newest_rank: Optional[int] = None  # that this process has forked
        self._working_set: Optional[working_set.Pages] = None  # of a rank
        self._standing_by: Dict[int, Channel] = {}
        self._last_start = float("-inf")
        self._huge_pages = HugePages()

    def start(self, message: Dict[str, Any], descriptors: List[int]) -> Tuple[int, Optional[Rest]]:
        """Start what `message` asks for. Return its pid and None in the parent, 0 and what to do in a forked child.

        Raises:
            OSError: there can be no new process.
        """
        if message["start"] != "rank":
            return self._start_anew(message, descriptors)
        self._last_start = time.monotonic()
        # Those that stand by are for ranks: a store needs nothing of what they have rehearsed.
        pid, rest = self._send_one(message, descriptors), None
        if pid is None:
            pid, rest = self._start_anew(message, descriptors)
        self._newest_rank = pid
        self._at_work[pid] = message["environment"].get(names.ENV_PROGRESS_FILE, "")
        return pid, rest

    def _start_anew(self, message: Dict[str, Any], descriptors: List[int]) -> Tuple[int, Optional[Rest]]:
        if process.threads() == 1:
            return self.fork(lambda: rank_process.become(message, descriptors))
        if message["start"] != "rank":
            raise OSError("only a fork can serve a store, and this process has threads")
        pid = rank_process.spawn(message, descriptors)
        self._at_work[pid] = ""
        return pid, None

    def fork(self, become: Callable[[], Rest]) -> Tuple[int, Optional[Rest]]:
        """Fork. Return the child's pid and None in the parent, 0 and what `become` returns in the child.

        Raises:
            OSError: there can be no new process.
        """
        if process.threads() > 1:
            raise OSError("this process has threads")
        pid = process.fork()
        if pid == 0:
            rank_process.detach(self._pid)
            return 0, become()
        self._at_work[pid] = ""
        return pid, None

    def want(self, count: int) -> None:
        """Have so many children stand by. Those that are too many see the end of their channel, and end."""
        self._wanted = count
        self._dismiss(count)

    def _dismiss(self, left: int) -> None:
        while len(self._standing_by) > left:
            self._standing_by.popitem()[1].close()

    def patience(self) -> Optional[float]:
        """Return the seconds until `use_leisure` should be called; None: it need not be."""
        if process.threads() > 1 or not self._wanted:
            return None
        age = time.monotonic() - self._last_start
        if self._lacks_some:
            return max(0.0, _QUIET_SECONDS - age)
        if self._huge_pages.done or not self._at_work:
            return None
        return max(_PAUSE_SECONDS, _SETTLED_SECONDS - age)

    @property
    def _lacks_some(self) -> bool:
        return len(self._standing_by) < min(self._wanted, _MOST_STANDING_BY)

    def use_leisure(self) -> Optional[Rest]:
        """Do what `patience` waited for, as no request came meanwhile. Return what to do in a child that this forks."""
        if self._lacks_some:
            return self._replenish()
        if self._working_set is None and self._newest_rank is not None and not self._huge_pages.begun:
            self._working_set = working_set.of_rank(self._newest_rank)
            return None
        self._huge_pages.take_one()
        if self._huge_pages.done and self._huge_pages.of_use:  # those that come from now on are smaller, and readier
            self._dismiss(0)
        return None

    def _replenish(self) -> Optional[Rest]:
        """Fork one more child to stand by. Return what to do in that child, None in the parent."""
        try:
            ours, theirs = socket.socketpair()
            pid = process.fork()
        except OSError:  # no processes, descriptors or memory left: those at work need them more
            self._last_start = time.monotonic() + _POOR_SECONDS
            return None
        if pid == 0:
            rank_process.detach(self._pid)
            process.close_descriptors(keep=[theirs.fileno()])
            process.rename("tm-standby")
            return lambda: _stand_by(Channel(theirs), self._working_set or [])
        theirs.close()
        self._standing_by[pid] = Channel(ours)
        return None

    def reap(self) -> Iterator[ChildEnd]:
        """Yield the ends of all children that have ended by now, but for those that only stood by."""
        while self._at_work or self._standing_by:
            end = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is None:
                return
            left: List[str] = []
            if end.si_code == os.CLD_EXITED and end.si_status == 0:
                left = left_running.command_lines(end.si_pid, self._at_work.get(end.si_pid, ""))
            # What it had started must not hold its sockets open, nor outlive it. Not yet reaped, so the number is still
            # its own.
            process.kill_group(end.si_pid, signal.SIGKILL)
            os.waitpid(end.si_pid, 0)
            channel = self._standing_by.pop(end.si_pid, None)
            if channel is not None:
                channel.close()
            elif end.si_pid in self._at_work:
                del self._at_work[end.si_pid]
                self._newest_rank = None if end.si_pid == self._newest_rank else self._newest_rank
                exited = end.si_code == os.CLD_EXITED
                signal_name = None if exited else names.signal_name(end.si_status)
                yield ChildEnd(end.si_pid, end.si_status if exited else None, signal_name, left)

    def _send_one(self, message: Dict[str, Any], descriptors: List[int]) -> Optional[int]:
        """Give the request to a child that stands by; return its pid, or None where there is none."""
        while self._standing_by:
            pid, channel = self._standing_by.popitem()
            try:
                channel.send(message, descriptors)
            except OSError:
                process.kill_group(pid, signal.SIGKILL)  # it was killed from outside; its end is no rank's end
                continue
            finally:
                channel.close()
            self._at_work[pid] = ""
            return pid
        return None


def _stand_by(channel: Channel, pages: working_set.Pages) -> int:
    """Wait for a request and carry it out, or for the parent's end; return the exit code."""
    working_set.copy(pages)
    rehearsal.rehearse()
    teardown.begin()
    try:
        while True:
            for message, descriptors in channel.wait():
                return rank_process.become(message, descriptors)()
    except EOFError:
        return 0
