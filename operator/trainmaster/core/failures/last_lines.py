"""Extract what a container said before it ended: its last line, and the lines before it as far as there is room.

The input is the end of a log, which may begin in the middle of a line. The error stands last in a traceback, so the
beginning is cut off.
"""

import re

_MOST_BEFORE = 600
_MOST_OF_ONE = 400
_MISSING_PYTHON = re.compile(r"executable file\W+python3\W+not found|\"python3\": executable file not found")
# Lines of the trainer's log (rank.py), maybe cut at the front, an agent's lines about its own state, a rank's note on
# its own start (afresh.py), and what TensorFlow and JAX log as information.
_ALL_WELL = re.compile(
    r"(^|[\d,.: ])rank \d+ (INFO|DEBUG) |^(INFO|DEBUG)\b"
    r"|^(trainmaster agent: )?\S+: ((Waiting|Running|Finished), attempt \d+|Leaving, attempt \d+: Attempt \d+: )"
    r"|^trainmaster: this rank gets a Python of its own|^I\d{4} \d\d:\d\d:"
)
_WORD = re.compile(r"\w")
_FOREIGN = re.compile(r"exec format error")


def last_line(text: str) -> str:
    """Return the last line that may tell why, or its end where it is long; empty where there is none."""
    lines = _lines(text)
    return lines[-1][-_MOST_OF_ONE:] if lines else ""


def in_one_line(text: str) -> str:
    """Return the last line, and in brackets those before it, oldest first."""
    before: list[str] = []
    for line in reversed(_lines(text)[:-1]):
        if sum(map(len, before)) + len(line) > _MOST_BEFORE:
            break
        before.insert(0, line)
    return last_line(text) + (f" (before that: {' | '.join(before)})" if before else "")


def why_it_cannot_start(text: str) -> str:
    """Return the runtime's message on a container that cannot be started, after its meaning where that is known."""
    if _MISSING_PYTHON.search(text):
        return (
            "The image has no python3 in its PATH (that of a source in spec.workers.envFrom goes before the image's), "
            f"and the agent needs Python 3.9 or newer in every image: {text}"
        )
    if _FOREIGN.search(text):
        return f"The image is made for another kind of processor than the node's: {text}"
    return text


def _lines(text: str) -> list[str]:
    """Return the lines that may tell why, without rulers and those in which ranks and agent report that all is well."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if _WORD.search(line) and not _ALL_WELL.search(line)]
