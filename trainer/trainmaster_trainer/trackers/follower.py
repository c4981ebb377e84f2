"""Run a follower: the process that tells one tracker what metrics.jsonl says, as it grows.

Its argument is a file with the subject; lines of JSON come from the agent: points that it has seen itself, and in
the end how the job has ended. Others go to it: what is wrong, or that all is well again, and that a call has succeeded.
The tracker may be away or hang for as long as it likes: the lines are in the file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainmaster.wire import trackers as table
from trainmaster.wire.metric_lines import METRICS

from trainmaster_trainer.script_lines import ScriptLines
from trainmaster_trainer.trackers import code_version, mlflow, open_telemetry, tensorboard, wandb
from trainmaster_trainer.trackers.points import TrackedJob, Tracker, TrackerError
from trainmaster_trainer.trackers.tail import FollowerState, News, Tail

LEFT = "left"  # the job may go on later
_LOOK_SECONDS = 1.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
_HANG_SECONDS = 60.0  # a call that lasts longer is told of
_SAVE_SECONDS = 10.0
_LONGEST_TEXT = 600
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of an object: another one with each try
_MAKERS: dict[str, Callable[[TrackedJob], Tracker]] = {
    "tensorBoard": tensorboard.EventFiles,
    "mlflow": mlflow.MLflowRun,
    "wandb": wandb.WandbRun,
    "openTelemetry": open_telemetry.Collector,
}


class Follower:
    """Follower tells one tracker. `report` is given what is wrong, in a sentence, or "" where all is well again.

    `works` is called when it has come further.
    """

    def __init__(self, subject: TrackedJob, report: Callable[[str], None], works: Callable[[], None]) -> None:
        self._subject = subject
        self._report = report
        self._works = works
        self._state_file = subject.own / "state.json"
        self._lines: ScriptLines | None = None
        self._tail = Tail(subject)
        self._tracker: Tracker | None = None
        self._saved = FollowerState(subject.uid)
        self._next_save = 0.0
        self._unread = False  # the file could not be read at the last look
        self.end = ""  # how the job has ended, once it has
        self.ended = threading.Event()
        self.busy_since: float | None = None  # a call of the tracker's
        self._lines_attempt = 0

    def run(self) -> None:
        """Tell all that comes until the job has ended, and what is left then."""
        saved = FollowerState.read(self._state_file)
        if saved.uid == self._subject.uid:
            self._saved = saved
            self._tail.marks = saved.marks
        while True:
            is_last = self.ended.is_set()
            while not (news := self._read()).is_empty:
                self._until_done(lambda news=news: self._tell(news))  # type: ignore[misc]
            if is_last:
                break
            self.ended.wait(_LOOK_SECONDS)
        if self._tracker is not None:
            self._until_done(self._finish)
            self._save()

    def counted(self, point: dict[str, Any]) -> None:
        """Keep a point of a script that reports none itself, as the agent has seen it: as a line in a file of ours."""
        if (self._subject.home / METRICS).exists():  # the script reports
            return
        if self._lines is None or self._lines_attempt != point["attempt"]:
            self._lines_attempt = point["attempt"]
            self._lines = ScriptLines(self._subject.own, self._lines_attempt)
        loss, figures = point["loss"], point["figures"]
        self._lines.add(point["step"], loss, figures, lambda _, text: self._report(text))

    def _read(self) -> News:
        try:
            news = self._tail.news()
        except OSError as error:
            self._unread = True
            self._report(f"metrics.jsonl cannot be read: {error}")
            return News([])
        if self._unread:
            self._unread = False
            self._report("")
        return news

    def _until_done(self, what: Callable[[], None]) -> None:
        """Do it, again and again where it fails; who waits for the end of this process bounds how long."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            self.busy_since = time.monotonic()
            try:
                what()
            except Exception as error:  # noqa: BLE001 whatever a library may raise
                text = table.without_login(_ADDRESS.sub("", " ".join(str(error).split())))[:_LONGEST_TEXT]
                said = text if isinstance(error, TrackerError) else f"{type(error).__name__}: {text}"
                cure = table.cure(self._subject.tracker, said)
                self._report(f"{said.rstrip('.: ')}: {cure}" if cure else said)
            else:
                self.busy_since = None
                self._report("")
                self._works()
                return
            self.busy_since = None
            # Once the job has ended, or as it ends, the wait is only a moment.
            if self.ended.is_set():
                time.sleep(min(pause, _FIRST_PAUSE_SECONDS))
            else:
                self.ended.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _tell(self, news: News) -> None:
        tracker = self._tracker or self._begun()
        if news.cut_after is not None:
            tracker.cut(news.cut_after)
        for point in news.points:
            if point.attempt > self._saved.attempt:
                if self._saved.attempt:
                    tracker.restarted(point)
                self._saved.attempt = point.attempt
        tracker.tell(news.points)
        self._tail.note_told(news)
        self._saved.marks = news.marks
        if time.monotonic() >= self._next_save:
            self._save()

    def _begun(self) -> Tracker:
        traits = table.TRACKERS[self._subject.tracker]
        if why := table.bad_url(self._subject.tracker, os.environ):
            raise TrackerError(f"{why}; correct it, or set url in spec.training.trackers.{self._subject.tracker}")
        if traits.library:
            try:
                importlib.import_module(traits.library)
            except ImportError as error:
                what = f"needs the library {traits.library}, which {sys.executable} does not have ({error})"
                raise TrackerError(f"{what}: {sys.executable} -m {traits.install}") from None
        self._works()  # an import takes long where the machine is busy
        tracker = _MAKERS[self._subject.tracker](self._subject)
        self._saved.run = tracker.begin(self._saved.run)
        self._tracker = tracker
        self._save()
        return tracker

    def _finish(self) -> None:
        if self._tracker is not None:
            self._tracker.finish(self.end)

    def _save(self) -> None:
        self._next_save = time.monotonic() + _SAVE_SECONDS
        try:
            self._saved.write(self._state_file)
        except OSError as error:
            self._report(f"how far it was told cannot be kept in {self._state_file}: {error}")


