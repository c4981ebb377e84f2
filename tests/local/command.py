"""`trainmaster run` as a real process: started, listened to, signalled, and proved to have left nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainmaster.wire import names

BIN = Path(sys.executable).parent / "trainmaster"
TASKS = Path(__file__).parent / "tasks"
MARK = "TRAINMASTER_TEST_MARK"
PATIENCE = 200.0
MEMORY = Path("/dev/shm")  # noqa: S108 where scratch folders are

Line = dict[str, Any]


def a_job(steps: int = 40, workers: int | dict[str, Any] = 2, **spec: Any) -> dict[str, Any]:
    """A job of the task in tasks/small.py; `spec` replaces members of its spec, `arguments` go to the task."""
    arguments = spec.pop("arguments", {})
    if "hold_at" in arguments:  # who waits at the gate is held by the test, and does not hang
        spec["failurePolicy"] = {"hangSeconds": 600, **spec.get("failurePolicy", {})}
    training = {
        "task": "small:Small",
        "arguments": arguments,
        "steps": steps,
        "globalBatchSize": 8,
        "seed": 3,
    }
    return {
        "apiVersion": "trainmaster.dev/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "small"},
        "spec": {
            "strategy": {"type": "AllReduce"},
            "training": training,
            "workers": workers if isinstance(workers, dict) else {"replicas": workers},
            "checkpoint": {"everySteps": 10, "keep": 3},
            **spec,
        },
    }


def a_script(text: str, folder: Path, *arguments: str, **spec: Any) -> dict[str, Any]:
    """A job of a script with this text; one worker unless `spec` says otherwise."""
    (folder / "script.py").write_text(text)
    training = {"command": ["python", "script.py", *arguments]}
    return a_job(**{"workers": 1, "training": training, **spec})


def start_warm_parent(python: Path, socket: Path) -> subprocess.Popen[bytes]:
    """Start a process to fork from, which ends with this one."""
    program = [str(python), "-c", names.WARM_PROGRAM, names.WARM_MODULE, "--socket", str(socket)]
    return subprocess.Popen(program, env={**os.environ, names.ENV_PARENT_PID: str(os.getpid())})


class Command:
    """One call of the command line in `folder`, which holds the YAML and the user's modules."""

    def __init__(self, folder: Path, warm: Path | None) -> None:
        self.folder = folder
        self.workdir = folder / "work"
        self.seen: list[Line] = []
        self.mark = uuid.uuid4().hex
        self._warm = warm
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None
        self._gate: int | None = None

    def start(self, job: dict[str, Any] | Path, *options: str, prefix: tuple[str, ...] = (), **env: str) -> Command:
        """Run the job: `--output json`, unless `options` say otherwise."""
        path = job if isinstance(job, Path) else self.write(job)
        if "--output" not in options:
            options = (*options, "--output", "json")
        if "--workdir" not in options:
            options = (*options, "--workdir", str(self.workdir))
        self._process = subprocess.Popen(
            [*prefix, str(BIN), "run", str(path), *options],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "stderr").open("wb"),
            env={**os.environ, **self._shared(), MARK: self.mark, **env},
        )
        self._lines = queue.Queue()
        threading.Thread(target=_listen, args=(self._process, self._lines), daemon=True).start()
        return self

    def start_on(self, terminal: int) -> subprocess.Popen[bytes]:
        """Run the job that was written, on a terminal, in a session of its own."""
        self._process = subprocess.Popen(
            [str(BIN), "run", "job.yaml", "--workdir", str(self.workdir)],
            cwd=self.folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 Ctrl-C is for its owner
            env={**os.environ, **self._shared(), MARK: self.mark, "TERM": "xterm-256color"},
        )
        return self._process

    def until(self, wanted: Callable[[Line], Any], seconds: float = PATIENCE) -> Line:
        """The next line for which `wanted` holds."""
        while True:
            line = self._next(seconds)
            if line is None:
                raise AssertionError(f"the command ended first: {self.seen[-3:]}\n{self.stderr}")
            if wanted(line):
                return line

    def until_step(self, step: int) -> Line:
        """The progress line that tells of this step, or a later one."""
        return self.until(lambda line: line.get("progress", {}).get("step", 0) >= step)

    def until_event(self, reason: str) -> Line:
        """The event with this reason."""
        return self.until(lambda line: line.get("event", {}).get("reason") == reason)

    def end(self, seconds: float = PATIENCE) -> int:
        """Read to the end; the exit code."""
        while self._next(seconds) is not None:
            pass
        return self.process.wait(seconds)

    def close(self) -> None:
        """End it, however the test went."""
        if self._gate is not None:
            os.close(self._gate)
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in self.processes():
            kill(pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Close our end of its standard output: its next line will find nobody."""
        stdout = self.process.stdout
        assert stdout is not None
        os.dup2(os.open(os.devnull, os.O_RDONLY), stdout.fileno())

    def wait_for_warm_parent(self, seconds: float = PATIENCE) -> None:
        """Wait until the first process was started, which is the warm parent; its log file is the sign."""
        until = time.monotonic() + seconds
        while not self.processes():
            assert time.monotonic() < until
            time.sleep(0.002)  # a child of a stranger: there is nothing to wait on

    def send(self, number: signal.Signals) -> None:
        """Signal the command itself."""
        self.process.send_signal(number)

    # --- the gate of tasks/small.py ---

    def make_gate(self) -> None:
        """Ranks that come to it wait."""
        os.mkfifo(self.folder / "gate")

    def open_gate(self) -> None:
        """All may pass, from now on: who has opened it as well as who comes later."""
        self._gate = os.open(self.folder / "gate", os.O_RDWR | os.O_NONBLOCK)
        (self.folder / "open").touch()
        (self.folder / "open").replace(self.folder / "gate")
        os.close(self._gate)
        self._gate = None

    def until_held(self, *ranks: int, attempt: int = 1) -> None:
        """Wait until these ranks stand at the gate: the step before it is kept and told by each of them."""
        end = time.monotonic() + PATIENCE
        while not all((self.folder / f"held-{rank}-{attempt}").exists() for rank in ranks):
            assert time.monotonic() < end, "a rank has not come to the gate"
            time.sleep(0.01)

    # --- what there is ---

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The command."""
        assert self._process is not None
        return self._process

    @property
    def scratch(self) -> Path:
        """Its scratch folder, while it runs: the one whose lock it has open."""
        files = []
        for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has been closed meanwhile
                files.append(path.readlink())
        (lock,) = [path for path in files if path.match("trainmaster-*/lock")]
        return lock.parent

    @property
    def text(self) -> str:
        """All that it printed, where that is not JSON."""
        return "\n".join(line["text"] for line in self.seen if "text" in line)

    @property
    def stderr(self) -> str:
        """What it said beside."""
        return (self.folder / "stderr").read_text()

    @property
    def status(self) -> Line:
        """DIR/status.json."""
        status: Line = json.loads((self.workdir / "status.json").read_text())
        return status

    def rank_pid(self, rank: int, attempt: int = 1) -> int:
        """Of the process that is, or was, this rank."""
        return int((self.folder / f"rank-{rank}-{attempt}.txt").read_text().split()[0])

    def agents(self, role: str = names.WORKER) -> dict[int, int]:
        """Index of the worker (or server) to the pid of its agent."""
        found = {}
        for pid in self.processes():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                environment = _environment(pid)
            except OSError:
                continue
            if b"trainmaster_trainer.agent" in command and environment[names.ENV_ROLE] == role:
                found[int(environment[names.ENV_INDEX])] = pid
        return found

    def warm_parent(self) -> int:
        """The one that this command started for itself."""
        (found,) = [pid for pid in self.processes() if is_warm_parent(pid)]
        return found

    def processes(self) -> set[int]:
        """All living processes that come from this command, but for itself."""
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if _environment(int(folder.name)).get(MARK) == self.mark:
                    found.add(int(folder.name))
            except OSError:
                continue
        return found - {self._process.pid} if self._process is not None else found

    # --- how ---

    def write(self, job: dict[str, Any]) -> Path:
        """The YAML (JSON is YAML)."""
        path = self.folder / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    def _shared(self) -> dict[str, str]:
        return {names.ENV_WARM_SOCKET: str(self._warm)} if self._warm else {}

    def _next(self, seconds: float) -> Line | None:
        try:
            raw = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"nothing new within {seconds} s: {self.seen[-3:]}\n{self.stderr}") from None
        if not raw:
            self._lines.put(b"")  # it stays the end
            return None
        line: Line = json.loads(raw) if raw.startswith(b"{") else {"text": raw.decode().rstrip("\n")}
        self.seen.append(line)
        return line


