"""Change fields of a job by the words of a command line: `--set training.steps=500`.

A path begins below spec, or with spec or metadata. The models say which fields there are and which are texts; values
are read as kubectl reads YAML. The changed job is checked like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from trainmaster.api import yaml_text
from trainmaster.api.job import TrainingJob
from trainmaster.api.problem import Location, Problem
from trainmaster.api.wording import RuleWords, unknown_field

_STEP = re.compile(r"([^.\[\]=]+)|\[(\d+)\]")
_MOST_STEPS = 50
_PATH = re.compile(r"[^.\[\]=]+(\.[^.\[\]=]+|\[\d+\])*")


def override(data: dict[str, Any], words: Sequence[str]) -> list[Problem]:
    """Change the document in place, and return what is wrong with the words."""
    return [Problem.at(1, 1, (), f"--set {word}: {told.message}", told.cure) for word, told in _applied(data, words)]


def _applied(data: dict[str, Any], words: Sequence[str]) -> Iterator[tuple[str, RuleWords]]:
    for word in words:
        path, equals, written = word.partition("=")
        if not equals or not _PATH.fullmatch(path):
            yield word, RuleWords("it is not of the form path=value", "Write for example --set training.steps=500")
            continue
        steps = tuple(int(index) if index else name for name, index in _STEP.findall(path))
        if len(steps) > _MOST_STEPS:
            yield word[:100], RuleWords("its path is nested too deeply", "A TrainingJob needs about ten levels")
            continue
        if steps[0] not in ("spec", "metadata"):
            steps = ("spec", *steps)
        wrong = _set(data, steps, written)
        if wrong:
            yield word, wrong


def _set(data: dict[str, Any], steps: Location, written: str) -> RuleWords | None:
    kind = _kind_at(steps)
    if isinstance(kind, RuleWords):
        return kind
    value = _value(written, kind)
    if isinstance(value, RuleWords):
        return value
    return _put(data, steps, value)


def _kind_at(steps: Location) -> Any:
    """Return the type of the field at these steps: None where anything may stand; words where there is none."""
    kind: Any = TrainingJob
    for step in steps:
        model = _model_in(kind)
        if model is not None and isinstance(step, str):
            fields = {str(field.alias): field.annotation for field in model.model_fields.values()}
            if step not in fields:
                strict = model.model_config.get("extra") == "forbid"
                return unknown_field(step, tuple(fields)) if strict else None
            kind = fields[step]
            continue
        holder = _origin_of(kind, tuple if isinstance(step, int) else dict)
        if holder is None and str(step).isdecimal() and _origin_of(kind, tuple) is not None:
            return RuleWords(f"{step} stands after a list", f"Write an item of a list as [{step}], without a dot")
        if holder is None:
            return RuleWords(f"there is no {step} below what stands before it", "Look at the reference of TrainingJob")
        kind = get_args(holder)[0 if isinstance(step, int) else 1]
        if kind is Any:
            return None
    return kind


def _origin_of(kind: Any, wanted: type) -> Any:
    """Return the part of a type such as `tuple[X, ...] | None` that is of this kind; None where it has none."""
    if kind is wanted or get_origin(kind) is wanted:
        return kind
    return next((found for arm in get_args(kind) if (found := _origin_of(arm, wanted)) is not None), None)


def _model_in(kind: Any) -> type[BaseModel] | None:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if get_origin(kind) in (tuple, dict):
        return None
    return next((found for arm in get_args(kind) if (found := _model_in(arm)) is not None), None)


def _value(written: str, kind: Any) -> Any:
    """Return the value that a text has where this type is wanted."""
    if written[:1] in ("[", "{"):
        (document,) = yaml_text.read(b"value: " + written.encode(errors="replace"))[:1]
        if document.problems or not isinstance(document.data, dict):
            return RuleWords(
                "its value is no list or object of YAML", "Write for example --set 'training.command=[python, a.py]'"
            )
        return document.data["value"]
    value = yaml_text.plain_value(written)
    has_text = _origin_of(kind, str) is not None or any(isinstance(arm, str) for arm in get_args(kind))
    only_text = has_text and not isinstance(value, str) and _origin_of(kind, type(value)) is None
    return written if only_text and value is not None else value


def _put(data: dict[str, Any], steps: Location, value: Any) -> RuleWords | None:
    here: Any = data
    for number, step in enumerate(steps[:-1]):
        following = steps[number + 1]
        there = _member(here, step)
        if there is None and isinstance(here, dict):
            there = here[step] = [] if isinstance(following, int) else {}
        if there is None:
            return RuleWords(f"there is no item {step} in this list", "Give the whole list")
        here = there
    last = steps[-1]
    if isinstance(here, dict):
        here[last] = value
    elif isinstance(here, list) and isinstance(last, int) and last <= len(here):
        here[last : last + 1] = [value]
    else:
        return RuleWords(
            f"there is no {last} in what the file has there", "Correct the file first, or give the whole part"
        )
    return None


def _member(here: Any, step: str | int) -> Any:
    if isinstance(here, dict):
        return here.get(step)
    return here[step] if isinstance(here, list) and isinstance(step, int) and step < len(here) else None
