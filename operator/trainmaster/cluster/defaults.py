"""Find out whether a refused object is wrong only in fields that the namespace added to it.

A LimitRange or a webhook fills in fields that an object leaves open, and only then the API server validates all of it.
Such a refusal is not the fault of the job's author, and ends when the namespace is changed.
"""

import re
from collections.abc import Sequence
from typing import Any

from trainmaster.cluster.client import StatusCause

_PART = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
_ABOVE_LIMIT = re.compile(r"must be less than or equal to (\S+) limit")
_REQUIRED = "FieldValueRequired"


def are_to_blame(causes: Sequence[StatusCause], sent: dict[str, Any]) -> bool:
    """Return whether everything that is wrong was added to the object after it was sent."""
    return bool(causes) and all(_was_added(cause, sent) for cause in causes)


def _was_added(cause: StatusCause, sent: dict[str, Any]) -> bool:
    above = _ABOVE_LIMIT.search(cause.message)
    if above and cause.field.endswith("resources.requests"):
        limits = _at(sent, f"{cause.field.removesuffix('requests')}limits")
        return not (isinstance(limits, dict) and above[1] in limits)
    return cause.reason != _REQUIRED and bool(cause.field) and _at(sent, cause.field) is None


def _at(sent: Any, field: str) -> Any:
    """Return the value at a field such as spec.containers[0].resources.limits[cpu]; None where there is none."""
    for name, key in _PART.findall(field):
        if isinstance(sent, dict):
            sent = sent.get(name or key)
        elif isinstance(sent, list) and key.isdecimal():
            sent = sent[int(key)] if int(key) < len(sent) else None
        else:
            return None
    return sent