def _listen(process: subprocess.Popen[bytes], lines: queue.Queue[bytes]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(b"")


def kill(pid: int, number: signal.Signals) -> None:
    """Send a signal, if somebody is there to get it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_gone(pid: int, seconds: float = PATIENCE) -> bool:
    """Wait for the end of a process that is not a child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def what_it_is(pid: int) -> str:
    """A process for a message: its number, state and command."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return f"{pid} (gone by now)"
    return f"{pid} {state} {command}"


def abandoned_scratch(seconds: float = 60.0) -> list[Path]:
    """Return the scratch folders whose run is no more, and that stay: a test beside this one may just kill a run."""
    end = time.monotonic() + seconds
    while left := [folder for folder in MEMORY.glob("trainmaster-*") if not _is_held(folder / "lock")]:
        if time.monotonic() > end:
            break
        time.sleep(0.2)
    return left


def _is_held(lock: Path) -> bool:
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return True  # it went just now
    return False


def _environment(pid: int) -> dict[str, str]:
    content = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(entry.split("=", 1) for entry in content.split("\0") if "=" in entry)


def is_warm_parent(pid: int) -> bool:
    """Not one of its children: they have its command line, and its name too until they have given themselves one."""
    return _has_its_command(pid) and not _has_its_command(_parent_of(pid))


def _has_its_command(pid: int) -> bool:
    try:
        return b"trainmaster_trainer.agent.warm" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _parent_of(pid: int) -> int:
    """Its number; 0, which is no process's, where it has gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
