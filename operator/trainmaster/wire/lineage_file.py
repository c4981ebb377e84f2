"""Parse the text of lineage.json: which attempt of a job went on from which step."""

from __future__ import annotations

from typing import Dict, Tuple

from trainmaster.wire import bounded_json

LINEAGE = "lineage.json"
MOST_BYTES = 1 << 20  # 50,000 attempts


def parse(text: bytes) -> Tuple[str, Dict[int, int]]:
    """Return the job that it belongs to, and from which step each attempt went on.

    Raises:
        ValueError: it is not what training writes.
    """
    try:
        plain = bounded_json.parse(text, MOST_BYTES, MOST_BYTES)
        job, resumed = plain["job"], {int(attempt): step for attempt, step in plain["resumed"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no lineage: {error!r:.80}") from None
    numbers = [*resumed, *resumed.values()]
    if type(job) is not str or not all(type(one) is int and 0 <= one <= bounded_json.LARGEST_COUNT for one in numbers):
        raise ValueError("it is no lineage: it holds something else than attempts and steps")
    return job, resumed
