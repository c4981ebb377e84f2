"""Parse a line of metrics.jsonl, as training writes it: a resume and `trainmaster audit` read it alike."""

from __future__ import annotations

from typing import NamedTuple, Optional

from trainmaster.wire import bounded_json

METRICS = "metrics.jsonl"
MOST_BYTES = 1 << 20  # of a line
_MOST_VALUES = 10_000  # of an evaluation


class MetricLine(NamedTuple):
    """Hold the content of one line."""

    step: int
    attempt: int
    is_of_a_step: bool  # else of an evaluation
    dropped_samples: int = 0
    loss: Optional[float] = None  # None also where it is no number


def parse(text: bytes, attempt: Optional[int] = None) -> MetricLine:
    """Return the content of a line. `attempt`: what to take where the line names none.

    Raises:
        ValueError: it is not what training writes.
    """
    plain = bounded_json.parse(text, _MOST_VALUES, _MOST_VALUES)
    if not isinstance(plain, dict):
        raise ValueError("it is no object")  # noqa: TRY004 (to its callers it is a bad line like any other)
    numbers = [plain.get("step"), plain.get("attempt", attempt), plain.get("dropped_samples", 0)]
    if not all(type(number) is int and 0 <= number <= bounded_json.LARGEST_COUNT for number in numbers):
        raise ValueError("it does not name a step and an attempt")
    loss = plain.get("loss")
    return MetricLine(numbers[0], numbers[1], "loss" in plain, numbers[2], loss if type(loss) in (int, float) else None)


def step_of(line: bytes) -> Optional[int]:
    """Return the step whose loss a whole line reports; None for any other line, and for a torn one."""
    seen = whole(line)
    return seen.step if seen is not None and seen.is_of_a_step else None


def whole(line: bytes) -> Optional[MetricLine]:
    """Return the content of a line that is whole; None for a torn one, and for what training does not write."""
    if not line.endswith(b"\n"):
        return None
    try:
        return parse(line, attempt=0)
    except ValueError:
        return None
