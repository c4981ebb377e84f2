"""Show TrainingJobs as kubectl does: a table with the CRD's own columns, or json, yaml and name."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import yaml

from trainmaster.api.schema import COLUMNS
from trainmaster.core import figures
from trainmaster.wire import names

Document = dict[str, Any]


def shown(
    items: Sequence[Document], form: str | None, now: datetime, *, single: bool = False, everywhere: bool = False
) -> list[str]:
    """Return the lines that show these objects in a format; None is the table."""
    if form in ("json", "yaml"):
        document = items[0] if single else {"apiVersion": "v1", "kind": "List", "items": list(items)}
        if form == "json":
            return json.dumps(document, indent=2).split("\n")
        return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)).rstrip("\n").split("\n")
    if form == "name":
        return [_name(item) for item in items]
    return _table(items, now, wide=form == "wide", everywhere=everywhere)


def _table(items: Sequence[Document], now: datetime, *, wide: bool, everywhere: bool) -> list[str]:
    columns = [column for column in COLUMNS if wide or not column.get("priority")]
    where = everywhere or len({_where(item) for item in items}) > 1
    head = [*(["WHERE"] if where else []), "NAME", *(column["name"] for column in columns)]
    rows = [
        [
            *([_where(item)] if where else []),
            item["metadata"]["name"],
            *(_cell(item, column, now) for column in columns),
        ]
        for item in items
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]


def _where(item: Document) -> str:
    return str(item["metadata"].get("namespace", "this machine"))


def _name(item: Document) -> str:
    name = str(item["metadata"]["name"])
    return name if item["kind"] != names.KIND else f"{names.KIND.lower()}.{names.GROUP}/{name}"


def _cell(item: Document, column: Document, now: datetime) -> str:
    value: Any = item
    for part in re.findall(r"\w+", column["jsonPath"]):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return ""
    if column["type"] == "date":
        began = figures.rfc3339(str(value))
        return figures.duration(max(1.0, (now - began).total_seconds())) or "" if began else ""
    return str(value)


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)
