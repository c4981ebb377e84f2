"""Define the base class and the scalar types of everything that a user writes in a TrainingJob.

House rules let `api/schema.py` turn each model into a structural Kubernetes schema: no unions but `X | None` and the
two types below that Kubernetes calls "int or string"; tuples in place of lists; no patterns (a regular expression is no
help to a reader: `api/rules` says it in words); a limit on everything that CEL reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import ComputedFieldInfo, FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from trainmaster.api.sizes import without_nul


def fields_of(model: type) -> dict[str, FieldInfo]:
    """Return the fields of a model by their Python names. It is a `BaseModel` or one of pydantic's dataclasses."""
    fields: dict[str, FieldInfo] = vars(model)["__pydantic_fields__"]
    return fields


def computed_of(model: type) -> dict[str, ComputedFieldInfo]:
    """Return the computed fields of a model by their names, likewise."""
    found = vars(model)["__pydantic_decorators__"].computed_fields
    return {name: decorator.info for name, decorator in found.items()}


class Model(BaseModel):
    """A model is frozen, has camelCase in YAML and snake_case in Python, and refuses unknown names."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_means_unset(cls, data: Any) -> Any:
        """Leave out fields that are null, such as `checkpoint:` with nothing after it, as the API server does."""
        if not isinstance(data, Mapping):
            return data
        known = {field.alias for field in cls.model_fields.values()} | set(cls.model_fields)
        return {key: value for key, value in data.items() if value is not None or key not in known}

    def to_dict(self) -> dict[str, Any]:
        """Return the model as in the YAML, with defaults, and without what is not set."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: Any) -> Any:
    """Return models and tuples as dicts and lists.

    pydantic's `exclude_none` would also change the user's free objects.
    """
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        named = {fields[name].alias or name: getattr(value, name) for name in fields}
        everything = {**named, **(value.model_extra or {})}
        return {key: _plain(item) for key, item in everything.items() if item is not None and item != ()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


class IntOrString:
    """Mark a type that is `x-kubernetes-int-or-string` in the CRD."""


@dataclass(frozen=True)
class Keyed:
    """Mark a list whose items are told apart by one member (`x-kubernetes-list-type: map`), and refuse duplicates."""

    key: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._all_different, handler(source))

    def _all_different(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        seen = set()
        for index, item in enumerate(items):
            fields = fields_of(type(item))
            value = next(getattr(item, name) for name, field in fields.items() if field.alias == self.key)
            if value in seen:
                context = {"key": self.key, "value": value, "index": index}
                raise PydanticCustomError("duplicate", "{key} {value} comes twice", context)
            seen.add(value)
        return items


@dataclass(frozen=True)
class Weighs:
    """Mark a list whose items have at most `most` characters together; `cel` is the number of characters of one `item`.

    This is for the CRD only: a validator beside it counts the bytes.
    """

    most: int
    cel: str = "size(item)"


def _whole(value: Any) -> Any:
    """Return a float without a fraction as an int: the API server stores 4.0 where no rule looks."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int = Annotated[int, BeforeValidator(_whole)]
"""A whole number. "4" in quotes, 4.5 and true are not."""

Name = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(without_nul)]
"""The name of something in Kubernetes."""

Text = Annotated[str, Field(max_length=4096), AfterValidator(without_nul)]
"""Free text, a path, a value."""

Place = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(without_nul)]
"""A path, a URL, an image."""

FigureName = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(without_nul)]
"""The name of a figure that a task reports."""

IntOrText = Annotated[StrictInt | StrictStr, IntOrString()]
"""A whole number or a word."""

Quantity = IntOrText
"""An amount as Kubernetes writes it: 4, 500m, 16Gi."""


def _without_nulls(value: Any) -> Any:
    """Return an object without members that are null: `kubectl apply` drops them, `kubectl create` keeps them."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


FreeObject = Annotated[dict[str, Any], Field(max_length=256), AfterValidator(_without_nulls)]
"""Passed on as it is; what is in it is checked by whoever gets it."""
