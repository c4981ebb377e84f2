"""Live a life: start the job as a user does, strike its processes, begin again what was killed, wait for the end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from pathlib import Path

from tests.local.command import Command, is_warm_parent, kill, wait_gone, what_it_is
from tests.soak.lives import AGENT, CHILD, COMMAND, RANK, WARM_PARENT, Fault, Life

HERE = Path(__file__).parent
PATIENCE = 120.0
"""Seconds in which something new must be said: a hang is found within 30."""
VICTIM_SECONDS = 5.0
# How the command may end after a signal: 0 where the job was over before it came.
ENDS = {signal.SIGKILL: (0, -9), signal.SIGTERM: (0, 130), signal.SIGINT: (0, 130)}


class Lived:
    """A life that is being lived, or has been. `told` says what was done to it, in order."""

    def __init__(self, life: Life, folder: Path, warm: Path) -> None:
        self.life = life
        self.told: list[str] = []
        folder.mkdir(parents=True)
        for file in ("noisy.py", "script.py"):
            shutil.copy(HERE / file, folder)
        # A warm parent of its own, where it is to suffer.
        needs_its_own = any(fault.victim == WARM_PARENT for fault in life.faults)
        self.command = Command(folder, None if needs_its_own else warm)
        self.code: int | None = None
        self._scratch: set[Path] = set()

    def live(self) -> None:
        """Run to the end, with all faults that come before it.

        Raises:
            AssertionError: the command said nothing new for `PATIENCE` seconds, or ended before it trained.
        """
        self._begin()
        for fault in self.life.faults:
            time.sleep(fault.delay)
            if self.command.process.poll() is not None:
                break
            self._strike(fault)
        self.code = self.command.end(PATIENCE)

    def close(self) -> list[str]:
        """End whatever is left; return a sentence for each thing that should not have been."""
        left = {what_it_is(pid) for pid in self.command.processes() if not wait_gone(pid, 20.0)}
        self.command.close()
        folders = [path for path in self._scratch if path.exists()]
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)
        return [f"A process was left: {one}." for one in sorted(left)] + [f"{path} was left." for path in folders]

    def _begin(self) -> None:
        self.command.start(self.life.job)
        self.command.until(lambda line: line.get("progress", {}).get("step") is not None, PATIENCE)
        self._scratch |= _scratch_folders(self.command.process.pid)

    def _strike(self, fault: Fault) -> None:
        if fault.victim == COMMAND and not fault.pause:
            self._end_and_begin_again(fault)
            return
        victims = self._wait_for_victims(fault.victim)
        if victims:
            victim = victims[fault.index % len(victims)]
            kill(victim, signal.Signals[f"SIG{fault.signal}"])
            self.told.append(str(fault))
            if fault.pause:
                time.sleep(fault.pause)
                kill(victim, signal.SIGCONT)

    def _end_and_begin_again(self, fault: Fault) -> None:
        number = signal.Signals[f"SIG{fault.signal}"]
        self.command.send(number)
        code = self.command.end(PATIENCE)
        self.told.append(f"{fault}, which ended with {code}{'; begun again' if code else ''}")
        if code not in ENDS[number]:
            raise AssertionError(f"the command ended with {code} after SIG{fault.signal}")
        if code != 0:
            self._begin()

    def _wait_for_victims(self, victim: str) -> list[int]:
        """Return who can be struck; while the processes are not there yet, or not again, wait for them."""
        until = time.monotonic() + VICTIM_SECONDS
        while not (found := self._victims(victim)) and time.monotonic() < until:
            if self.command.process.poll() is not None:
                break
            time.sleep(0.02)
        return found

    def _victims(self, victim: str) -> list[int]:
        if victim == COMMAND:
            return [self.command.process.pid]
        if victim in (RANK, CHILD):
            # A pid may be somebody else's by now: the working directory tells whose it is.
            found = [int(path.name) for path in self.command.folder.glob("ranks/*")]
            ranks = sorted(pid for pid in found if _works_in(pid, self.command.folder))
            return ranks if victim == RANK else [child for rank in ranks for child in _children(rank)]
        if victim == AGENT:
            agents = self.command.agents() | {100 + i: pid for i, pid in self.command.agents("parameterServer").items()}
            return [agents[index] for index in sorted(agents)]
        return [pid for pid in self.command.processes() if is_warm_parent(pid)]


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == folder.resolve()
    except OSError:
        return False


def _scratch_folders(pid: int) -> set[Path]:
    """Return the scratch folders whose lock the command has open: its own, and for a moment those that it cleans up."""
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = file.readlink()
            if target.match("trainmaster-*/lock"):
                found.add(target.parent)
    return found
