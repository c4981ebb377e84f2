"""Run `trainmaster schema`: print a JSON Schema of TrainingJob, by which editors complete and check job files.

It is made of the CRD's schema, which is made of the models: what Kubernetes alone understands is left out, and fields
that nobody knows are refused.
"""

import json
from typing import Any

from trainmaster.api.schema import crd
from trainmaster.cli.terminal import tell
from trainmaster.wire import names

Schema = dict[str, Any]

_FREE = "x-kubernetes-preserve-unknown-fields"
_METADATA: Schema = {
    "type": "object",
    "description": "The job's name, its namespace, labels and annotations.",
    "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}, "namespace": {"type": "string"}},
}


def print_schema() -> int:
    """Run the command, and return its exit code."""
    tell(json.dumps(schema(), indent=2).split("\n"))
    return 0


def schema() -> Schema:
    """Return the schema of a job file, in draft 7, which editors know best."""
    version = crd()["spec"]["versions"][0]
    job = _plain(version["schema"]["openAPIV3Schema"])
    job["properties"] |= {
        "apiVersion": {"const": names.API_VERSION},
        "kind": {"const": names.KIND},
        "metadata": _METADATA,
        "status": {
            "type": "object",
            "description": "What Trainmaster says about the job. It is not written by people.",
        },
    }
    job["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": names.KIND, **job}


def _or_nothing(schema: Schema) -> Schema:
    """Return the schema of a field that may be left out: to write nothing after its colon is the same."""
    kinds = schema.get("type", [])
    more = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, **more, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]} if kinds else schema


def _plain(schema: Schema) -> Schema:
    """Return a structural schema of Kubernetes as plain JSON Schema."""
    plain = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        return {**{key: value for key, value in plain.items() if key != "maxLength"}, "type": ["integer", "string"]}
    if "items" in plain:
        plain["items"] = _plain(plain["items"])
    if "properties" in plain:
        required = plain.get("required", [])
        plain["properties"] = {
            name: _plain(inner) if name in required else _or_nothing(_plain(inner))
            for name, inner in plain["properties"].items()
        }
        plain["additionalProperties"] = bool(schema.get(_FREE))
    elif isinstance(plain.get("additionalProperties"), dict):
        plain["additionalProperties"] = _plain(plain["additionalProperties"])
    return plain
