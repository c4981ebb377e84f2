"""Make numbers and texts from outside fit to be stored, so that no agent and no edited status stops a decision."""

import math
import re
from datetime import UTC, datetime, timedelta

from trainmaster.wire.bounded_json import LARGEST_COUNT

_LONGEST_SECONDS = 1e12
_MINUTE = 60.0
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,2})m)?(?:(\d{1,2})s)?")


def count(value: int) -> int:
    """Return a step or a number of things, bounded: never negative, never larger than JSON can hold exactly."""
    return min(max(value, 0), LARGEST_COUNT)


def seconds(value: float) -> float:
    """Return a length of time, bounded: neither negative nor absurd; 0 where it is not finite."""
    return min(max(value, 0.0), _LONGEST_SECONDS) if math.isfinite(value) else 0.0


def bounded(value: int) -> int:
    """Return a number of either sign, bounded to what JSON can hold exactly."""
    return min(max(value, -LARGEST_COUNT), LARGEST_COUNT)


def moment(seconds: float) -> datetime | None:
    """Return the time of these seconds since the epoch; None where there is no such time."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def rfc3339(text: str | None) -> datetime | None:
    """Return a time as Kubernetes writes it; None where the text is no time."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def later(time: datetime, seconds: float) -> datetime:
    """Return the time so many seconds after `time`; the latest possible time where that is nearer."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return _END_OF_TIME


def duration(seconds: float) -> str:
    """Return seconds as 1h20m, 3m05s or 12s: two units are enough. Empty where they are not finite."""
    if not math.isfinite(seconds):
        return ""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def tenths(seconds: float) -> str:
    """Return seconds as 2.9 s below a minute, else as `duration` writes them."""
    return f"{seconds:.1f} s" if seconds < _MINUTE else duration(seconds)


def short(value: float) -> str:
    """Return a number in few letters: four digits, and no power of ten where it is one of thousands."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"  # noqa: PLR2004


def length(text: str | None) -> float | None:
    """Return the seconds of a text that `duration` wrote; None for any other text."""
    found = _DURATION.fullmatch(text or "")
    if not text or not found:
        return None
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float(3600 * hours + 60 * minutes + rest)


def legible(text: str) -> str:
    """Return `text` as it comes back once it is stored: Python's stand-ins for undecodable bytes are replaced."""
    return text.encode(errors="replace").decode()


def sentence(text: str) -> str:
    """Return `text` with a full stop, unless it ends with a mark of its own."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
