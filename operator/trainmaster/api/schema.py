"""Make of the models a structural OpenAPI v3 schema and the whole CustomResourceDefinition.

`python -m trainmaster.api.schema` prints the CRD (`make generate` keeps `crds/` equal to it). Only this module knows
Kubernetes' rules for schemas. It walks the models itself, and refuses anything in them that it does not know, so that
this is found here and not by an API server.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, get_args, get_origin

import annotated_types
import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, PlainSerializer, Strict
from pydantic.fields import FieldInfo

from trainmaster.api.descriptions import descriptions
from trainmaster.api.job import TrainingJob, TrainingJobSpec
from trainmaster.api.model import IntOrString, Keyed, Weighs, computed_of, fields_of
from trainmaster.api.rules import RULES, Rule
from trainmaster.api.status import TrainingJobStatus
from trainmaster.wire import names

Schema = dict[str, Any]

_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
}
_LIMITS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_INT_OR_STRING: Schema = {"x-kubernetes-int-or-string": True, "maxLength": 64}
_FREE: Schema = {"type": "object", "maxProperties": 256, "x-kubernetes-preserve-unknown-fields": True}

COLUMNS: tuple[Schema, ...] = (
    {"name": "STRATEGY", "type": "string", "jsonPath": ".spec.strategy.type"},
    {"name": "PHASE", "type": "string", "jsonPath": ".status.phase"},
    {"name": "WORKERS", "type": "string", "jsonPath": ".status.replicas.summary"},
    {"name": "STEP", "type": "string", "jsonPath": ".status.progress.summary"},
    {"name": "LOSS", "type": "number", "jsonPath": ".status.progress.loss"},
    {"name": "RESTARTS", "type": "integer", "jsonPath": ".status.restartCount"},
    {"name": "ETA", "type": "string", "jsonPath": ".status.progress.eta"},
    {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "EVALUATION", "type": "string", "jsonPath": ".status.progress.evaluation.summary", "priority": 1},
    {"name": "CHECKPOINT", "type": "integer", "jsonPath": ".status.checkpoint.step", "priority": 1},
    {"name": "SAMPLES/S", "type": "number", "jsonPath": ".status.progress.samplesPerSecond", "priority": 1},
    {"name": "GOODPUT", "type": "string", "jsonPath": ".status.goodput.share", "priority": 1},
    {"name": "SERVERS", "type": "string", "jsonPath": ".status.parameterServers.summary", "priority": 1},
    {"name": "FRAMEWORK", "type": "string", "jsonPath": ".spec.training.framework", "priority": 1},
    {"name": "MESSAGE", "type": "string", "jsonPath": ".status.message", "priority": 1},
)


class UnknownToKubernetesError(TypeError):
    """A model uses something that has no place in a structural schema. The text says where."""


def crd() -> Schema:
    """Return the CustomResourceDefinition of TrainingJob."""
    words = {
        "kind": names.KIND,
        "listKind": f"{names.KIND}List",
        "plural": names.PLURAL,
        "singular": names.KIND.lower(),
        "shortNames": ["tj"],
        "categories": ["all"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {"group": names.GROUP, "names": words, "scope": "Namespaced", "versions": [_version()]},
    }


def _version() -> Schema:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [dict(column) for column in COLUMNS],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.workers.replicas",
                "statusReplicasPath": ".status.replicas.ready",
                "labelSelectorPath": ".status.replicas.selector",
            },
        },
        "schema": {"openAPIV3Schema": _root()},
    }


def _root() -> Schema:
    spec = model_schema(TrainingJobSpec, "spec", defaults=True)
    status = model_schema(TrainingJobStatus, "status", defaults=False)
    # What nothing has been written of yet reads as Pending, as a pod does.
    status["default"] = {"phase": str(TrainingJobStatus().phase)}
    root: Schema = {
        "description": _one_line(TrainingJob.__doc__),
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{names.API_VERSION}."},
            "kind": {"type": "string", "description": f"{names.KIND}."},
            "metadata": {"type": "object"},
            "spec": {**spec, "description": _described(TrainingJob, "spec", "spec")},
            "status": {**status, "description": _described(TrainingJob, "status", "status")},
        },
    }
    return _with_rules(root, "")


def model_schema(model: type, path: str, *, defaults: bool) -> Schema:
    """Return one model as an object schema. `path` is its place in the resource, by which its rules are found."""
    properties: Schema = {}
    for name, field in fields_of(model).items():
        alias = field.alias or name
        properties[alias] = {
            "description": _described(model, name, f"{path}.{alias}"),
            **_field(field, f"{path}.{alias}", defaults=defaults),
        }
    for name, computed in computed_of(model).items():
        properties[computed.alias or name] = {
            "description": _one_line(computed.description),
            **_typed(computed.return_type, f"{path}.{name}", defaults=defaults),
        }
    schema: Schema = {"type": "object", "properties": properties}
    required = [field.alias or name for name, field in fields_of(model).items() if field.is_required()]
    if required:
        schema["required"] = required
    if issubclass(model, BaseModel) and model.model_config.get("extra") == "allow":
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return _with_rules(schema, path)


def _described(model: type, name: str, path: str) -> str:
    """Return what `kubectl explain` says of a field."""
    if name not in descriptions(model):
        raise UnknownToKubernetesError(f"{path} has no description: kubectl explain would be silent")
    return _one_line(descriptions(model)[name])


def _field(field: FieldInfo, path: str, *, defaults: bool) -> Schema:
    schema = _constrained(field.annotation, field.metadata, path, defaults=defaults)
    if defaults:
        schema.update(_default(field))
    return schema


def _default(field: FieldInfo) -> Schema:
    """Return the default in full: the API server checks the rules before it fills in the defaults inside of it."""
    if field.is_required():
        return {}
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ((), {}):
        return {}
    return {"default": value.to_dict() if hasattr(value, "to_dict") else value}


def _typed(annotation: Any, path: str, *, defaults: bool) -> Schema:
    """Return the schema of a type, without the field's own constraints."""
    origin = get_origin(annotation)
    if annotation in _SCALARS:
        return dict(_SCALARS[annotation])
    if origin is typing.Annotated:
        inner, *constraints = get_args(annotation)
        return _constrained(inner, constraints, path, defaults=defaults)
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(annotation))}
    if origin in (types.UnionType, typing.Union):
        # In Kubernetes a null is an absent value, so the schema is that of the other type.
        arms = [arm for arm in get_args(annotation) if arm is not types.NoneType]
        if len(arms) != 1:
            raise UnknownToKubernetesError(f"{path}: a union of {len(arms)} types; use optional members and a rule")
        return _typed(arms[0], path, defaults=defaults)
    return _composed(annotation, path, defaults=defaults)


