"""Define errors that have a meaning beyond this process.

ConfigurationError is raised wherever what the user wrote cannot work; the agent, and `rank.py` when it is started
without one, turn it into exit code 78 and show its message alone. The operator knows NonFiniteLossError and
CopiesDifferError by their names.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable


class ConfigurationError(Exception):
    """The YAML or the task asks for something that cannot work. The message names the field and the cure."""

    # The agent looks for this word instead of importing the class: it must not import the trainer.
    trainmaster_configuration_error = True


class DamagedStateError(Exception):
    """The state of the training is not what its steps make of it, so nothing of it is saved.

    It is raised on all ranks alike. `resume_before`: a restart goes on from a checkpoint of before this step; the agent
    writes it into its report. None: not known yet.
    """

    def __init__(self, message: str, resume_before: int | None = None) -> None:
        super().__init__(message)
        self.resume_before = resume_before


class NonFiniteLossError(DamagedStateError):
    """The loss of a global batch is NaN or infinite, or a step has left such a state."""


class CopiesDifferError(DamagedStateError):
    """The ranks' copies of the model have become different, though they have taken the same steps."""


class SupersededError(Exception):
    """A later attempt of this job has begun, and this one was not told: what it writes would be in the way."""


class PlaceTakenError(Exception):
    """Another job has begun where this one keeps its checkpoints.

    It may be a late process of a job that was deleted. So this error does not end the job for good: a restart takes the
    place back, and of two jobs with one place the first that fails so twice ends.
    """


def is_garbled(error: BaseException) -> bool:
    """Return whether data could not be decoded: a ValueError by its type, but of data read, not of a setting."""
    return isinstance(error, UnicodeError | json.JSONDecodeError)


def with_article(word: str) -> str:
    """Return the name of a type with its article: "a dict", "an int"."""
    return f"{'an' if word[:1].lower() in tuple('aeio') else 'a'} {word}"


def near(word: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt word: " Did you mean 'x'?", or nothing."""
    matches = difflib.get_close_matches(word, list(known), n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""
