"""Choose who reads a document, and make the TrainingJob of what was read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from trainmaster.api import yaml_text
from trainmaster.api.job import TrainingJob
from trainmaster.api.wording import closest
from trainmaster.conversion import commands, kubeflow, rayjob, trainjob
from trainmaster.conversion.source import ConversionError, ConversionNotes, Document, SourceObject
from trainmaster.wire import names

KINDS = (*kubeflow.KINDS, "TrainJob", "RayJob")
_LONGEST_NAME = 40
_OTHERS = (
    "creationTimestamp",
    "uid",
    "resourceVersion",
    "generation",
    "managedFields",
    "ownerReferences",
    "finalizers",
)


class Converted(NamedTuple):
    """Hold a TrainingJob, and a note on each field that has no counterpart or was guessed."""

    job: Document
    notes: list[tuple[str, str]]


def of_command(words: Sequence[str]) -> Converted:
    """Convert a command line of torchrun.

    Raises:
        ConversionError: it cannot be converted.
    """
    notes = ConversionNotes()
    spec = commands.of_torchrun(words, notes)
    one = spec["workers"]["replicas"] * spec["workers"].get("gpus", 1) == 1
    spec = {"strategy": {"type": "OneDevice" if one else "AllReduce"}, **spec}
    return Converted(_job({"name": commands.name_of(spec["training"]["command"])}, spec), notes.lines)


def of_file(content: bytes) -> Converted:
    """Convert the one job of a known kind in a YAML text.

    Raises:
        ConversionError: it cannot be converted.
    """
    read = yaml_text.read(content)
    broken = next((document.problems[0] for document in read if document.problems), None)
    if broken:
        raise ConversionError(f"line {broken.line}: {broken.message}. {broken.cure}")
    documents = [one for document in read for one in _listed(document.data)]
    chosen = _chosen(documents)
    notes = ConversionNotes()
    metadata = SourceObject(chosen.get("metadata"), "metadata", notes)
    spec = SourceObject(chosen.get("spec"), "spec", notes)
    if not spec:
        raise ConversionError(f"the {chosen['kind']} has no spec")
    made = _spec(str(chosen["kind"]), spec, documents)
    known = _metadata(metadata)
    spec.tell_unread()
    metadata.tell_unread()
    return Converted(_job(known, made), notes.lines)


def _listed(document: Any) -> list[Any]:
    """Return the objects of a list, as kubectl get prints it; else the document."""
    items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    return items if isinstance(items, list) else [document]


def _chosen(documents: Sequence[Any]) -> Document:
    found = [one for one in documents if isinstance(one, dict) and one.get("kind") in KINDS]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConversionError(f"there are {len(found)} jobs in the file. Put each into a file of its own")
    kinds = [str(one.get("kind")) for one in documents if isinstance(one, dict) and one.get("kind")]
    if names.KIND in kinds:
        raise ConversionError("this is a TrainingJob already: trainmaster check says whether it is good")
    meant = closest(kinds[0], KINDS) if kinds else None
    cure = f"Did you mean {meant}?" if meant else f"It reads {', '.join(KINDS)}, and a line of torchrun"
    raise ConversionError(
        f"there is no job that convert reads here, but {', '.join(kinds) or 'no kind at all'}. {cure}"
    )


def _spec(kind: str, spec: SourceObject, documents: list[Any]) -> Document:
    if kind in kubeflow.KINDS:
        return kubeflow.convert(kind, spec)
    return trainjob.convert(spec, documents) if kind == "TrainJob" else rayjob.convert(spec)


def _metadata(metadata: SourceObject) -> Document:
    """Return name and namespace, shortened to what a TrainingJob may have."""
    for name in _OTHERS:
        metadata.take(name)
    given = metadata.text("name") or (metadata.text("generateName") or "").rstrip("-")
    name = re.sub(r"[^a-z0-9]+", "-", given.lower()).lstrip("-0123456789")[:_LONGEST_NAME].rstrip("-") or "training"
    if name != given:
        metadata.notes.add("metadata.name", f"became {name}")
    made: Document = {"name": name}
    if namespace := metadata.text("namespace"):
        made["namespace"] = namespace
    labels = metadata.take("labels")
    if isinstance(labels, dict) and "kueue.x-k8s.io/queue-name" in labels:
        labels = {key: value for key, value in labels.items() if not str(key).startswith("kueue.x-k8s.io/")}
        metadata.notes.add("metadata.labels", "its queue is left out: gangs and queues are not supported yet")
    for key, value in (("labels", labels), ("annotations", metadata.take("annotations"))):
        if isinstance(value, dict) and value:
            made[key] = {str(inner): str(text) for inner, text in value.items()}
    return made


def _job(metadata: Document, spec: Document) -> Document:
    order = [name for name in TrainingJob.model_fields["spec"].annotation.model_fields if name]  # type: ignore[union-attr]
    aliases = [_camel(name) for name in order]
    ordered = {name: spec[name] for name in aliases if name in spec}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": ordered | spec}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
