"""Watch whether a process that ranks are forked from still does its work: it may be stopped, or stuck, and not end.

Without its work a rank's end is never told, and a request never answered.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Optional, Sequence

from trainmaster_trainer.agent import stacks
from trainmaster_trainer.agent.channel import Channel
from trainmaster_trainer.agent.reactor import Reactor, Timer

_LOOK_SECONDS = 1.0
# Looks in a row, not seconds: an agent that was stopped together with it, and goes on first, must not accuse it.
_STOPPED_LOOKS = 5
_SILENT_LOOKS = 30  # a busy machine, and memory that has to come from a disk, explain a lot
# While it imports. Who reads from a disk, or from a network disk, has another state in /proc than who sleeps.
_ASLEEP_LOOKS = 60
SENDING_SECONDS = 2.0  # for requests, which wait only where there are many that it has not read


class Pulse:
    """Pulse watches one process at a time. `give_up` is called once, with what is wrong, when it is no more of use."""

    def __init__(self, reactor: Reactor, give_up: Callable[[str], None]) -> None:
        self._reactor = reactor
        self._give_up = give_up
        self._timer: Optional[Timer] = None
        self._pid: Optional[int] = None
        self._begun: Dict[int, Optional[int]] = {}  # what it is to start: pids, once it has
        self._looks = 0
        self._importing = True
        self._worked = 0  # how long it has computed, in ticks, at the last look

    def begin(self) -> None:
        """Watch a new process from now on, whose pid may not be known yet."""
        self.end()
        self._pid, self._looks, self._importing, self._worked = None, 0, True, 0
        self._begun.clear()
        self._again()

    def is_of(self, pid: Optional[int]) -> None:
        """Set the pid of the process."""
        self._pid = pid

    def end(self) -> None:
        """Stop watching: the process has gone."""
        if self._timer is not None:
            self._timer.cancel()

    def ask(self, channel: Channel, message: Dict[str, Any], descriptors: Sequence[int]) -> None:
        """Send the process a message. If that asks for something, the process owes an answer from now on."""
        if "id" in message:
            self._begun[message["id"]] = None
        with contextlib.suppress(OSError):  # a broken channel shows itself, and one that is not read is seen at a look
            channel.send(message, descriptors)

    def heard(self, message: Dict[str, Any]) -> None:
        """Note a message from the process: it works."""
        self._looks = 0
        self._importing = self._importing and "ready" not in message
        if "started" in message:
            self._begun[message["started"]] = message["pid"]
        self._begun.pop(message.get("ended", 0), None)

    def _again(self) -> None:
        self._timer = self._reactor.after(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        stopped = self._pid is not None and stacks.is_stopped(self._pid)
        # It owes an answer, or has not reaped a child that has ended.
        owes = any(pid is None or stacks.state(pid) == "Z" for pid in self._begun.values())
        asleep = self._is_asleep()
        self._looks = self._looks + 1 if stopped or owes or asleep else 0
        if stopped:
            self._judge(_STOPPED_LOOKS, "is stopped (SIGSTOP)")
        elif asleep and not owes:
            self._judge(_ASLEEP_LOOKS, "sleeps in an import")
        else:
            self._judge(_SILENT_LOOKS, "does not answer")

    def _judge(self, most: int, what: str) -> None:
        if self._looks >= most:
            self._give_up(what)
        else:
            self._again()

    def _is_asleep(self) -> bool:
        """Return whether it should import and has not computed since the last look, nor waits for a disk."""
        if not self._importing or self._pid is None:
            return False
        before, self._worked = self._worked, stacks.ticks(self._pid)
        return stacks.state(self._pid) == "S" and self._worked == before
