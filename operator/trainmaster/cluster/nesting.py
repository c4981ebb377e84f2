"""JSON that is nested more deeply than Python's parser goes: what lies too deep is cut, and all else is read.

Anybody may write such an object, and the API server takes it. It stands in lists beside everybody else's, so it must
not keep them from being read. Called by `client`; `jobs` says of a spec that is so deep that it cannot be read.
"""

import json
import re
from typing import Any

MOST_LEVELS = 100  # of a spec; the deepest pod has about fifteen
_KEPT_LEVELS = 2 * MOST_LEVELS  # around it are those of a list or an event: what is cut is too deep for `jobs` anyway
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')


def parse(content: bytes) -> Any:
    """What the text says, with null in the place of what is nested too deeply.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(content)
    except RecursionError:
        return json.loads(_cut(content))


def is_deeper(value: Any, levels: int = MOST_LEVELS) -> bool:
    """Whether it has more levels than these. Looks no further than it has to."""
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(item, levels - 1) for item in items)


def _cut(content: bytes) -> bytes:
    kept, depth, start = [], 0, 0
    for token in _TOKEN.finditer(content):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == _KEPT_LEVELS + 1:
                kept += [content[start : token.start()], b"null"]
        elif token[0] in (b"}", b"]"):
            if depth == _KEPT_LEVELS + 1:
                start = token.end()
            depth -= 1
    return b"".join([*kept, content[start:]])
