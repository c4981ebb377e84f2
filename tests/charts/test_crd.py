"""The CRD in the chart is the generated one, stays when the release goes, and names no other namespace."""

import runpy
from collections.abc import Iterator
from typing import Any

import yaml
from trainmaster.api.schema import crd

from .tools import CHART, ROOT, Object, of_kind, render, the


def test_the_copy_is_what_the_generator_writes() -> None:
    generator = runpy.run_path(str(ROOT / "charts" / "generate.py"))
    expected = generator["template"](generator["crd_yaml"]())
    assert (CHART / "templates" / "crd.yaml").read_text() == expected, "run make generate"


def test_helm_renders_the_generated_crd_whole() -> None:
    rendered = the(render(), "CustomResourceDefinition")
    annotations, labels = rendered["metadata"].pop("annotations"), rendered["metadata"].pop("labels")
    assert annotations == {"helm.sh/resource-policy": "keep"}
    assert labels["app.kubernetes.io/name"] == "trainmaster"
    assert rendered == yaml.safe_load(yaml.safe_dump(crd()))


def test_braces_in_a_description_survive_helm() -> None:
    generator = runpy.run_path(str(ROOT / "charts" / "generate.py"))
    text = generator["template"]("kind: X\nmetadata:\n  name: a {{ b }}\n")
    assert "a {{ `{{` }} b }}" in text


def test_the_crd_can_be_left_to_somebody_else() -> None:
    assert of_kind(render("crds.install=false"), "CustomResourceDefinition") == []


def test_no_field_of_a_trainingjob_names_a_namespace() -> None:
    """Whoever may create a TrainingJob in one namespace must reach nothing in another."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    named = [path for path in _fields(spec, "spec") if path.rsplit(".", 1)[-1].lower() in ("namespace", "namespaces")]
    assert named == []


def _fields(schema: Object, path: str) -> Iterator[str]:
    properties: dict[str, Any] = schema.get("properties", {})
    for name, inner in properties.items():
        yield f"{path}.{name}"
        yield from _fields(inner, f"{path}.{name}")
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from _fields(inner, f"{path}[]")
