"""Agents as child processes: started by command line, watched, ended. Used by local/platform.py.

An agent's output goes to a log file of its own, and to a listener (the terminal shows that of the first worker).
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

AGENT = (sys.executable, "-m", "trainmaster_trainer.agent")
# An agent gives its ranks time to save; this is longer than that.
GRACE_SECONDS = 15.0

OnOutput = Callable[[str, bytes], None]


@dataclass
class Agent:
    """One agent process."""

    name: str
    process: asyncio.subprocess.Process
    output: asyncio.Task[None]

    @property
    def ended(self) -> bool:
        """Whether the process is no more."""
        return self.process.returncode is not None


async def start(
    name: str,
    environment: Mapping[str, str],
    log: Path,
    on_output: OnOutput,
    on_end: Callable[[], None],
) -> Agent:
    """Start an agent; `on_end` is called once when it has ended and its last line was passed on."""
    process = await asyncio.create_subprocess_exec(
        *AGENT,
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C in the terminal is ours to pass on, in order
    )
    output = asyncio.create_task(_pump(name, process, log, on_output, on_end))
    return Agent(name, process, output)


async def _pump(
    name: str, process: asyncio.subprocess.Process, log: Path, on_output: OnOutput, on_end: Callable[[], None]
) -> None:
    assert process.stdout is not None  # noqa: S101  it was asked for
    with log.open("ab") as file:
        while chunk := await process.stdout.read(1 << 16):
            file.write(chunk)
            file.flush()
            on_output(name, chunk)
    await process.wait()
    on_end()


async def stop(agents: list[Agent], grace: float = GRACE_SECONDS) -> None:
    """End all of them: SIGTERM, so that they may save; SIGKILL to those that are still there after `grace`."""
    living = [agent for agent in agents if not agent.ended]
    for agent in living:
        with contextlib.suppress(ProcessLookupError):
            agent.process.terminate()
    waits = [asyncio.create_task(agent.process.wait()) for agent in living]
    if waits:
        _, late = await asyncio.wait(waits, timeout=grace)
        for agent in living:
            if not agent.ended:
                with contextlib.suppress(ProcessLookupError):
                    agent.process.kill()
        if late:
            await asyncio.wait(late)
    await asyncio.gather(*(agent.output for agent in agents), return_exceptions=True)


def inherited_environment(*python_path: Path) -> dict[str, str]:
    """This process's variables, with folders in front of PYTHONPATH: where a user's own task modules are found."""
    environment = dict(os.environ)
    paths = [str(path) for path in python_path]
    if environment.get("PYTHONPATH"):
        paths.append(environment["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment
