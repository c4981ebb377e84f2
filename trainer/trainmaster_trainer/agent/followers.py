"""Start the followers of this job's metrics.jsonl, one process for each tracker, and end them with the job.

Only the agent of the rank that writes the file has any. They begin some seconds after the ranks, whose start they are
not to hold up, and are the first to go where memory is short. Whatever becomes of them, training goes on.
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Set

from trainmaster.wire import names, trackers
from trainmaster.wire.messages import Roster

from trainmaster_trainer.agent.agent_settings import AgentSettings
from trainmaster_trainer.agent.attempt_files import Files
from trainmaster_trainer.agent.reactor import Reactor, Timer

if TYPE_CHECKING:
    from trainmaster_trainer.agent.follower_process import FollowerProcess

_BEGIN_SECONDS = 2.0  # after the ranks
_END_SECONDS = 25.0  # for what is left to tell at the end of the job, where a follower comes no further meanwhile
_LONGEST_END_SECONDS = 50.0  # where it does; where its tracker is away:
_END_SECONDS_AWAY = 3.0
_LOOK_SECONDS = 1.0
_SAMPLE_SECONDS = 1.0
LEFT, FINISHED, FAILED = "left", "finished", "failed"  # how the job has ended
_ENDS = {0: FINISHED, 1: FAILED}  # by the exit code in the orders

Changed = Callable[[], None]


class Followers:
    """Followers is all of them. `problems` says what is wrong, by the trackers' titles; any thread may read it."""

    def __init__(
        self, settings: AgentSettings, reactor: Reactor, files: Files, say: Callable[[str], None], changed: Changed
    ) -> None:
        self.problems: Dict[str, str] = {}
        self._settings = settings
        self._reactor = reactor
        self._say = say
        self._changed = changed
        self._timer: Optional[Timer] = None  # of the beginning
        self._bound: Optional[Timer] = None  # of the end
        self._ended = 0.0  # when the job did
        self._followers: List[FollowerProcess] = []
        self._then: Optional[Callable[[], None]] = None
        self._files = files
        self._try = (0, 0)  # attempt and start
        self._seen = 0  # the step that was told last of a script that reports no lines itself

    def expect(self, roster: Roster, start: int) -> None:
        """Begin soon, if a rank of this replica writes the file in this attempt, and has not begun; else end."""
        self._try, self._seen = (roster.attempt, start), 0
        if not _writes(self._settings, roster):
            self.end(names.EXIT_TERMINATED, lambda: None)
        elif self._timer is None and not self._followers:
            self._timer = self._reactor.after(_BEGIN_SECONDS, self._begin)

    def end(self, exit_code: int, then: Callable[[], None]) -> None:
        """Have what is left told, but not for long, and call `then`."""
        if self._timer is not None:
            self._timer.cancel()
            if exit_code in _ENDS:
                self._begin()  # the job was short
        self._then = then
        self._tell_page()
        for follower in self._followers:
            follower.finish(_ENDS.get(exit_code, LEFT))
        if exit_code in _ENDS:
            self._ended = time.monotonic()
            self._bound = self._reactor.after(_LOOK_SECONDS, self._give_up_on_those_stuck)
        else:
            self._bound = self._reactor.after(_END_SECONDS_AWAY, self._give_up)
        self._reactor.after(_END_SECONDS_AWAY, self._give_up_on_those_away)
        self._look()

    def _begin(self) -> None:
        self._timer = None
        chosen = trackers.chosen(self._settings.plan.trackers, os.environ)
        if chosen:  # an agent without trackers does without 2 MB of modules
            from trainmaster_trainer.agent.follower_process import FollowerProcess  # noqa: PLC0415
        for name in chosen:
            self._followers.append(FollowerProcess(name, self._settings, self._reactor, self._heard, self._look))
        if self._followers and self._settings.plan.command:
            self._sample()

    def _sample(self) -> None:
        """Tell what the page of a script's first rank says: steps that were counted, or read from its output."""
        self._tell_page()
        self._reactor.after(_SAMPLE_SECONDS, self._sample)

    def _tell_page(self) -> None:
        page = self._files.read_pages(*self._try).get(0)
        if page is None or page.step <= self._seen or page.resumed_step < 0:  # steps since a restart are no steps
            return
        self._seen = page.step
        figures = {"samples_per_second": page.samples_per_second, "step_seconds": page.step_seconds}
        point = {
            "step": page.step,
            "attempt": page.attempt,
            "loss": page.loss if math.isfinite(page.loss) else None,
            "figures": {name: value for name, value in figures.items() if math.isfinite(value)},
        }
        for follower in self._followers:
            follower.say({"point": point})

    def _heard(self, title: str, problem: str) -> None:
        """Note what a follower says."""
        before = self.problems.get(title, "")
        self.problems = {**self.problems, title: problem}
        if not problem:
            self.problems.pop(title)
        if problem != before:
            self._say(f"{title}: {problem}; training goes on" if problem else f"{title} has all lines again")
            self._changed()
            if problem and self._then is not None:  # the job was so short that this is the first word of it
                self._reactor.after(_END_SECONDS_AWAY, self._give_up_on_those_away)

    def _look(self) -> None:
        """See whether all have ended that are to."""
        if self._then is not None and all(follower.has_ended for follower in self._followers):
            if self._bound is not None:
                self._bound.cancel()
            then, self._then, self._followers = self._then, None, []
            then()

    def _give_up_on_those_stuck(self) -> None:
        now = time.monotonic()
        self._give_up({one.title for one in self._followers if is_stuck(self._ended, one.worked, now)})
        self._bound = self._reactor.after(_LOOK_SECONDS, self._give_up_on_those_stuck) if self._then else None

    def _give_up_on_those_away(self) -> None:
        self._give_up({*self.problems})

    def _give_up(self, titles: Optional[Set[str]] = None) -> None:
        """End those of these titles that have not ended; None: all of them."""
        if self._then is None:
            return
        for follower in self._followers:
            if not follower.has_ended and (titles is None or follower.title in titles):
                self._say(f"{follower.title} was not told of the last steps; metrics.jsonl has them")
                follower.kill()
        self._look()


def is_stuck(ended: float, worked: float, now: float) -> bool:
    """Return whether a follower is not waited for any more that last came further at `worked`, after the job's end."""
    return now >= min(max(ended, worked) + _END_SECONDS, ended + _LONGEST_END_SECONDS)


def _writes(settings: AgentSettings, roster: Roster) -> bool:
    """Return whether a rank of this replica writes metrics.jsonl: rank 0, or of a task with servers the first one."""
    if settings.plan.task and settings.plan.strategy == "ParameterServer":
        return settings.role == names.PARAMETER_SERVER and settings.index == 0
    first = next((member for member in roster.members if member.ranks and member.first_rank == 0), None)
    return first is not None and (first.role, first.index) == (settings.role, settings.index)
