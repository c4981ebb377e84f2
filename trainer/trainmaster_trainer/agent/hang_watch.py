"""Watch for hangs: look at progress pages and processes several times a second, and keep the stacks.

Who hangs is decided in `hangs`; what a stack means in `stacks`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Callable, Dict, Optional

from trainmaster.wire.messages import ErrorReport, ExitReport
from trainmaster.wire.progress_page import is_alive

from trainmaster_trainer.agent import hangs, rank_errors, stacks, supervise
from trainmaster_trainer.agent.hangs import HangVerdict, Policy, Quiet
from trainmaster_trainer.agent.ranks import Ranks
from trainmaster_trainer.agent.reactor import Reactor, Timer

_LOOK_SECONDS = 0.2
# A look that comes so late shows that this process was stopped, or the machine asleep.
_AWAY_SECONDS = 1.0
# A stack tells of one moment; while a rank stays quiet it is asked again.
_STACK_AGE_SECONDS = 3.0
# From the signal to the last line of all stacks, where the machine is not busy.
_WRITING_SECONDS = 0.15
# So often is a rank asked in vain before it counts as one that gives no stack: on a busy machine stacks come late.
_TIMES = 3
_MOST_STACKS = 16384


@dataclass(frozen=True)
class _Asked:
    """A rank was asked for its stacks."""

    when: float
    quiet_since: float
    process: int  # which listens; 0: none does
    start: int  # size of the file before
    times: int  # since it has answered; 0: it has


@dataclass(frozen=True)
class _Answer:
    """The newest whole stacks of a rank."""

    quiet_since: float
    text: str


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

    def expect(self, attempt: int, policy: Policy) -> None:
        """Watch the ranks of a new attempt, which were started, from now on."""
        self.forget()
        self._begin(attempt, policy.after(self._policy))
        self._again()

    def allow(self, fixed: Optional[float], evaluation: Optional[float]) -> None:
        """Let steps and evaluations take so many seconds from now on; None: as long as they did, with some patience."""
        self._policy = replace(self._policy, fixed=fixed, evaluation=evaluation)

    def forget(self) -> None:
        """Stop watching: the attempt has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, attempt: int, policy: Policy) -> None:
        self._attempt = attempt
        self._policy = policy
        self._quiet: Dict[int, Quiet] = {}
        self._asked: Dict[int, _Asked] = {}
        self._answers: Dict[int, _Answer] = {}
        self._suspected = False
        self._last = time.monotonic()

    def _again(self) -> None:
        self._timer = self._reactor.after(_LOOK_SECONDS, self._look)

    # --- looking ---

    def _look(self) -> None:
        now, pids = time.monotonic(), self._ranks.pids()
        away, self._last = now - self._last > _AWAY_SECONDS, now
        pages = self._ranks.files.read_all_pages()
        for rank, writer in self._ranks.files.writers().items():
            if is_alive(writer):
                pids = {**pids, rank: writer} if rank in pids else pids
            elif rank in pages:  # the program has ended, and what the command does since is not known
                pages[rank] = pages[rank]._replace(phase="done")
        ended = max((hangs.evaluated(self._quiet.get(rank), page, now) for rank, page in pages.items()), default=0.0)
        if ended > self._policy.evaluated:
            self._policy = replace(self._policy, evaluated=ended)
        looks = {
            rank: hangs.seen(self._quiet.get(rank), rank, page, stacks.is_stopped(pids[rank]), now)
            for rank, page in pages.items()
            if rank in pids
        }
        self._quiet = {rank: hangs.anew(quiet, now) if away else quiet for rank, quiet in looks.items()}
        # Ranks that were asked, and have been quiet ever since, are at something that is known.
        found = {rank: self._activity(quiet, now) for rank, quiet in self._quiet.items()}
        activities = {rank: activity for rank, activity in found.items() if activity is not None}
        self._quiet = {
            rank: hangs.heard(one, activities.get(rank), now, self._policy) for rank, one in self._quiet.items()
        }
        verdict = hangs.judge(self._quiet.values(), activities, self._policy, now)
        if verdict is not None and verdict.is_final(self._policy):
            self._convict(verdict, pids, now)
            return
        self._suspect(verdict, pids)
        for suspect in hangs.suspects(self._quiet.values(), self._policy, now):
            asked = self._asked_now(suspect)
            if asked is None or now >= asked.when + _STACK_AGE_SECONDS:
                self._ask(suspect, pids[suspect.rank], now)
        self._again()

    # --- asking ---

    def _activity(self, quiet: Quiet, now: float) -> Optional[str]:
        """Return what a rank is at, by its newest whole answer; if none came to several questions, by what there is."""
        answer, asked = self._answer(quiet), self._asked_now(quiet)
        if answer is not None:
            return stacks.activity(answer)
        if asked is None or now < asked.when + _WRITING_SECONDS or (asked.process and asked.times < _TIMES):
            return None
        return stacks.activity(self._dump(asked, quiet.rank))

    def _answer(self, quiet: Quiet) -> Optional[str]:
        """Return the newest whole stacks of a rank since it is quiet; None where there are none."""
        asked = self._asked_now(quiet)
        text = ""
        if asked is not None and asked.times:
            text = stacks.whole(self._dump(asked, quiet.rank), stacks.programs(asked.process))
        if asked is not None and text:
            self._asked[quiet.rank] = replace(asked, times=0)
            self._answers[quiet.rank] = _Answer(quiet.since, text)
        answer = self._answers.get(quiet.rank)
        return answer.text if answer is not None and answer.quiet_since == quiet.since else None

    def _asked_now(self, quiet: Quiet) -> Optional[_Asked]:
        asked = self._asked.get(quiet.rank)
        return asked if asked is not None and asked.quiet_since == quiet.since else None

    def _ask(self, quiet: Quiet, pid: int, now: float) -> None:
        """Ask a rank for its stacks. Where it has not answered yet, the late answer to an older question will do."""
        before, size = self._asked_now(quiet), stacks.size(self._ranks.files.stacks(quiet.rank))
        start, times = (before.start, before.times) if before is not None and before.times else (size, 0)
        self._asked[quiet.rank] = _Asked(now, quiet.since, stacks.ask(pid), start, times + 1)

    def _dump(self, asked: _Asked, rank: int) -> str:
        return stacks.read(self._ranks.files.stacks(rank), asked.start) if asked.process else ""

    # --- when somebody hangs ---

    def _suspect(self, verdict: Optional[HangVerdict], pids: Dict[int, int]) -> None:
        """Tell the operator, which hears all agents, when ranks begin or cease to wait, perhaps for another agent's."""
        if self._suspected == (verdict is not None):
            return
        self._suspected = verdict is not None
        report = self._report(verdict, pids) if verdict is not None else None
        self._say(
            "they may wait for another agent's ranks, and live on until all agents say that theirs wait, too"
            if report
            else "no rank waits too long any more"
        )
        self._emit(supervise.RanksWait(report))

    def _convict(self, verdict: HangVerdict, pids: Dict[int, int], now: float) -> None:
        """Ask for the stacks of all ranks at this moment, then report."""
        for quiet in self._quiet.values():
            if quiet.stopped is None:
                self._ask(quiet, pids[quiet.rank], now)
        self._timer = self._reactor.after(
            _WRITING_SECONDS, lambda: self._emit(supervise.RanksHung(self._report(verdict, pids)))
        )

    def _report(self, verdict: HangVerdict, pids: Dict[int, int]) -> ExitReport:
        texts = {rank: self._last_word(quiet, pids[rank]) for rank, quiet in self._quiet.items()}
        own = texts[verdict.rank]
        awaits = "; it waits for its data workers, so a sample is not made" if stacks.awaits_data(own) else ""
        sentence = f"{hangs.sentence(verdict)}{awaits}{_nor_of(verdict, texts)}"
        self._say(f"{sentence} (limit {verdict.limit:.1f} s; spec.failurePolicy.{verdict.field(self._policy)} sets it)")
        for rank, text in texts.items():
            self._say(f"stacks of rank {rank}:\n{text.rstrip()}")
        clipped = "".join(
            f"rank {rank}:\n{stacks.main_first(text[-stacks.MOST_PER_RANK :])}" for rank, text in texts.items()
        )
        return ExitReport(
            attempt=self._attempt,
            rank=verdict.rank,
            step=verdict.page.step,
            error=ErrorReport("Hang", sentence, _place(own), own[-rank_errors.MOST_TRACEBACK :], time.time()),
            hung=True,
            overdue_seconds=verdict.page.overdue_seconds(time.monotonic()),
            stacks=clipped[:_MOST_STACKS],
            waiting=verdict.waiting,
        )

    def _last_word(self, quiet: Quiet, pid: int) -> str:
        """Return the stacks of a rank, or as much of them as there is."""
        asked = self._asked_now(quiet)
        part = self._dump(asked, quiet.rank) if asked is not None else ""
        return self._answer(quiet) or part or stacks.where_in_kernel(pid)


def _nor_of(verdict: HangVerdict, texts: Dict[int, str]) -> str:
    """Return that others may be the cause as well, where they give no stacks either."""
    others = [rank for rank, text in texts.items() if rank != verdict.rank and not stacks.main_thread(text)]
    if verdict.activity != stacks.UNKNOWN or not others:
        return ""
    named = ", ".join(f"rank {rank}" for rank in others)
    return f"; no Python stack could be had of it, nor of {named}, so each of them may be the one that hangs"


def _place(dump: str) -> str:
    """Return the innermost frame of the user's own code, else the innermost of all."""
    frames = stacks.main_thread(dump)
    for file, line, name in [frame for frame in frames if rank_errors.is_users(frame[0])] or frames:
        return f"{file}:{line} in {name}"
    return ""