class Reports:
    """Reports writes to the agent, each text once."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._last = ""
        self._lock = threading.Lock()

    def say(self, problem: str) -> None:
        """Tell what is wrong, or "" that nothing is any more."""
        with self._lock:
            if problem == self._last:
                return
            self._last = problem
            self._write({"problem": problem})

    def works(self) -> None:
        """Tell that the follower has come further."""
        with self._lock:
            self._write({"works": True})

    def _write(self, line: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the agent has gone
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


def main() -> None:
    """Run the follower of this process until the job has ended."""
    reports = Reports(os.dup(1))
    quiet = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # libraries print what nobody has asked for
        os.dup2(quiet, descriptor)
    told: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not told["parameters"].get("commit"):
        told["parameters"].update(code_version.commit())
    follower = Follower(TrackedJob(**told), reports.say, reports.works)
    threading.Thread(target=_listen, args=(follower,), daemon=True).start()
    threading.Thread(target=_watch, args=(follower, reports.say), daemon=True).start()
    follower.run()
    os._exit(0)  # threads of a library may hang


def _listen(follower: Follower) -> None:
    """Take what the agent says, until the job has ended; where it ends without a word, the agent has gone."""
    for text in sys.stdin:
        told = json.loads(text)
        if "point" in told:
            follower.counted(told["point"])
        if "end" in told:
            follower.end = told["end"]
            follower.ended.set()
            return
    follower.end = LEFT
    follower.ended.set()
    time.sleep(2 * _LOOK_SECONDS)  # for what is under way
    os._exit(1)


def _watch(follower: Follower, report: Callable[[str], None]) -> None:
    """Tell of a call that does not come back."""
    while True:
        time.sleep(_LOOK_SECONDS)
        since = follower.busy_since
        if since is not None and time.monotonic() - since > _HANG_SECONDS:
            report(f"it has not answered for {_HANG_SECONDS:.0f} s")
