"""Show TrainingJobs as kubectl does: a table with the CRD's own columns, or json, yaml and name."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import yaml

from trainmaster.api.schema import COLUMNS
from trainmaster.core import figures
from trainmaster.wire import names
from trainmaster.wire.printable import printable

Document = dict[str, Any]

_PATHS = {column["name"]: re.findall(r"\w+", column["jsonPath"]) for column in COLUMNS}
_NAMED = ("name", "namespace", "creationTimestamp")
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast, where the library is there


def shown(
    items: Sequence[Document], form: str | None, now: datetime, *, single: bool = False, everywhere: bool = False
) -> Iterable[str]:
    """Return the lines that show these objects in a format; None is the table."""
    if form == "json":
        return json.dumps(items[0], indent=2).split("\n") if single else _json_list(items)
    if form == "yaml":
        return _yaml(items[0]) if single else _yaml_list(items)
    if form == "name":
        return [_name(item) for item in items]
    return _table(items, now, wide=form == "wide", everywhere=everywhere)


def _json_list(items: Sequence[Document]) -> Iterator[str]:
    """Yield a list of objects line by line: there may be 10,000 of them."""
    yield from ("{", '  "apiVersion": "v1",', '  "kind": "List",', '  "items": [')
    for number, item in enumerate(items, 1):
        *lines, last = json.dumps(item, indent=2).split("\n")
        yield from (f"    {line}" for line in lines)
        yield f"    {last}{',' if number < len(items) else ''}"
    yield from ("  ]", "}")


def _yaml_list(items: Sequence[Document]) -> Iterator[str]:
    yield from ("apiVersion: v1", "kind: List", "items:" if items else "items: []")
    for item in items:
        yield from _yaml([item])


def _yaml(plain: Document | list[Document]) -> list[str]:
    text = yaml.dump(plain, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
    return str(text).rstrip("\n").split("\n")


def shortened(item: Document) -> Document:
    """Return of a job what a table shows of it, as thousands of whole jobs take hundreds of megabytes."""
    metadata = {key: value for key, value in item["metadata"].items() if key in _NAMED}
    kept: Document = {"kind": item["kind"], "metadata": metadata}
    for *parts, last in _PATHS.values():
        value, place = item, kept
        for part in parts:
            value, place = value.get(part) or {}, place.setdefault(part, {})
        if last in value:
            place[last] = value[last]
    return kept


def _table(items: Sequence[Document], now: datetime, *, wide: bool, everywhere: bool) -> list[str]:
    columns = [column for column in COLUMNS if wide or not column.get("priority")]
    where = everywhere or len({_where(item) for item in items}) > 1
    head = [*(["WHERE"] if where else []), "NAME", *(column["name"] for column in columns)]
    rows = [
        [
            *([_where(item)] if where else []),
            printable(item["metadata"]["name"]),  # a folder may be called anything, and columns are as wide as shown
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
    return name if item["kind"] != names.KIND else f"{names.BEFORE_A_NAME}{name}"


def _cell(item: Document, column: Document, now: datetime) -> str:
    value: Any = item
    for part in _PATHS[column["name"]]:
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
