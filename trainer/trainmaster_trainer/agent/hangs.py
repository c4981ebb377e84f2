"""Decide which rank hangs, by what is seen of every rank several times a second. Pure.

A rank is quiet while its progress page does not change. How long it may be quiet depends on what it is at:

- stopped (SIGSTOP): that is proof; it is named before max(3 s, 5 median steps) are over, whatever its phase
- outside of any collective, in a step: longer than any jitter, so that an endless loop is told from a slow step
- waiting for peers: a little longer still, so that the agent of the culprit speaks first. Peers may be at something
  slow that they have declared (a save), so until a step has ended after such a phase, patience is that of the phase
  (where peers are other agents' as well, these say nothing meanwhile, and that will do); and while a rank of the same
  agent is at something slow, or has not told yet what it is at, no wait is too long
- saving, compiling, loading: generous. A script does not say so: in its own code it may be at any of it
- evaluating: as generous the first time, then several times as long as any evaluation before. Between two batches of an
  evaluation that tells of them: as long as a young step, or several times as long as between any two before

What a rank was at before counts for it: the time in which it waited, saved or compiled is not time in its own code.

The limits follow the job's own steps (docs/decisions/0060-hangs.md has the reasons), or are `hangSeconds`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Dict, Iterable, List, Optional, Tuple

from trainmaster.wire.progress_page import ProgressPage

from trainmaster_trainer.agent import stacks

SHORTEST_SECONDS = 3.0  # for a rank that is stopped, which is proof
QUIET_SECONDS = 12.0  # for one that is merely quiet: a step may hold the user's own validation or logging
MEDIAN_STEPS = 5.0  # for a rank that is stopped
JITTER_STEPS = 15.0  # a step may take ten times as long as the others, times the smallest share below
LONGEST_STEPS = 2.0  # and twice as long as any of late
GENEROUS_SECONDS = 3600.0
EVALUATION_SECONDS = 600.0  # at least, for an evaluation that is not the first: the next may be a larger one
LONGEST_EVALUATIONS = 5.0  # and so many times as long as any so far
LONGEST_BATCHES = 5.0  # times the longest of an evaluation so far, for another one
SCRIPT_SECONDS = 1800.0  # for a script in its own code: it may evaluate or save
SCRIPT_WAIT_SECONDS = 60.0  # for one whose ranks all wait, whenever they are looked at: an evaluation waits, too
YOUNG_STEPS = 5  # of a try: what is lazy, imported or compiled at the first use comes now
YOUNG_SECONDS = 600.0  # before the first step of a try
YOUNG_STEP_SECONDS = 60.0
# Shares of the limit: who is surely the cause speaks first, who may be a victim last.
_CLOSER = 0.75  # of the limit: then its stack is asked for
_SHARES = {"stopped": 0.65, stacks.OUTSIDE: 0.8, stacks.UNKNOWN: 0.9, stacks.WAITING: 1.0}
STOPPED = "stopped"
_JUDGED = (stacks.OUTSIDE, stacks.UNKNOWN, stacks.WAITING)
_SLOW = (stacks.SAVING, stacks.COMPILING)
_NO_FAULT = (*_SLOW, stacks.WAITING)
_NEVER = float("-inf")
_RANKING = {STOPPED: 0, stacks.OUTSIDE: 1, stacks.UNKNOWN: 2, stacks.WAITING: 3}
_LOADING = "load"
_IN_A_STEP = "train"
_EVALUATING = "evaluate"


@dataclass(frozen=True)
class Policy:
    """Policy is what the job wants. `fixed`: its `hangSeconds`. `evaluation`: its `evaluationSeconds`.

    `independent`: members come and go; peers may be away.

    `shared`: ranks of other agents are in the group as well. `script`: a program of the user's, which does not say when
    it evaluates or saves. `world_size`: how many ranks there are. `evaluated`: seconds of the longest evaluation that
    has ended; 0: none has.
    """

    fixed: Optional[float] = None
    independent: bool = False
    shared: bool = False
    script: bool = False
    world_size: int = 0
    evaluated: float = 0.0
    evaluation: Optional[float] = None

    def after(self, other: Policy) -> Policy:
        """Return this policy, with what was learned under another one for the same ranks."""
        is_same = replace(other, evaluated=self.evaluated) == self
        return replace(self, evaluated=other.evaluated) if is_same else self

    @property
    def patient(self) -> bool:
        """Return whether a rank in its own code may be at anything, and others may wait for it."""
        return self.script and (self.fixed is None or self.evaluation is not None)


@dataclass(frozen=True)
class Quiet:
    """Quiet is a rank, and since when its page has not changed (by the watcher's own clock, not by the page's)."""

    rank: int
    page: ProgressPage
    since: float
    stopped: Optional[float] = None  # since when it has been seen to be stopped
    steps: int = 0  # that have ended in this try
    after_pause: bool = True  # no step has ended since a phase in which peers may take long
    slow: float = _NEVER  # when it was last seen at something slow, for which others may wait
    no_fault: float = _NEVER  # when its stack was last that of one who is not the cause
    entered: float = 0.0  # since when it is in its phase
    longest: float = 0.0  # seconds that a batch of its evaluation has taken


@dataclass(frozen=True)
class HangVerdict:
    """HangVerdict says which rank hangs, at what, for how long, and beyond which limit."""

    rank: int
    activity: str
    seconds: float
    limit: float
    page: ProgressPage

    @property
    def waiting(self) -> bool:
        """Return whether the rank only waits: no rank here is the cause, as far as can be seen from here."""
        return self.activity == stacks.WAITING

    def field(self, policy: Policy) -> str:
        """Return the field of spec.failurePolicy that sets this limit."""
        evaluates = self.page.phase == _EVALUATING and not self.page.tried
        may_evaluate = policy.patient and self.page.phase == _IN_A_STEP and not self.waiting
        return "evaluationSeconds" if self.activity in _JUDGED and (evaluates or may_evaluate) else "hangSeconds"

    def is_final(self, policy: Policy) -> bool:
        """Return whether it needs no word from other agents: one of their ranks may be at something slow."""
        return not (self.waiting and policy.shared and self.seconds < GENEROUS_SECONDS)


def seen(before: Optional[Quiet], rank: int, page: ProgressPage, stopped: bool, now: float) -> Quiet:
    """Return the rank after another look at its page and its process."""
    since = (before.stopped if before is not None and before.stopped is not None else now) if stopped else None
    if before is None:
        return Quiet(rank, page, now, since, _taken(page), entered=now)
    # Nothing was written to the page in between.
    if (page.updated, page.step, page.phase) == (before.page.updated, before.page.step, before.page.phase):
        return replace(before, stopped=since)
    # It may resume at any step, and take some, between two looks.
    ended = _taken(page) if before.page.phase == _LOADING else max(0, page.step - before.page.step)
    pause = page.phase != _IN_A_STEP or (before.after_pause and not ended)
    entered, longest = before.entered, max(before.longest, now - before.since if before.page.tried else 0.0)
    if page.phase != before.page.phase:
        entered, longest = now, 0.0
    return replace(
        before, page=page, since=now, stopped=since, steps=before.steps + ended, after_pause=pause, entered=entered,
        longest=longest,
    )  # fmt: skip


def _taken(page: ProgressPage) -> int:
    """Return how many steps a rank has taken in this try, as far as it says from which one it went on."""
    return max(0, page.step - page.resumed_step) if page.resumed_step >= 0 and page.phase != _LOADING else 0


def evaluated(before: Optional[Quiet], page: ProgressPage, now: float) -> float:
    """Return how long the evaluation took that has ended when a rank has this page; 0 where none has."""
    has_ended = before is not None and before.page.phase == _EVALUATING and page.phase != _EVALUATING
    return now - before.entered if before is not None and has_ended else 0.0


def anew(quiet: Quiet, now: float) -> Quiet:
    """Return the rank as quiet, or stopped, from now on only: the watcher itself was away."""
    return replace(quiet, since=now, stopped=None if quiet.stopped is None else now)


def heard(quiet: Quiet, activity: Optional[str], now: float, policy: Policy) -> Quiet:
    """Return the rank when its newest stack says that it is at `activity`; None: it has not been asked."""
    declared = _tells(quiet) and quiet.page.phase != _IN_A_STEP and activity != stacks.WAITING
    slow_ones = (*_SLOW, stacks.OUTSIDE, stacks.UNKNOWN) if policy.patient else _SLOW
    slow = now if declared or activity in slow_ones else quiet.slow
    return replace(quiet, slow=slow, no_fault=now if activity in _NO_FAULT else quiet.no_fault)


def limit(quiet: Quiet, activity: str, policy: Policy) -> float:
    """Return the seconds after which a rank that is at `activity` hangs."""
    page = quiet.page
    median = page.step_seconds if math.isfinite(page.step_seconds) else 0.0
    if activity == STOPPED:
        return _SHARES[STOPPED] * (policy.fixed or max(SHORTEST_SECONDS, MEDIAN_STEPS * median))
    if activity in _SHARES and page.phase == _EVALUATING:
        return _of_an_evaluation(quiet, activity, policy, median)
    if activity not in _SHARES or page.phase != _IN_A_STEP:
        return max(GENEROUS_SECONDS, policy.fixed or 0.0)
    if activity == stacks.WAITING and (policy.independent or (quiet.after_pause and not policy.shared)):
        return max(GENEROUS_SECONDS, policy.fixed or 0.0)
    if quiet.steps == 0:
        return max(
            GENEROUS_SECONDS if policy.patient and activity != stacks.WAITING else YOUNG_SECONDS, policy.fixed or 0.0
        )
    learned = policy.fixed or _learned(quiet, median)
    if policy.patient and activity == stacks.WAITING:
        learned = policy.fixed or max(SCRIPT_WAIT_SECONDS, learned)
    elif policy.patient:
        learned = max(policy.evaluation or SCRIPT_SECONDS, learned)
    return _SHARES[activity] * learned


def _of_an_evaluation(quiet: Quiet, activity: str, policy: Policy, median: float) -> float:
    """Return the limit for one that evaluates. Its first batch is as young as the first step of a try."""
    if policy.independent and activity == stacks.WAITING:
        return max(GENEROUS_SECONDS, policy.fixed or 0.0)
    if quiet.page.tried == 1:
        return _SHARES[activity] * max(YOUNG_SECONDS, policy.fixed or 0.0)
    if quiet.page.tried:
        least = policy.fixed or max(YOUNG_STEP_SECONDS, _learned(quiet, median))
        return _SHARES[activity] * max(least, LONGEST_BATCHES * quiet.longest)
    if policy.evaluation:
        return _SHARES[activity] * policy.evaluation
    if policy.evaluated and not policy.independent:
        least = policy.fixed or EVALUATION_SECONDS
        return _SHARES[activity] * max(least, LONGEST_EVALUATIONS * policy.evaluated)
    return max(GENEROUS_SECONDS, policy.fixed or 0.0)


def _learned(quiet: Quiet, median: float) -> float:
    longest = quiet.page.longest_seconds if math.isfinite(quiet.page.longest_seconds) else 0.0
    least = QUIET_SECONDS if quiet.steps >= YOUNG_STEPS else YOUNG_STEP_SECONDS
    return max(least, JITTER_STEPS * median, LONGEST_STEPS * longest)


def suspicious(quiet: Quiet, policy: Policy, now: float) -> bool:
    """Return whether a rank has been quiet for so long that its stack is to be asked for."""
    least = min(limit(quiet, activity, policy) for activity in (stacks.OUTSIDE, stacks.WAITING))
    return _tells(quiet) and now - quiet.since >= _CLOSER * least


def suspects(ranks: Iterable[Quiet], policy: Policy, now: float) -> List[Quiet]:
    """Return the ranks to ask for stacks, which costs them a moment: suspicious ones, and those they may wait for."""
    ranks = [quiet for quiet in ranks if quiet.stopped is None and _tells(quiet)]
    found = {quiet.rank for quiet in ranks if suspicious(quiet, policy, now)}
    return [quiet for quiet in ranks if quiet.rank in found or (found and quiet.page.phase == _IN_A_STEP)]


def judge(ranks: Iterable[Quiet], activities: Dict[int, str], policy: Policy, now: float) -> Optional[HangVerdict]:
    """Return the cause once a rank is beyond its limit, or None. Ranks without an activity were not looked at yet."""
    ranks = [*ranks]
    slow = max((quiet.slow for quiet in ranks), default=_NEVER)
    beyond = [found for quiet in ranks for found in _beyond(quiet, activities.get(quiet.rank), slow, policy, now)]
    if any(suspicious(quiet, policy, now) and quiet.rank not in activities for quiet in ranks if not quiet.stopped):
        beyond = [one for one in beyond if not one.waiting]  # the cause may be slow to answer
    return min(beyond, key=lambda one: (_RANKING.get(one.activity, 9), one.page.step, one.rank), default=None)


def _beyond(quiet: Quiet, activity: Optional[str], slow: float, policy: Policy, now: float) -> Tuple[HangVerdict, ...]:
    if quiet.stopped is not None:
        activity = STOPPED
    elif activity is None or not _tells(quiet):
        return ()
    most = limit(quiet, activity, policy)
    seconds = now - _counted_from(quiet, activity, slow if most < GENEROUS_SECONDS else _NEVER)
    return (HangVerdict(quiet.rank, activity, seconds, most, quiet.page),) if seconds >= most else ()


def _counted_from(quiet: Quiet, activity: str, slow: float) -> float:
    """Return since when a rank counts as at `activity`. `slow`: until when any rank here was at something slow."""
    if quiet.stopped is not None:
        return quiet.stopped
    if activity == stacks.WAITING:
        return max(quiet.since, slow)
    return max(quiet.since, quiet.no_fault) if activity in (stacks.OUTSIDE, stacks.UNKNOWN) else quiet.since


def _tells(quiet: Quiet) -> bool:
    """Return whether a rank's page says what the rank does: that of a script that takes no steps does not."""
    return quiet.page.updated > 0 and quiet.page.phase != "done"


WORDS = {
    STOPPED: "is stopped (SIGSTOP)",
    stacks.OUTSIDE: "does not come to the end of its step",
    stacks.UNKNOWN: "does not come to the end of its step",
    stacks.WAITING: "waits for other ranks without end",
}


def sentence(verdict: HangVerdict) -> str:
    """Return a sentence for the log and the restart ledger."""
    what = WORDS.get(verdict.activity, f"is {verdict.activity} without end")
    page = verdict.page
    if page.phase == _EVALUATING:
        what = what.replace("its step", "its evaluation")
    return (
        f"rank {verdict.rank} {what}: nothing from it for {verdict.seconds:.1f} s in phase {page.phase} "
        f"after step {page.step}"
    )
