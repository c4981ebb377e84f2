"""Read steps, loss and total from what a script prints, by the expressions of spec.training.progress.

The writing thread of `output` keeps the newest of what came; this looks at it a few times a second, in the main thread,
and the result lies over the rank's progress page (`files`).

An expression is the user's, and so are the lines: one that goes back and forth for ever must not stop the agent. So
little of a long line is looked at, and an alarm that counts the processor's time ends a search, after which the
expression is dropped. The alarm's handler runs in the main thread only, which Python's matcher asks for signals every
few thousand steps.
"""

from __future__ import annotations

import math
import re
import signal
import time
import warnings
from dataclasses import dataclass, replace
from types import FrameType
from typing import Callable, Dict, List, Mapping, Optional, Pattern, Tuple

from trainmaster.wire.bounded_json import LARGEST_COUNT
from trainmaster.wire.progress_page import ProgressPage

from trainmaster_trainer.agent.reactor import Reactor, Timer
from trainmaster_trainer.script_progress import FirstStep, StepPace

_LOOK_SECONDS = 0.2
_MOST_LINE = 1000  # characters that are looked at, of the beginning of a line, and of its end
_MOST_LINES = 200  # the newest of each look
_SEARCH_SECONDS = 0.1  # of the processor, for one look at one rank's lines
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
_ENDS = re.compile(r"[\r\n]+")  # a progress bar ends its lines with a carriage return
_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")  # and where the cursor goes: they stand between a word and its number


class TooSlowError(Exception):
    """TooSlowError says that a search took too long."""


@dataclass(frozen=True)
class Said:
    """Said is what a rank has printed of its progress so far."""

    loss: float = math.nan
    step: Optional[int] = None
    total: int = 0
    first: int = 0  # the first step that it printed in this attempt
    when: float = 0.0  # of the monotonic clock: the newest line that had any of it
    seconds: float = math.nan  # a step
    steps_per_second: float = math.nan
    start_seconds: float = math.nan  # until its first step began


def overlaid(page: ProgressPage, said: Optional[Said], batch_size: int) -> ProgressPage:
    """Return the page with what the rank has printed: what the job names an expression for goes before the rest."""
    if said is None or not said.when:
        return page
    if page.attempt <= 1 and page.resumed_step < 0:
        page = page._replace(resumed_step=0)
    page = page._replace(
        updated=max(page.updated, said.when),
        phase="train",
        loss=page.loss if math.isnan(said.loss) else said.loss,
        start_seconds=said.start_seconds if math.isnan(page.start_seconds) else page.start_seconds,
        total_steps=said.total or page.total_steps,
    )
    if said.step is None:
        return page
    speed = said.steps_per_second * batch_size if batch_size else math.nan
    # The first line after a restart tells where the script goes on.
    resumed = said.first if page.attempt > 1 else 0
    return page._replace(
        step=said.step, step_seconds=said.seconds, samples_per_second=speed, resumed_step=min(resumed, said.step)
    )


