"""The CRD is structural, bounded, and complete; what a schema cannot say is an error when it is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from trainmaster.api.rules import RULES
from trainmaster.api.schema import COLUMNS, UnknownToKubernetesError, crd, model_schema

VERSION = crd()["spec"]["versions"][0]
ROOT = VERSION["schema"]["openAPIV3Schema"]


def _walk(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _walk(inner, f"{path}.{name}".removeprefix("."))
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from _walk(schema[key], f"{path}[]")


EVERY = dict(_walk(ROOT, ""))


def test_no_words_that_a_structural_schema_forbids() -> None:
    """$ref, titles, nullable unions and their kin."""
    forbidden = {"$ref", "$defs", "title", "anyOf", "oneOf", "allOf", "const", "nullable", "exclusiveMinimum"}

    assert {path for path, schema in EVERY.items() if forbidden & set(schema)} == set()


def test_every_field_is_explained() -> None:
    """`kubectl explain` is the manual that everybody has."""
    silent = {path for path, schema in EVERY.items() if not path.endswith("[]") and not schema.get("description")}

    assert silent == {"metadata"}


def test_everything_in_the_spec_has_a_bound() -> None:
    """CEL's budget is reckoned from these."""
    limits = {"string": ("maxLength", "enum"), "array": ("maxItems",), "integer": ("maximum",)}
    unbounded = {
        path
        for path, schema in EVERY.items()
        if path.startswith("spec") and not set(limits.get(schema.get("type", ""), schema)) & set(schema)
    }

    assert unbounded == {
        f"spec.{role}.{field}"
        for role in ("workers", "parameterServers")
        for field in ("tolerations[].tolerationSeconds", "template.spec.activeDeadlineSeconds")
    }


def test_every_rule_has_its_place() -> None:
    """A rule whose place does not exist would never be asked; a field that does not exist would be refused."""
    for rule in RULES:
        for place in rule.where:
            assert place in EVERY, rule.name
            field = f"{place}.{rule.field}".strip(".")
            assert field in EVERY or field == "metadata.name", rule.name
    validations = [one for schema in EVERY.values() for one in schema.get("x-kubernetes-validations", ())]
    weights = [one for one in validations if ".sum() <= " in one["rule"]]  # the CRD's alone: `check` counts bytes
    assert len(validations) - len(weights) == sum(len(rule.where) for rule in RULES)


def test_columns_and_scale_point_at_fields() -> None:
    """A column with a wrong path is empty for ever and nobody notices."""
    scale = VERSION["subresources"]["scale"]
    paths = {column["jsonPath"] for column in COLUMNS if not column["jsonPath"].startswith(".metadata")}

    assert {path.removeprefix(".") for path in {*paths, *scale.values()}} <= set(EVERY)


class _TwoTypes(BaseModel):
    a: Annotated[int | str, Field(description="a")]


class _Pattern(BaseModel):
    a: Annotated[str, Field(description="a", pattern="a")]


class _Above(BaseModel):
    a: Annotated[int, Field(description="a", gt=1)]


class _Set(BaseModel):
    a: Annotated[set[str], Field(description="a")]


class _Silent(BaseModel):
    a: int


@pytest.mark.parametrize("model", [_TwoTypes, _Pattern, _Above, _Set, _Silent])
def test_what_is_not_known_is_refused(model: type[BaseModel]) -> None:
    """Here, and not by the API server of a user."""
    with pytest.raises(UnknownToKubernetesError, match=r"^spec\.a"):
        model_schema(model, "spec", defaults=True)
