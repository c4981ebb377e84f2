"""Check that a process can be started with what a user writes.

Linux accepts no single argument or variable of 128 KiB, nor about 2 MiB in all, and a NUL ends each. The whole plan of
a training travels to its processes as one variable (`wire/training.py`), so what a user may write freely in it has a
limit. The CRD cannot check this: CEL sees no free objects and counts characters, Linux counts bytes.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticCustomError

from trainmaster.wire import codec

MOST_OF_A_PLAN = 96 * 1024
"""Of 128 KiB for the plan as JSON. The rest of it is paths, URLs and figures, each with a bound of its own."""
MOST_OF_A_VALUE = 127 * 1024
"""Of 128 KiB for NAME=value."""
MOST_OF_ALL_VARIABLES = 256 * 1024
"""Of 2 MiB that Linux takes: a job's variables are read and kept with each look at it, so what is large is a file."""
MOST_OF_A_SPEC = 256 * 1024
"""As JSON: no more than a file that kubectl apply takes. The CRD bounds what it knows, this what may be free in it."""
_BESIDE = 2 + 8  # of each variable: = and the end, and its address

TOO_LARGE = "too_large"
"""The type of the errors below about sizes; their context has the member `cure`."""
TOO_HEAVY = "too_heavy"
"""The type of the error about a whole spec."""
HAS_NUL = "has_nul"
BAD_EXPRESSION = "bad_expression"
"""The type of the error about a regular expression; its context has the members `what` and `cure`."""
TOKEN_LASTS = "token_lasts"
"""The type of the error about a token that lasts for too long."""
SAID_TWICE = "said_twice"
"""The type of the error about what spec and template say differently; its context has `what` and `place`."""


def without_nul(value: str) -> str:
    """Return the text, or refuse it if it holds NUL, with which neither a process nor the kernel can be called."""
    if "\0" in value:
        raise PydanticCustomError(HAS_NUL, "holds the character NUL, which no process can be given. Remove it")
    return value


def fit_a_plan(value: Any) -> Any:
    """Return the arguments or the command, or refuse them if they are too large for the plan."""
    _check(len(codec.encode(value)), MOST_OF_A_PLAN, "as JSON", "Put what is large into a file and give its path")
    return value


def fit_a_variable(value: str) -> str:
    """Return the value, or refuse it if it is too large for a variable or holds NUL."""
    _check(len(value.encode()), MOST_OF_A_VALUE, "in UTF-8", "Put it into a file, for example from a ConfigMap")
    return without_nul(value)


def fit_an_environment(variables: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the variables, or refuse them if they are too large together."""
    cure = "Put what is large into a file, for example from a ConfigMap"
    size = sum(len(one.name.encode()) + len((one.value or "").encode()) + _BESIDE for one in variables)
    _check(size, MOST_OF_ALL_VARIABLES, "together", cure)
    return variables


def fit_a_spec(spec: Any) -> None:
    """Refuse a spec that is too large: many such jobs would fill the operator's memory."""
    size = len(json.dumps(spec, default=str, separators=(",", ":")))
    if size > MOST_OF_A_SPEC:
        cure = "Put what is large into ConfigMaps and name them"
        context = {"size": size, "most": MOST_OF_A_SPEC, "cure": cure}
        message = "the spec has {size} bytes as JSON, and {most} is the most. {cure}"
        raise PydanticCustomError(TOO_HEAVY, message, context)


def _check(size: int, most: int, how: str, cure: str) -> None:
    if size > most:
        context = {"size": size, "most": most, "how": how, "cure": cure}
        message = "has {size} bytes {how}, and a process can be started with {most} of it at most. {cure}"
        raise PydanticCustomError(TOO_LARGE, message, context)
