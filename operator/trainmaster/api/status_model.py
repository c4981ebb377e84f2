"""Define what the parts of the status have in common: StatusModel, and texts, times and numbers that always fit."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from trainmaster.api.repair import adapter
from trainmaster.wire.bounded_json import LARGEST_COUNT

_MAX_TEXT = 2000


class StatusModel:
    """A status model is a frozen dataclass with camelCase outside and snake_case inside. It ignores unknown members.

    It is changed by `dataclasses.replace` only: mypy checks names and types of the fields, and pydantic each new value.
    """

    __pydantic_config__ = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data: camelCase, without what is not known."""
        plain: dict[str, Any] = adapter(type(self)).dump_python(self, mode="json", by_alias=True, exclude_none=True)
        return plain


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _aware(time: datetime) -> datetime:
    """Return the time in UTC, cut to milliseconds (a restart takes less than a second).

    Without a zone it is taken as UTC.
    """
    zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
    try:
        zoned = zoned.astimezone(UTC)
    except OverflowError:
        raise ValueError("before the year 1 or after the year 9999") from None
    return zoned.replace(microsecond=zoned.microsecond // 1000 * 1000)


def _rfc3339(time: datetime) -> str:
    """Return the time as 2026-11-21T03:14:40.325Z, or without a fraction if there is none."""
    spec = "milliseconds" if time.microsecond else "seconds"
    return time.astimezone(UTC).isoformat(timespec=spec).replace("+00:00", "Z")


def _finite(value: Any) -> Any:
    """Return a float with four digits, and None for NaN and infinity, which JSON lacks.

    So columns stay narrow, and an unchanged loss is no new status.
    """
    if not isinstance(value, float):
        return value
    return _rounded(value) if math.isfinite(value) else None


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


ClippedText = Annotated[str, AfterValidator(_clip)]
Time = Annotated[datetime, AfterValidator(_aware), PlainSerializer(_rfc3339, return_type=str, when_used="json")]
Figure = Annotated[float | None, BeforeValidator(_finite), AfterValidator(_finite)]
Number = Annotated[float, AfterValidator(_rounded)]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]
