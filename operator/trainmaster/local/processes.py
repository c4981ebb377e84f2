"""Start, watch and end agents as child processes.

An agent's output goes to a log file of its own, and to a listener (the terminal shows that of the first worker).
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainmaster.wire.files import open_to_write

# -E and -P: PYTHONPATH and the user's folder are for the ranks; a `queue.py` there must not break the agent.
_OPTIONS = ("-E", "-P")
_AGENT = ("-m", "trainmaster_trainer.agent")
_CHUNK = 1 << 16

OnOutput = Callable[[str, bytes], None]


@dataclass
class LocalAgent:
    """Hold one agent process. The task `output` ends when the process has ended and its last line was passed on."""

    name: str
    process: asyncio.subprocess.Process
    output: asyncio.Task[None]

    @property
    def ended(self) -> bool:
        """Return whether the process has ended."""
        return self.process.returncode is not None

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it still runs."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


async def start(
    name: str,
    environment: Mapping[str, str],
    log: Path,
    on_output: OnOutput,
    on_end: Callable[[], None],
) -> LocalAgent:
    """Start an agent; `on_end` is called once, when it has ended and its last line was passed on.

    Raises:
        OSError: there can be no new process now.
    """
    # The agent obeys PYTHONPATH only if we ourselves were imported by it.
    command = (sys.executable, *(_OPTIONS[1:] if found_by_python_path() else _OPTIONS), *_AGENT)
    process = await asyncio.create_subprocess_exec(
        *command,
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # the terminal's Ctrl-C must not reach the agent: the session passes it on
    )
    output = asyncio.create_task(_pump(name, process, log, on_output, on_end))
    return LocalAgent(name, process, output)


async def stop(agent: LocalAgent, grace_seconds: float) -> None:
    """End an agent: SIGTERM, so that its ranks can save, and SIGKILL if it still runs after the grace time."""
    agent.signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(grace_seconds):
            await agent.process.wait()
    except TimeoutError:
        agent.signal(signal.SIGKILL)
        await agent.process.wait()
    await agent.output


def inherited_environment(*python_path: Path) -> dict[str, str]:
    """Return the variables of this process, with these folders first in PYTHONPATH, for the user's modules."""
    environment = dict(os.environ)
    paths = [str(path) for path in dict.fromkeys(python_path)]
    if paths and environment.get("PYTHONPATH"):
        paths.append(environment["PYTHONPATH"])
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def found_by_python_path() -> bool:
    """Return whether we ourselves were imported from a folder that PYTHONPATH names."""
    here = str(Path(__file__).resolve())
    return any(path and here.startswith(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep))


async def _pump(
    name: str, process: asyncio.subprocess.Process, log: Path, on_output: OnOutput, on_end: Callable[[], None]
) -> None:
    assert process.stdout is not None  # noqa: S101  it was asked for
    with contextlib.suppress(OSError), os.fdopen(open_to_write(log), "ab", 0) as file:
        while chunk := await process.stdout.read(_CHUNK):
            on_output(name, chunk)
            file.write(chunk)
    # Go on reading without a log (a full disk): if its output is not read, an agent waits for ever.
    while chunk := await process.stdout.read(_CHUNK):
        on_output(name, chunk)
    await process.wait()
    on_end()
