"""Parse JSON that is nested more deeply than Python's parser can: what is too deep becomes null.

A user may create such an object, and the API server accepts it. It stands in lists beside the objects of others, so it
must not keep these from being read.
"""

import json
import re
from typing import Any

MOST_LEVELS = 100  # of a spec; the deepest pod has about fifteen
_KEPT_LEVELS = 2 * MOST_LEVELS  # lists and events add levels; what is cut is too deep for `jobs` anyway
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')


def parse(content: bytes) -> Any:
    """Return the parsed text, with null in the place of what is nested too deeply.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(content)
    except RecursionError:
        return json.loads(_cut(content))


def cut(content: bytes) -> bytes:
    """Return JSON text that Python can parse, and its own copies as well; ordinary text is returned as it is."""
    if content.count(b"{") + content.count(b"[") <= _KEPT_LEVELS:  # it cannot be deeper than that
        return content
    try:
        json.loads(content)
    except RecursionError:
        return _cut(content)
    except ValueError:
        pass  # its reader says what is wrong with it
    return content


def is_deeper(value: Any, levels: int = MOST_LEVELS) -> bool:
    """Return whether `value` has more levels than `levels`. It descends no further than needed."""
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
