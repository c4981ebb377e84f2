"""Make of a YAML file a TrainingJob, or a list of all its problems, each with its line.

The checks are those of the API server, so that what passes here is accepted there. In addition all problems are
reported at once, and misspelt names with the right ones. Nothing is printed.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from trainmaster.api import yaml_text
from trainmaster.api.descriptions import descriptions
from trainmaster.api.job import Metadata, TrainingJob
from trainmaster.api.labels import bad_labels
from trainmaster.api.launcher import refused_launch
from trainmaster.api.overrides import override
from trainmaster.api.problem import Location, Problem
from trainmaster.api.repair import Kept, has_member, keep_valid
from trainmaster.api.rules import Violation, violations
from trainmaster.api.sizes import SAID_TWICE
from trainmaster.api.wording import RuleWords, closest, missing, of_a_pod, unknown_field, words_for
from trainmaster.wire import names

_METADATA = (
    *(str(field.alias) for field in Metadata.model_fields.values()),
    *("finalizers", "ownerReferences", "managedFields", "deletionGracePeriodSeconds", "selfLink"),
)
# In the place of parts that cannot be read, so that the rules about the others can be asked.
_STAND_IN: dict[str, Any] = {
    "strategy": {"type": "AllReduce"},
    "training": {"task": "a:B", "steps": 1, "globalBatchSize": 1_000_000_000},
}


def load_file(path: Path, changes: Sequence[str] = ()) -> TrainingJob | list[Problem]:
    """Return the one TrainingJob in a file, or in standard input for -, or its problems. `changes` are those of --set.

    Raises:
        OSError: the file cannot be read.
    """
    return load(read_file(path), changes)


def read_file(path: Path) -> bytes:
    """Return the content of a job file, or of standard input for -, bounded.

    Raises:
        OSError: it cannot be read.
    """
    if str(path) == "-":
        return sys.stdin.buffer.read(yaml_text.MAX_BYTES + 1)
    with path.open("rb") as file:
        return file.read(yaml_text.MAX_BYTES + 1)


def load(content: bytes | str, changes: Sequence[str] = ()) -> TrainingJob | list[Problem]:
    """Return the one TrainingJob in a YAML text, or its problems. Documents of other kinds may stand beside it.

    A status in it, as `kubectl get -o yaml` has one, is that of another job, and so is the storage that it was given.
    """
    read = load_data(content, changes)
    return read if isinstance(read, list) else TrainingJob.parse({**read, "status": None})


def load_data(content: bytes | str, changes: Sequence[str] = ()) -> dict[str, Any] | list[Problem]:
    """Return the one TrainingJob in a YAML text as plain data, just as it was written, or its problems."""
    documents = yaml_text.read(content.encode(errors="surrogatepass") if isinstance(content, str) else content)
    chosen = _choose(documents)
    if isinstance(chosen, Problem):
        return [chosen]
    if isinstance(chosen.data, dict) and (wrong := override(chosen.data, changes)):
        return wrong
    found = [*chosen.problems, *_Check(chosen).problems()] if isinstance(chosen.data, dict) else list(chosen.problems)
    data: dict[str, Any] = chosen.data
    return sorted(set(found)) if found else data


def _choose(documents: tuple[yaml_text.Document, ...]) -> yaml_text.Document | Problem:
    """Return the document that is a TrainingJob, else a problem.

    A document that cannot be read is returned before all others.
    """
    unreadable = [document for document in documents if document.data is None and document.problems]
    if unreadable:
        return unreadable[0]
    jobs = [document for document in documents if _kind(document) == names.KIND]
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        line, column = _start(jobs[1])
        message = f"this is the second of {len(jobs)} TrainingJobs in one file"
        return Problem(line, column, "", message, "Put each into a file of its own")
    return _not_a_job(documents)


def _not_a_job(documents: tuple[yaml_text.Document, ...]) -> Problem:
    cure = f"Begin it with apiVersion: {names.API_VERSION} and kind: {names.KIND}"
    filled = [document for document in documents if document.data is not None]
    if not filled:
        return Problem(1, 1, "", "the file is empty", cure)
    first = filled[0]
    line, column = first.marks.get(("kind",), _start(first))
    if not isinstance(first.data, dict):
        return Problem(line, column, "", "this is YAML, but not an object with fields", cure)
    if "kind" not in first.data:
        return Problem(line, column, "kind", "kind is missing", cure)
    kinds = ", ".join(str(_kind(document)) for document in filled)
    near = closest(str(_kind(first)), [names.KIND])
    message = f"there is no {names.KIND} here, but {kinds}"
    return Problem.at(line, column, ("kind",), message, f"Did you mean {near}?" if near else cure)


def _kind(document: yaml_text.Document) -> Any:
    return document.data.get("kind") if isinstance(document.data, dict) else "no object"


def _start(document: yaml_text.Document) -> tuple[int, int]:
    return document.marks.get((), (1, 1))


class _Check:
    """Check one document."""

    def __init__(self, document: yaml_text.Document) -> None:
        self._data: dict[str, Any] = document.data
        self._marks = document.marks
        self._unsure: set[Location] = set()  # places that rules must not be asked about

    def problems(self) -> list[Problem]:
        """Return all problems: of the head, the shape, the rules and the labels."""
        kept = keep_valid(TrainingJob, {**self._data, "status": None})
        shape = [problem for error in kept.errors if (problem := self._shape(error)) is not None]
        told = [*self._head(), *shape, *self._rules(kept)]
        paths = tuple(problem.path for problem in told if problem.path)
        labels = [self._at(place, words) for place, words in bad_labels(self._data)]
        told += [one for one in labels if not one.path.startswith(paths)]
        launch = refused_launch(kept.model) if kept.model is not None and not told else None
        return [self._at(*launch)] if launch else told

    def _at(self, location: Location, words: RuleWords) -> Problem:
        """Return a problem on the line of the field, or on that of the nearest field above it that is there."""
        place = location
        while place and place not in self._marks:
            place = place[:-1]
        return Problem.at(*self._marks.get(place, (1, 1)), location, words.message, words.cure)

    def _head(self) -> list[Problem]:
        """Return what is wrong with the fields that Kubernetes itself requires of every object."""
        problems = []
        if "apiVersion" not in self._data:
            problems.append(
                self._at(("apiVersion",), RuleWords("apiVersion is missing", f"Write apiVersion: {names.API_VERSION}"))
            )
        metadata = self._data.get("metadata")
        if metadata is None:
            problems.append(self._at(("metadata",), RuleWords("metadata is missing", "Write metadata: {name: my-job}")))
        if isinstance(metadata, dict):
            if all(metadata.get(key) in (None, "") for key in ("name", "generateName")):
                self._unsure.add(("metadata", "name"))
                problems.append(
                    self._at(("metadata", "name"), RuleWords("the job has no name", "Write metadata: {name: my-job}"))
                )
            strange = [key for key in metadata if key not in _METADATA]
            problems.extend(self._at(("metadata", key), unknown_field(key, _METADATA)) for key in strange)
        return problems

    def _shape(self, error: ErrorDetails) -> Problem | None:
        """Return one of pydantic's errors as a problem; None if it repeats another one."""
        location, value = self._walk(error["loc"])
        if error["type"] == "extra_forbidden":
            known = tuple(str(field.alias) for field in _model_at(location[:-1]).model_fields.values())
            meant = closest(str(location[-1]), known)
            if meant is not None:
                self._unsure.add((*location[:-1], meant))
            return self._at(location, of_a_pod(location) or unknown_field(str(location[-1]), known))
        if error["type"] == "too_short" and len(value) >= error["ctx"]["min_length"]:
            return None  # there are enough, but not enough good ones
        if error["type"] == "missing":
            *above, name = error["loc"]
            model = _model_at(tuple(above))
            own, field = next(item for item in model.model_fields.items() if item[1].alias == name)
            choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
            return self._at(error["loc"], missing(str(name), descriptions(model).get(own, ""), choices))
        if error["type"] == "duplicate":
            location = (*location, error["ctx"]["index"])
        elif error["type"] == SAID_TWICE:
            location = (*location, *error["ctx"]["place"])
        elif location != error["loc"]:  # the arms of int or text: one problem, not two
            if error["loc"][-1] == "str":
                return None
            return self._at(location, words_for({**error, "type": "int_or_text"}, value))
        return self._at(location, words_for(error, value))

    def _walk(self, location: Location) -> tuple[Location, Any]:
        """Return the part of a location that exists in the document, and the value there."""
        value: Any = self._data
        for depth, part in enumerate(location):
            if not has_member(value, part):
                return location[:depth], value
            value = value[part]
        return location, value

    def _rules(self, kept: Kept[TrainingJob]) -> list[Problem]:
        job, dropped = kept.model, kept.dropped
        if job is None:
            job, dropped = self._with_stand_ins()
        if job is None:
            return []
        unsure = dropped | self._unsure
        broken = [violation for violation in violations(job) if not _touches(violation, unsure)]
        return [self._at(violation.location, RuleWords(violation.message, violation.cure)) for violation in broken]

    def _with_stand_ins(self) -> tuple[TrainingJob | None, frozenset[Location]]:
        """Return the job with its unreadable required parts replaced, and all such places; None if that fails."""
        if not isinstance(self._data.get("spec"), dict):
            return None, frozenset()
        for replaced in (["strategy"], ["training"], ["strategy", "training"]):
            data = copy.deepcopy({**self._data, "status": None})
            data["spec"].update({part: _STAND_IN[part] for part in replaced})
            kept = keep_valid(TrainingJob, data)
            if kept.model is not None:
                return kept.model, kept.dropped | {("spec", part) for part in replaced}
        return None, frozenset()


def _touches(violation: Violation, unsure: frozenset[Location]) -> bool:
    """Return whether a rule looked at a place that differs from what the user wrote."""
    reads = [(*violation.place, *path) for path in violation.rule.reads()]
    return any(a[: len(b)] == b[: len(a)] for a in reads for b in unsure)


def _model_at(location: Location) -> type[BaseModel]:
    """Return the model whose fields stand at `location`."""
    model: type[BaseModel] = TrainingJob
    for part in location:
        if isinstance(part, int):
            continue
        field = next((field for field in model.model_fields.values() if field.alias == part), None)
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            break
        model = inner
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside of `X | None`, `tuple[X, ...]` and `Annotated[X, ...]`; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (model := _model_in(inner)) is not None:
            return model
    origin = getattr(annotation, "__origin__", None)
    return _model_in(origin) if origin not in (None, annotation, tuple, dict) else None
