"""Numbers and texts from outside, made fit to be written down: no agent's word, no edited status stops a decision."""

import math
import re
from datetime import UTC, datetime, timedelta

_LARGEST = 2**53
_LONGEST_SECONDS = 1e12
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,2})m)?(?:(\d{1,2})s)?")


def count(value: int) -> int:
    """A step or a number of things: never negative, never larger than JSON can say."""
    return min(max(value, 0), _LARGEST)


def seconds(value: float) -> float:
    """A length of time: neither negative nor absurd."""
    return min(max(value, 0.0), _LONGEST_SECONDS) if math.isfinite(value) else 0.0


def bounded(value: int) -> int:
    """A number of either sign, never so long that it could not be written down."""
    return min(max(value, -_LARGEST), _LARGEST)


def moment(seconds: float) -> datetime | None:
    """A time from seconds since the epoch; None where there is no such time."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def rfc3339(text: str | None) -> datetime | None:
    """A time as Kubernetes writes it; None where it is none."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def later(time: datetime, seconds: float) -> datetime:
    """So many seconds after `time`; the end of all time where that is nearer."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return _END_OF_TIME


def duration(seconds: float) -> str:
    """1h20m, 3m05s or 12s: two units are enough. Empty for what is no length of time."""
    if not math.isfinite(seconds):
        return ""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def length(text: str | None) -> float | None:
    """Seconds of what `duration` wrote, None where it is none of its."""
    found = _DURATION.fullmatch(text or "")
    if not text or not found:
        return None
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float(3600 * hours + 60 * minutes + rest)


def legible(text: str) -> str:
    """`text` as it comes back once it is stored. Python's own stand-ins for undecodable bytes cannot be stored."""
    return text.encode(errors="replace").decode()


def sentence(text: str) -> str:
    """`text` with a full stop, unless it ends itself."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