def _composed(annotation: Any, path: str, *, defaults: bool) -> Schema:
    """Return the schema of a list, a mapping or a model."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple and arguments[1:] == (...,):
        items = _typed(arguments[0], f"{path}[]", defaults=defaults)
        return {"type": "array", "items": items, "x-kubernetes-list-type": "atomic"}
    if origin is dict and arguments[0] is str:
        if arguments[1] is Any:
            return dict(_FREE)
        return {"type": "object", "additionalProperties": _typed(arguments[1], f"{path}[]", defaults=defaults)}
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return {"type": "string", "enum": [str(member) for member in annotation]}
    if isinstance(annotation, type) and hasattr(annotation, "__pydantic_fields__"):
        return model_schema(annotation, path, defaults=defaults)
    raise UnknownToKubernetesError(f"{path}: no structural schema for {annotation!r}")


def _constrained(annotation: Any, constraints: Iterable[Any], path: str, *, defaults: bool) -> Schema:
    """Return the schema of a type with its constraints."""
    parts = [part for item in constraints for part in (item.metadata if isinstance(item, FieldInfo) else [item])]
    if any(isinstance(part, IntOrString) for part in parts):
        return dict(_INT_OR_STRING)
    schema = _typed(annotation, path, defaults=defaults)
    for part in parts:
        _constrain(schema, part, path)
    return schema


def _constrain(schema: Schema, constraint: Any, path: str) -> None:
    """Add one pydantic constraint to the schema."""
    match constraint:
        case annotated_types.Ge(ge=limit):
            schema["minimum"] = limit
        case annotated_types.Le(le=limit):
            schema["maximum"] = limit
        case annotated_types.MinLen(min_length=limit):
            schema[_LIMITS[schema["type"]][0]] = limit
        case annotated_types.MaxLen(max_length=limit):
            schema[_LIMITS[schema["type"]][1]] = limit
        case Keyed(key=key):
            schema["x-kubernetes-list-type"] = "map"
            schema["x-kubernetes-list-map-keys"] = [key]
        case Weighs(most=most, cel=cel):
            schema["x-kubernetes-validations"] = [
                {
                    "rule": f"self.map(item, {cel}).sum() <= {most}",
                    "message": f"has more than {most} characters together. Put what is large into a file",
                }
            ]
        case BeforeValidator() | AfterValidator() | PlainSerializer() | Strict():
            pass  # they say how Python reads a value, not what it may be
        case _:
            raise UnknownToKubernetesError(f"{path}: no structural schema for the constraint {constraint!r}")


def _with_rules(schema: Schema, path: str) -> Schema:
    """Return the schema with the rules of this place."""
    validations = [validation(rule) for rule in RULES if path in rule.where]
    return {**schema, "x-kubernetes-validations": validations} if validations else schema


def validation(rule: Rule) -> Schema:
    """Return one rule as Kubernetes writes it."""
    entry: Schema = {"rule": rule.cel, "message": rule.plain_text}
    if rule.figures:
        entry["messageExpression"] = rule.cel_text
    if rule.field and not rule.field.startswith("metadata."):  # a fieldPath into metadata is refused
        entry["fieldPath"] = f".{rule.field}"
    return entry


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


class _SchemaDumper(yaml.SafeDumper):
    """Write YAML for people: long texts in one piece, no aliases."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def crd_yaml() -> str:
    """Return the CRD as the text of the file in `crds/`."""
    head = "# Generated from operator/trainmaster/api by `make generate`. Do not edit.\n"
    return head + yaml.dump(crd(), Dumper=_SchemaDumper, sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    sys.stdout.write(crd_yaml())
