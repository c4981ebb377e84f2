"""Turn pydantic's errors into words for the author of a YAML file: what is wrong, and what to change.

Every message says what was found; every cure is something that the author can type.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pydantic_core import ErrorDetails

from trainmaster.api.problem import Location
from trainmaster.api.sizes import BAD_EXPRESSION, HAS_NUL, SAID_TWICE, TOKEN_LASTS, TOO_HEAVY, TOO_LARGE


class RuleWords(NamedTuple):
    """Hold a message and its cure."""

    message: str
    cure: str


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` was probably meant to be; None if none is close."""
    by_lower = {name.lower(): name for name in known}
    folded = word.lower().replace("_", "").replace("-", "")
    matches = difflib.get_close_matches(folded, by_lower, n=1, cutoff=0.7)
    return by_lower[matches[0]] if matches else None


def unknown_field(name: str, known: tuple[str, ...]) -> RuleWords:
    """Return the words about a field that does not exist."""
    near = closest(name, known)
    if near is not None:
        return RuleWords(f"there is no field {name} here", f"Did you mean {near}?")
    return RuleWords(
        f"there is no field {name} here", f"The fields here are {', '.join(known)}" if known else "Remove it"
    )


# What people write under workers and a pod has elsewhere: in its spec, or in its container.
_OF_A_POD = (
    *("dnsConfig", "dnsPolicy", "hostAliases", "initContainers", "nodeName", "overhead", "resourceClaims"),
    *("runtimeClassName", "schedulerName", "terminationGracePeriodSeconds", "topologySpreadConstraints"),
)
_OF_A_CONTAINER = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "volumeDevices", "workingDir")
_ELSEWHERE = {
    **{name: f"Write it in a pod template: template: {{spec: {{{name}: ...}}}}" for name in _OF_A_POD},
    **{
        name: f"Write it in a pod template: template: {{spec: {{containers: [{{name: trainer, {name}: ...}}]}}}}"
        for name in _OF_A_CONTAINER
    },
    **{
        name: f"Write it in a pod template: template: {{metadata: {{{name}: ...}}}}"
        for name in ("labels", "annotations")
    },
    "containers": "Write spec.training.command, and sidecars in template: {spec: {containers: [...]}}",
    "command": "Write spec.training.command",
    "args": "Write spec.training.command, which has the arguments too",
    "workingDir": "Write spec.training.workingDirectory",
    "limits": "Set cpu, memory and gpus",
    "requests": "Set cpu, memory and gpus",
}


def of_a_pod(location: Location) -> RuleWords | None:
    """Return the words about a field of a pod or a container that stands right under a role; None if it is none."""
    name = str(location[-1])
    if location[:-1] not in (("spec", "workers"), ("spec", "parameterServers")) or name not in _ELSEWHERE:
        return None
    return RuleWords(f"there is no field {name} here", _ELSEWHERE[name])


