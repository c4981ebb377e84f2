"""Compute fingerprints, which are equal for two failures of one kind, although their texts vary.

A fingerprint has the type, the message's first line without numbers, addresses and names made up at run time, and the
top frame of the user's code without its line number.
"""

import re

from trainmaster.core import figures
from trainmaster.wire.messages import ErrorReport

_MOST = 300
# The order matters: longer and more specific patterns first. Bounded, because messages come from outside.
_VARYING = (
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"(?:/tmp|/var/tmp|/dev/shm|/run|/proc)/[^\s'\",:;)\]]*"), "<path>"),
    (re.compile(r"\btmp[A-Za-z0-9_]{6,}"), "<name>"),
    (re.compile(r"\b(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{1,4}\b"), "<address>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "#"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"), "#"),
)


def of_error(failure_class: str, error: ErrorReport) -> str:
    """Return the fingerprint of a rank's Python error."""
    return of_text(f"{failure_class}|{error.type}|{first_line(error.message)}|{error.frame}")


def of_text(text: str) -> str:
    """Return `text` without what varies."""
    text = text[: 8 * _MOST]
    for pattern, stand_in in _VARYING:
        text = pattern.sub(stand_in, text)
    return figures.legible(text[:_MOST])


def first_line(text: str) -> str:
    """Return the first line that is not blank; empty where there is none."""
    return text.strip().split("\n", 1)[0].strip()
