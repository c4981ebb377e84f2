"""Read YAML text as kubectl does, into plain data and the line of every field.

PyYAML itself reads differently: there `lr: 1e-3` is a text and `12:30` a number, so the same file would train
differently on a laptop and on a cluster. The tables here are those of kubectl's library. Hostile text is refused with a
reason: too large, too deep, aliases that unfold without end, tags that make objects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from trainmaster.api.problem import Location, Problem

MAX_BYTES = 256 * 1024
"""What `kubectl apply` can take: it keeps a copy of the file in an annotation, and those end here."""
_MAX_VALUES = 20_000  # after aliases are unfolded
_MAX_DOCUMENTS = 100
_LONGEST_INTEGER = 80  # 64 bits with sign and prefix, and no Python integers of a megabyte

_PLAIN = "!plain"
_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_KINDS = {f"{_TAG}int": (int,), f"{_TAG}float": (int, float), f"{_TAG}bool": (bool,), f"{_TAG}null": (type(None),)}


class Document(NamedTuple):
    """A document is one part of a file: its data, line and column (from 1) of each field, and its problems."""

    data: Any
    marks: dict[Location, tuple[int, int]]
    problems: tuple[Problem, ...]


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """Read YAML up to nodes by PyYAML. What a plain text means is decided below."""

    def __init__(self, stream: bytes) -> None:
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._composed += 1
        if self._composed > 2 * _MAX_VALUES:  # a value may have a key
            raise _TooMuchError(f"the file has more than {_MAX_VALUES} values")
        return super().compose_node(parent, index)

    def resolve(self, kind: type[yaml.Node], _value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else f"{_TAG}str"
        return f"{_TAG}seq" if kind is yaml.SequenceNode else f"{_TAG}map"


def read(content: bytes) -> tuple[Document, ...]:
    """Return all documents of a file. Text that is no YAML gives one document with one problem."""
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 1024} KiB, which is all that kubectl apply can take"
        return (_refused(1, 1, message, "Put large data into a ConfigMap, a volume or the image"),)
    try:
        return tuple(_Builder().build(node) for node in _nodes(content))
    except yaml.MarkedYAMLError as error:
        return (_broken(error),)
    except (yaml.YAMLError, UnicodeError) as error:
        reason = getattr(error, "reason", None) or "it is not UTF-8"
        return (_refused(1, 1, f"this is not text: {reason}", "Save the file as plain UTF-8 text"),)
    except _TooMuchError as error:
        return (_refused(1, 1, str(error), "Put large data into a ConfigMap, a volume or the image"),)
    except RecursionError:
        return (_refused(1, 1, "the YAML is nested too deeply", "A TrainingJob needs about ten levels"),)


def _nodes(content: bytes) -> Iterator[yaml.Node]:
    loader = _Loader(content)
    for _ in range(_MAX_DOCUMENTS):
        if not loader.check_node():
            return
        node = loader.get_node()
        if node is not None:
            yield node


def _refused(line: int, column: int, message: str, cure: str) -> Document:
    return Document(None, {}, (Problem(line, column, "", message, cure),))


def _broken(error: yaml.MarkedYAMLError) -> Document:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    words = ", ".join(part for part in (error.context, error.problem) if part)
    cure = (
        "Use blanks in place of tabs"
        if "\\t" in words
        else "Look at the indentation, colons and quotes here and in the line above"
    )
    return _refused(line, column, f"this is not YAML: {words}", cure)


class _TooMuchError(Exception):
    """Aliases unfold to more values than a job can have."""


class _Builder:
    """Make data of one document's nodes, and keep its marks and problems."""

    def __init__(self) -> None:
        self._marks: dict[Location, tuple[int, int]] = {}
        self._problems: list[Problem] = []
        self._values = 0
        self._open: set[int] = set()  # nodes that we are inside of: one that comes again holds itself

    def build(self, node: yaml.Node) -> Document:
        """Return the document whose root is `node`."""
        try:
            data = self._value(node, ())
        except _TooMuchError as error:
            data = None
            self._problem(node, (), str(error), "Write the values out, or use fewer aliases")
        return Document(data, self._marks, tuple(self._problems))

    def _problem(self, node: yaml.Node, location: Location, message: str, cure: str) -> None:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self._problems.append(Problem.at(line, column, location, message, cure))

    def _value(self, node: yaml.Node, location: Location) -> Any:
        self._marks.setdefault(location, (node.start_mark.line + 1, node.start_mark.column + 1))
        self._values += 1
        if self._values > _MAX_VALUES:
            raise _TooMuchError(f"the aliases unfold to more than {_MAX_VALUES} values")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, location)
        if id(node) in self._open:
            raise _TooMuchError("an alias stands inside of what it stands for, so it never ends")
        self._open.add(id(node))
        try:
            return self._mapping(node, location) if isinstance(node, yaml.MappingNode) else self._list(node, location)
        finally:
            self._open.discard(id(node))

    def _list(self, node: yaml.Node, location: Location) -> list[Any]:
        self._check_tag(node, location, f"{_TAG}seq")
        return [self._value(item, (*location, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        self._check_tag(node, location, f"{_TAG}map")
        data: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _PLAIN and key_node.value == "<<":
                merged = {**self._merged(value_node, location), **merged}
                continue
            key = self._key(key_node, location)
            where = (*location, key)
            if key in data:
                self._problem(key_node, where, f"{key} stands here a second time", "Remove one of the two")
            self._marks[where] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            data[key] = self._value(value_node, where)
        return {**merged, **data}

    def _merged(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        """Return the members that `<<: *alias` adds; with a list, the first alias wins."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for part in nodes:
            value = self._value(part, location)
            if isinstance(value, dict):
                merged = {**value, **merged}
            else:
                self._problem(part, location, "<< takes an object, and this is none", "Remove it")
        return merged

    def _key(self, node: yaml.Node, location: Location) -> str:
        """Return a key as the text that kubectl makes of it."""
        if not isinstance(node, yaml.ScalarNode):
            self._problem(node, location, "a key must be a word", "Use a plain word before the colon")
            return "?"
        value = self._scalar(node, location)
        if isinstance(value, bool):
            word = "true" if value else "false"
            if node.value.lower() != word:  # `n: 5`, as an argument's name
                said = f"{node.value} is a word for {word} in YAML, as kubectl reads it, and no name"
                self._problem(node, location, said, f'Put it in quotes: "{node.value}"')
            return word
        return str(node.value) if value is None else str(value)

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        if node.tag == f"{_TAG}str":
            # Two escapes that JSON writes for one emoji are joined.
            try:
                return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                self._problem(node, location, "this text holds half a character", "Remove the \\u escape")
                return ""
        value = plain_value(node.value)
        if isinstance(value, float) and not math.isfinite(value):
            self._problem(node, location, f"{node.value} is a number that JSON cannot hold", "Put it in quotes")
        if node.tag != _PLAIN and not isinstance(value, _KINDS.get(node.tag, ())):
            self._check_tag(node, location, _PLAIN)
        return value

    def _check_tag(self, node: yaml.Node, location: Location, expected: str) -> None:
        if node.tag != expected:
            tag = str(node.tag).replace(_TAG, "!!")
            self._problem(node, location, f"the tag {tag} is not allowed here", "Remove it; a plain value is enough")


def plain_value(text: str) -> Any:
    """Return the value that a text without quotes has for kubectl."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text if text[0] == "." else text.replace("_", "")
    number: float | None = _integer(digits)
    if number is None and _FLOAT.fullmatch(digits):
        number = float(digits)
    if number is None or (isinstance(number, float) and not math.isfinite(number)):
        return text
    # On its way through JSON 256.0 becomes 256.
    return int(number) if number == math.floor(number) and abs(number) < 2**63 else float(number)


def _integer(digits: str) -> int | None:
    match = _INTEGER.fullmatch(digits)
    if match is None or len(digits) > _LONGEST_INTEGER:
        return None
    sign, *forms = match.groups()
    base, form = next((base, form) for base, form in zip((16, 2, 8, 10), forms, strict=True) if form is not None)
    number = int(form, base) * (-1 if sign == "-" else 1)
    return number if -(2**63) <= number < 2**64 else None
