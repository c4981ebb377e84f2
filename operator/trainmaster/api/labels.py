"""Check the names and values of labels in a job file by Kubernetes' rules.

CEL rules cannot do this: they do not see the labels of the job itself, and looking at each character costs too much.
The API server refuses a bad label in metadata at once, but one in nodeSelector or a template only when a pod is made of
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainmaster.api.problem import Location
from trainmaster.api.wording import RuleWords

_PLACES: tuple[Location, ...] = (
    ("metadata", "labels"),
    *(
        ("spec", role, *place)
        for role in ("workers", "parameterServers")
        for place in (("nodeSelector",), ("template", "metadata", "labels"), ("template", "spec", "nodeSelector"))
    ),
)
_NAME = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PREFIX = 253
_FORM = "Use at most 63 letters, digits, - _ and ., with a letter or digit first and last"


def bad_labels(data: dict[str, Any]) -> Iterator[tuple[Location, RuleWords]]:
    """Yield each label in the document whose name or value Kubernetes refuses, with words about it."""
    for place in _PLACES:
        labels: Any = data
        for part in place:
            labels = labels.get(part) if isinstance(labels, dict) else None
        for name, value in labels.items() if isinstance(labels, dict) else ():
            if not _is_name(name):
                message = f"{name} is not the name of a label"
                yield (*place, name), RuleWords(message, f"{_FORM}; a domain and / may stand before it")
            if isinstance(value, str) and value and not _NAME.fullmatch(value):
                yield (*place, name), RuleWords(f'"{value}" is not the value of a label', _FORM)


def _is_name(key: Any) -> bool:
    if not isinstance(key, str):
        return True  # the shape of the document is wrong, which is told already
    prefix, slash, name = key.rpartition("/")
    fits = not slash or (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix) is not None)
    return fits and _NAME.fullmatch(name) is not None