def describe_value(value: Any) -> str:
    """Return a value in the reader's words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the word {'true' if value else 'false'}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {json.dumps(value[:40], ensure_ascii=False)}"
    return "a list" if isinstance(value, (list, tuple)) else "an object"


def words_for(error: ErrorDetails, value: Any) -> RuleWords:
    """Return the words about one error of `value`."""
    wording = _WORDINGS.get(error["type"])
    if wording is None:
        return RuleWords(error["msg"][:1].lower() + error["msg"][1:], "Look at the reference of TrainingJob")
    return wording(error.get("ctx", {}), value)


def _whole_number(_context: dict[str, Any], value: Any) -> RuleWords:
    if isinstance(value, str) and value.strip().lstrip("+-").isdigit():
        return RuleWords(f"must be a whole number, and is {describe_value(value)}", "Remove the quotes")
    return RuleWords(f"must be a whole number, and is {describe_value(value)}", "Write a number such as 4")


def _number(_context: dict[str, Any], value: Any) -> RuleWords:
    if isinstance(value, str) and _is_number(value):
        return RuleWords(f"must be a number, and is {describe_value(value)}", "Remove the quotes")
    return RuleWords(f"must be a number, and is {describe_value(value)}", "Write a number such as 1.0")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number_or_text(_context: dict[str, Any], value: Any) -> RuleWords:
    if isinstance(value, float):
        return RuleWords(
            f"must be a whole number or a text, and is {describe_value(value)}", f'Write "{value}" in quotes'
        )
    return RuleWords(f"must be a whole number or a text, and is {describe_value(value)}", "Write a number or a text")


def _text(_context: dict[str, Any], value: Any) -> RuleWords:
    if isinstance(value, (bool, int, float)):
        written = json.dumps(value)
        return RuleWords(f"must be a text, and is {describe_value(value)}", f'Put it in quotes: "{written}"')
    return RuleWords(f"must be a text, and is {describe_value(value)}", "Write a word or a text in quotes")


def _choice(context: dict[str, Any], value: Any) -> RuleWords:
    choices = str(context["expected"]).replace("'", "").replace(" or ", ", ")
    near = closest(value, choices.split(", ")) if isinstance(value, str) else None
    cure = f"Did you mean {near}? It is one of {choices}" if near else f"Write one of {choices}"
    return RuleWords(f"is {describe_value(value)}, which is none of the choices", cure)


def missing(name: str, meaning: str, choices: tuple[str, ...]) -> RuleWords:
    """Return the words about a required field that is missing; `meaning` is its description."""
    if choices:
        return RuleWords(f"{name} is missing", f"Write one of {', '.join(choices)}")
    first = meaning.partition(". ")[0].rstrip(".")
    return RuleWords(f"{name} is missing", f"Set {name}: {first[:1].lower()}{first[1:]}")


def _list(_context: dict[str, Any], value: Any) -> RuleWords:
    if isinstance(value, str):
        return RuleWords(f"must be a list, and is {describe_value(value)}", f"Write [{', '.join(value.split())}]")
    return RuleWords(f"must be a list, and is {describe_value(value)}", "Put a - before each item")


def _object(_context: dict[str, Any], value: Any) -> RuleWords:
    return RuleWords(
        f"must be an object, and is {describe_value(value)}", "Write its fields below it, indented by two more blanks"
    )


def _bound(key: str, word: str) -> Callable[[dict[str, Any], Any], RuleWords]:
    def wording(context: dict[str, Any], value: Any) -> RuleWords:
        return RuleWords(f"must be {word} {context[key]}, and is {value}", f"Write {context[key]} or {_MORE[word]}")

    return wording


def _size(key: str, word: str, unit: str) -> Callable[[dict[str, Any], Any], RuleWords]:
    def wording(context: dict[str, Any], value: Any) -> RuleWords:
        limit = context[key]
        if len(value) == 0:
            return RuleWords("is empty", "Remove it, or fill it")
        message = f"must have {word} {limit} {unit}, and has {len(value)}"
        return RuleWords(message, "Make it longer" if word == "at least" else "Make it shorter")

    return wording


def _too_large(context: dict[str, Any], _value: Any) -> RuleWords:
    message = (
        f"has {context['size']:,} bytes {context['how']}, and a process can be started with {context['most']:,} at most"
    )
    return RuleWords(message, context["cure"])


_MORE = {"at least": "more", "at most": "less"}
_WORDINGS: dict[str, Callable[[dict[str, Any], Any], RuleWords]] = {
    "int_type": _whole_number,
    "float_type": _number,
    "int_from_float": _whole_number,
    "int_or_text": _number_or_text,
    "string_type": _text,
    "bool_type": lambda _context, value: RuleWords(
        f"must be true or false, and is {describe_value(value)}", "Write true or false"
    ),
    "literal_error": _choice,
    "tuple_type": _list,
    "dict_type": _object,
    "model_type": _object,
    "model_attributes_type": _object,
    "greater_than_equal": _bound("ge", "at least"),
    "less_than_equal": _bound("le", "at most"),
    "string_too_short": _size("min_length", "at least", "characters"),
    "string_too_long": _size("max_length", "at most", "characters"),
    "too_short": _size("min_length", "at least", "items"),
    "too_long": _size("max_length", "at most", "items"),
    TOO_LARGE: _too_large,
    TOKEN_LASTS: lambda context, _value: RuleWords(
        f"has a token with the audience {context['audience']} that lasts for more than an hour",
        f"Set expirationSeconds to {context['most']} at most",
    ),
    TOO_HEAVY: lambda context, _value: RuleWords(
        f"has {context['size']:,} bytes as JSON, and {context['most']:,} is the most", context["cure"]
    ),
    SAID_TWICE: lambda context, _value: RuleWords(context["what"], "Remove one of the two, or say the same in both"),
    BAD_EXPRESSION: lambda context, _value: RuleWords(context["what"], context["cure"]),
    HAS_NUL: lambda _context, _value: RuleWords("holds the character NUL, which no process can be given", "Remove it"),
    "duplicate": lambda context, _value: RuleWords(
        f"{context['key']} {context['value']} stands in this list a second time", "Remove one of the two"
    ),
}