class Search:
    """Search finds what expressions name in lines, within bounds."""

    def __init__(self, expressions: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._patterns: Dict[str, Pattern[str]] = {}
        self._say = say
        self._searching = False
        for name, text in expressions.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._patterns[name] = re.compile(text)
            except (re.error, OverflowError, RecursionError) as error:  # another Python than that of `check`
                say(f"spec.training.progress.{name} is no regular expression for this Python: {error}")
        if self._patterns:
            signal.signal(signal.SIGVTALRM, self._alarm)

    @property
    def active(self) -> bool:
        """Return whether there is anything to look for."""
        return bool(self._patterns)

    def newest(self, text: str) -> Dict[str, str]:
        """Return by name what each expression's group has matched in the last line that has it."""
        lines = [line for line in _ENDS.split(_COLOURS.sub("", text))[-_MOST_LINES:] if line]
        # From where on each is searched, the newest first: a long one once more at its end.
        places = [(line, begin) for line in reversed(lines) for begin in sorted({0, max(0, len(line) - _MOST_LINE)})]
        found = {name: self._in_time(name, pattern, places) for name, pattern in [*self._patterns.items()]}
        return {name: value for name, value in found.items() if value is not None}

    def _in_time(self, name: str, pattern: Pattern[str], places: List[Tuple[str, int]]) -> Optional[str]:
        try:
            return self._search(pattern, places)
        except TooSlowError:
            del self._patterns[name]
            self._say(
                f"spec.training.progress.{name} takes too long on a line of the output and is dropped: "
                "leave out repetitions within repetitions"
            )
        except (IndexError, RecursionError):
            pass
        return None

    def _search(self, pattern: Pattern[str], places: List[Tuple[str, int]]) -> Optional[str]:
        self._searching = True
        signal.setitimer(signal.ITIMER_VIRTUAL, _SEARCH_SECONDS)
        try:
            for line, begin in places:
                end = begin + _MOST_LINE
                match = pattern.search(line, begin, end)
                if match is None or match.group(1) is None:
                    continue
                # What ends at a bound within the line may be a part of a number.
                if (begin == 0 or match.start(1) > begin) and (end >= len(line) or match.end(1) < end):
                    return match.group(1)
            return None
        finally:
            self._searching = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _alarm(self, _number: int, _frame: Optional[FrameType]) -> None:
        if self._searching:
            raise TooSlowError


class Reader:
    """Reader looks at the output of the ranks of one attempt after another."""

    def __init__(
        self,
        search: Search,
        reactor: Reactor,
        take: Callable[[int, bool], str],  # what a rank has printed since; at its end, half a line too
        tell: Callable[[int, Said], None],
    ) -> None:
        self._search = search
        self._reactor = reactor
        self._take = take
        self._tell = tell
        self._said: Dict[int, Said] = {}
        self._paces: Dict[int, StepPace] = {}
        self._first_steps: Dict[int, FirstStep] = {}
        self._timer: Optional[Timer] = None

    def expect(self, ranks: range) -> None:
        """Look from now on at these ranks of a new attempt, which have printed nothing yet."""
        if not self._search.active:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._said = {rank: Said() for rank in ranks}
        self._paces = {rank: StepPace() for rank in ranks}
        self._first_steps = {rank: FirstStep(time.monotonic()) for rank in ranks}
        self._again()

    def look(self, rank: int, at_the_end: bool = False) -> None:
        """Look at what a rank has printed since the last look."""
        text = self._take(rank, at_the_end) if self._search.active and rank in self._said else ""
        found = self._search.newest(text) if text else {}
        before = self._said.get(rank, Said())
        said = self._with(before, rank, found) if found else before
        if said != before:
            self._said[rank] = said
            self._tell(rank, said)

    def _again(self) -> None:
        self._timer = self._reactor.after(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        for rank in self._said:
            self.look(rank)
        self._again()

    def _with(self, before: Said, rank: int, found: Mapping[str, str]) -> Said:
        now, pace, first_step = time.monotonic(), self._paces[rank], self._first_steps[rank]
        step, total = (count(found.get(name, "")) for name in ("step", "total"))
        said = replace(before, when=now)
        if "loss" in found and (loss := figure(found["loss"])) is not None:
            said = replace(said, loss=loss)
        if total is not None and 0 < total <= LARGEST_COUNT:
            said = replace(said, total=int(total))
        if step is None or not 0 <= step <= LARGEST_COUNT or int(step) == before.step:
            return said
        pace.note(int(step), int(step) - (before.step or 0), now)
        if step > 0:
            first_step.note(now)
        first = int(step) if before.step is None else before.first
        return replace(
            said,
            step=int(step),
            first=first,
            seconds=pace.seconds,
            steps_per_second=pace.steps_per_second,
            start_seconds=first_step.start_seconds,
        )


def figure(text: str) -> Optional[float]:
    """Return a loss as it was printed, infinity for any that is not finite; None where its number cannot be told.

    A comma may be the decimal one: 1,234 is either of two numbers.
    """
    if _DECIMAL_COMMA.fullmatch(text) and not _GROUPED.fullmatch(text):
        text = text.replace(",", ".")
    elif _GROUPED.fullmatch(text) and ("." in text or text.count(",") > 1):
        text = text.replace(",", "")
    value = _number(text)
    return math.inf if value is not None and not math.isfinite(value) else value


def count(text: str) -> Optional[float]:
    """Return a number of steps as it was printed, perhaps with a comma before each three digits; None if it is none."""
    value = _number(text.replace(",", "") if _GROUPED.fullmatch(text) else text)
    return value if value is not None and math.isfinite(value) else None


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None
