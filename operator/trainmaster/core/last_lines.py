"""What a container said before it ended: the last line in a sentence, and those before it as far as there is room.

Called by `failures` with the end of a log, which may begin in the middle of a line. The error stands last in a
traceback, and what leads to it is of less use: so it is the beginning that is cut off.
"""

import re

_MOST_BEFORE = 600
_MOST_OF_ONE = 400
_MISSING_PYTHON = re.compile(r"executable file\W+python3\W+not found|\"python3\": executable file not found")
# As the trainer's log has it (rank.py), maybe cut at the front; and what an agent says of its own state.
_ALL_WELL = re.compile(
    r"(^|[\d,.: ])rank \d+ (INFO|DEBUG) |^(INFO|DEBUG)\b"
    r"|^(trainmaster agent: )?\S+: (Waiting|Running|Finished), attempt \d+"
)
_FOREIGN = re.compile(r"exec format error")


def last_line(text: str) -> str:
    """The last line that says something, its end where it is long."""
    lines = _lines(text)
    return lines[-1][-_MOST_OF_ONE:] if lines else ""


def told(text: str) -> str:
    """The last line, and in brackets those before it, oldest first."""
    before: list[str] = []
    for line in reversed(_lines(text)[:-1]):
        if sum(map(len, before)) + len(line) > _MOST_BEFORE:
            break
        before.insert(0, line)
    return last_line(text) + (f" (before that: {' | '.join(before)})" if before else "")


def why_it_cannot_start(text: str) -> str:
    """The runtime's words on a container that cannot be started, with what they mean in front."""
    if _MISSING_PYTHON.search(text):
        return f"The image has no python3 in its PATH, and the agent needs Python 3.9 or newer in every image: {text}"
    if _FOREIGN.search(text):
        return f"The image is made for another kind of processor than the node's: {text}"
    return text


def _lines(text: str) -> list[str]:
    """The lines that may tell why: not those in which ranks and agent say that all goes well."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not _ALL_WELL.search(line)]
