"""Agents as child processes: started by command line, watched, ended. Used by local/platform.py.

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
from typing import BinaryIO

from trainmaster.wire.files import open_to_write

# -E and -P: PYTHONPATH and the user's folder are for the ranks; a `queue.py` there must not break the agent.
_OPTIONS = ("-E", "-P")
_AGENT = ("-m", "trainmaster_trainer.agent")
_CHUNK = 1 << 16

OnOutput = Callable[[str, bytes], None]


@dataclass
class Agent:
    """One agent process. `output` ends when the process has ended and its last line was passed on."""

    name: str
    process: asyncio.subprocess.Process
    output: asyncio.Task[None]

    @property
    def ended(self) -> bool:
        """Whether the process is no more."""
        return self.process.returncode is not None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


async def start(
    name: str,
    environment: Mapping[str, str],
    log: Path,
    on_output: OnOutput,
    on_end: Callable[[], None],
) -> Agent:
    """Start an agent; `on_end` is called once when it has ended and its last line was passed on.

    Raises:
        OSError: there can be no new process now.
    """
    process = await asyncio.create_subprocess_exec(
        *_command(),
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C in the terminal is ours to pass on, in order
    )
    output = asyncio.create_task(_pump(name, process, log, on_output, on_end))
    return Agent(name, process, output)


async def stop(agent: Agent, grace_seconds: float) -> None:
    """End it: SIGTERM, so that its ranks may save; SIGKILL when it is still there after the grace time."""
    agent.signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(grace_seconds):
            await agent.process.wait()
    except TimeoutError:
        agent.signal(signal.SIGKILL)
        await agent.process.wait()
    await agent.output


def inherited_environment(*python_path: Path) -> dict[str, str]:
    """The variables of this process, with folders in front of PYTHONPATH: where ranks find a user's own modules."""
    environment = dict(os.environ)
    paths = [str(path) for path in dict.fromkeys(python_path)]
    if environment.get("PYTHONPATH"):
        paths.append(environment["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def _command() -> tuple[str, ...]:
    """The agent's command line. Where we ourselves were found by PYTHONPATH, the agent must look there too."""
    here = str(Path(__file__).resolve())
    by_path = any(path and here.startswith(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return (sys.executable, *(_OPTIONS[1:] if by_path else _OPTIONS), *_AGENT)


async def _pump(
    name: str, process: asyncio.subprocess.Process, log: Path, on_output: OnOutput, on_end: Callable[[], None]
) -> None:
    assert process.stdout is not None  # noqa: S101  it was asked for
    with contextlib.suppress(OSError), os.fdopen(open_to_write(log), "ab", 0) as file:
        await _copy(process.stdout, file, lambda chunk: on_output(name, chunk))
    # Also without a log (a full disk): an agent whose output nobody reads would wait for ever.
    while chunk := await process.stdout.read(_CHUNK):
        on_output(name, chunk)
    await process.wait()
    on_end()


async def _copy(source: asyncio.StreamReader, log: BinaryIO, show: Callable[[bytes], None]) -> None:
    while chunk := await source.read(_CHUNK):
        show(chunk)
        log.write(chunk)
