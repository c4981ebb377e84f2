"""Make docs/reference/trainingjob.md: every field with its type, default and meaning.

It is made of the CRD's schema and not of the models, so it says what the API server does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trainmaster.api.rules import RULES
from trainmaster.api.schema import crd

Schema = dict[str, Any]

_HEAD = """\
<!-- Generated from operator/trainmaster/api by `make generate`. Do not edit. -->
# TrainingJob

`apiVersion: trainmaster.dev/v1`, `kind: TrainingJob`, namespaced, short name `tj`. The same words come from
`kubectl explain trainingjob.spec`. A field in **bold** must be set.
"""
_TYPE_WORDS = {"integer": "whole number", "string": "text", "boolean": "true or false"}
_RULES_HEAD = """
## Rules between fields

Checked by the API server when a job is created or changed, and with line numbers by `trainmaster check FILE`.

| Where | What is refused, and what to do |
|---|---|
"""


def reference_page() -> str:
    """Return the whole page."""
    root = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    tables = [table for part in ("spec", "status") for table in _tables(part, root[part])]
    return _HEAD + "".join(tables) + _RULES_HEAD + "".join(_rule_lines())


def _rule_lines() -> Iterator[str]:
    for rule in RULES:
        where = "<br>".join(f"`{place or 'TrainingJob'}`" for place in rule.where)
        yield f"| {where} | {_cell(rule.plain_text)} |\n"


def _tables(path: str, schema: Schema) -> Iterator[str]:
    """Yield the lines of one table per object, outer objects first."""
    yield f"\n## {path}\n\n{schema.get('description', '')}\n\n"
    yield "| Field | Type | Default | Meaning |\n|---|---|---|---|\n"
    for name, field in schema["properties"].items():
        shown = f"**`{name}`**" if name in schema.get("required", ()) else f"`{name}`"
        yield f"| {shown} | {_type(field)} | {_default(field)} | {_cell(field.get('description', ''))} |\n"
    for name, field in schema["properties"].items():
        inner = field.get("items", field)
        if "properties" in inner:
            suffix = "[]" if "items" in field else ""
            yield from _tables(f"{path}.{name}{suffix}", {"description": field.get("description", ""), **inner})


def _type(field: Schema) -> str:
    if "enum" in field:
        return "<br>".join(f"`{choice}`" for choice in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "number or text"
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    if field.get("format") == "date-time":
        return "time"
    return _TYPE_WORDS.get(field["type"], str(field["type"]))


def _default(field: Schema) -> str:
    if "default" not in field:
        return ""
    default = field["default"]
    return (
        "see below"
        if isinstance(default, dict)
        else f"`{default if isinstance(default, str) else json.dumps(default)}`"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
