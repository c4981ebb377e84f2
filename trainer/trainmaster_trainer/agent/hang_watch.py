"""Watches for hangs: looks at progress pages and processes several times a second, and keeps the stacks.

Called by `engine` for each attempt. Who hangs is decided in `hangs`; what a stack means in `stacks`.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from typing import Callable, Dict, Optional

from trainmaster.wire.messages import ErrorReport, ExitReport

from trainmaster_trainer.agent import errors, hangs, stacks, supervise
from trainmaster_trainer.agent.hangs import Policy, Quiet, Verdict
from trainmaster_trainer.agent.ranks import Ranks
from trainmaster_trainer.agent.reactor import Reactor, Timer

_LOOK_SECONDS = 0.2
# A look that comes so late shows that this process was stopped, or the machine asleep.
_AWAY_SECONDS = 1.0
# A stack tells of one moment; while a rank stays quiet it is asked again.
_STACK_AGE_SECONDS = 3.0
# From the signal to the last line of all stacks.
_WRITING_SECONDS = 0.15
_MOST_STACKS = 16384


@dataclass(frozen=True)
class _Asked:
    """A rank was asked for its stacks."""

    when: float
    quiet_since: float
    listens: bool
    start: int  # size of the file before


class HangWatch:
    """One look after another, for the newest attempt only."""

    def __init__(
        self, reactor: Reactor, ranks: Ranks, say: Callable[[str], None], emit: Callable[[supervise.Event], None]
    ) -> None:
        self._reactor = reactor
        self._ranks = ranks
        self._say = say
        self._emit = emit
        self._timer: Optional[Timer] = None
        self._policy = Policy()
        self._begin(0, self._policy)

    def expect(self, attempt: int, fixed_seconds: Optional[float], independent: bool) -> None:
        """Ranks of a new attempt were started."""
        self.forget()
        self._begin(attempt, Policy(fixed_seconds, independent))
        self._again()

    def allow(self, fixed_seconds: Optional[float]) -> None:
        """Steps may take so long from now on; None: as long as they did, with some patience."""
        self._policy = replace(self._policy, fixed=fixed_seconds)

    def forget(self) -> None:
        """The attempt has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, attempt: int, policy: Policy) -> None:
        self._attempt = attempt
        self._policy = policy
        self._quiet: Dict[int, Quiet] = {}
        self._asked: Dict[int, _Asked] = {}
        self._last = time.monotonic()

    def _again(self) -> None:
        self._timer = self._reactor.after(_LOOK_SECONDS, self._look)

    # --- looking ---

    def _look(self) -> None:
        now, pids = time.monotonic(), self._ranks.pids()
        away, self._last = now - self._last > _AWAY_SECONDS, now
        pages = self._ranks.files.read_all_pages()
        looks = {
            rank: hangs.seen(self._quiet.get(rank), rank, page, stacks.is_stopped(pids[rank]), now)
            for rank, page in pages.items()
            if rank in pids
        }
        self._quiet = {rank: hangs.anew(quiet, now) if away else quiet for rank, quiet in looks.items()}
        verdict = hangs.judge(self._quiet.values(), self._activities(now), self._policy, now)
        if verdict is None:
            self._look_closer(pids, now)
            self._again()
        else:
            self._convict(verdict, pids, now)

    def _activities(self, now: float) -> Dict[int, str]:
        """What those are at who were asked, and have been quiet ever since."""
        return {
            rank: stacks.activity(self._dump(rank))
            for rank, asked in self._asked.items()
            if rank in self._quiet
            and asked.quiet_since == self._quiet[rank].since
            and now >= asked.when + _WRITING_SECONDS
        }

    def _look_closer(self, pids: Dict[int, int], now: float) -> None:
        for rank, quiet in self._quiet.items():
            asked = self._asked.get(rank)
            fresh = asked is not None and asked.quiet_since == quiet.since and now < asked.when + _STACK_AGE_SECONDS
            if quiet.stopped is None and not fresh and hangs.suspicious(quiet, self._policy, now):
                self._ask(rank, pids[rank], now)

    def _ask(self, rank: int, pid: int, now: float) -> None:
        start = stacks.size(self._ranks.files.stacks(rank))
        self._asked[rank] = _Asked(now, self._quiet[rank].since, stacks.ask(pid), start)

    def _dump(self, rank: int) -> str:
        asked = self._asked.get(rank)
        if asked is None or not asked.listens:
            return ""
        return stacks.read(self._ranks.files.stacks(rank), asked.start)

    # --- when somebody hangs ---

    def _convict(self, verdict: Verdict, pids: Dict[int, int], now: float) -> None:
        """The stacks of all ranks at this moment, then the report."""
        for rank in self._quiet:
            self._ask(rank, pids[rank], now)
            if self._quiet[rank].stopped is not None:
                # It is killed in a moment; until it runs again it cannot say where it was.
                _send(pids[rank], signal.SIGCONT)
        self._timer = self._reactor.after(_WRITING_SECONDS, lambda: self._report(verdict, pids))

    def _report(self, verdict: Verdict, pids: Dict[int, int]) -> None:
        texts = {rank: self._dump(rank) or stacks.where_in_kernel(pids[rank]) for rank in self._quiet}
        sentence = hangs.sentence(verdict)
        self._say(f"{sentence} (limit {verdict.limit:.1f} s; spec.failurePolicy.hangSeconds sets it)")
        for rank, text in texts.items():
            self._say(f"stacks of rank {rank}:\n{text.rstrip()}")
        clipped = "".join(f"rank {rank}:\n{text[-stacks.MOST_PER_RANK :]}" for rank, text in texts.items())
        own = texts[verdict.rank]
        report = ExitReport(
            attempt=self._attempt,
            rank=verdict.rank,
            step=verdict.page.step,
            error=ErrorReport("Hang", sentence, _place(own), own[-errors.MOST_TRACEBACK :], time.time()),
            hung=True,
            stacks=clipped[:_MOST_STACKS],
            waiting=verdict.waiting,
        )
        self._emit(supervise.RanksHung(report))


def _send(pid: int, number: int) -> None:
    """Send a signal, if the process is still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _place(dump: str) -> str:
    """The innermost frame of the user's own code, else the innermost of all."""
    frames = stacks.main_thread(dump)
    for file, line, name in [frame for frame in frames if errors.is_users(frame[0])] or frames:
        return f"{file}:{line} in {name}"
    return ""
