"""Define a rule: one condition written twice, in CEL and in Python, with one text that names the field and the cure.

A rule about `spec.workers.env[]` is checked once per item. A text may hold {figures}, each again given as CEL and
Python.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

Location = tuple[str | int, ...]

_FIGURE = re.compile(r"{(\w+)}")
SUBDOMAIN = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_READ = re.compile(r"\bself((?:\.\w+)+)(\(?)")


class Figure(NamedTuple):
    """A figure is a whole number in a rule's text."""

    cel: str
    value: Callable[[Any], int]


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule is one condition with its text.

    `holds` gets the model at `where`, and for a `transition` the new and the old one.
    """

    name: str
    where: tuple[str, ...]  # places in the resource; [] stands for every item of a list
    cel: str
    holds: Callable[..., bool]
    message: str  # what is wrong
    cure: str  # what to change
    field: str = ""  # the member of `where` that it is about, as in YAML
    figures: Mapping[str, Figure] = dataclasses.field(default_factory=dict)
    transition: bool = False

    @property
    def plain_text(self) -> str:
        """Return the text with N in place of its figures."""
        return _FIGURE.sub("N", f"{self.message}. {self.cure}")

    @property
    def cel_text(self) -> str:
        """Return the text with its figures, as a CEL expression.

        It uses `format`, because adding strings has no cost bound.
        """
        text = f"{self.message}. {self.cure}"
        names = _FIGURE.findall(text)
        text = _FIGURE.sub("%d", text.replace("%", "%%"))
        return f"{json.dumps(text)}.format([{', '.join(self.figures[name].cel for name in names)}])"

    def reads(self) -> tuple[tuple[str, ...], ...]:
        """Return the members below `where` that the condition reads."""
        found: set[tuple[str, ...]] = set()
        for path, call in _READ.findall(self.cel):
            parts = tuple(path.split(".")[1:])
            found.add(parts[:-1] if call else parts)
        return tuple(sorted(found))


class Violation(NamedTuple):
    """A violation is a rule that is broken, and where."""

    rule: Rule
    place: Location
    message: str
    cure: str

    @property
    def location(self) -> Location:
        """Return the location of the field that the rule is about."""
        return (*self.place, *(self.rule.field.split(".") if self.rule.field else ()))


def check(rules: Iterable[Rule], job: Any, old: Any) -> tuple[Violation, ...]:
    """Check every rule at every one of its places, and return the violations."""
    return tuple(
        violation
        for rule in rules
        for where in rule.where
        for place, value in _places(job, where)
        if (violation := _ask(rule, place, value, old)) is not None
    )


def _ask(rule: Rule, place: Location, value: Any, old: Any) -> Violation | None:
    if rule.transition:
        before = _at(old, place)
        if before is None or rule.holds(value, before):
            return None
    elif rule.holds(value):
        return None
    figures = {name: figure.value(value) for name, figure in rule.figures.items()}
    return Violation(rule, place, _filled(rule.message, figures), _filled(rule.cure, figures))


def _filled(text: str, figures: Mapping[str, int]) -> str:
    return _FIGURE.sub(lambda match: str(figures[match[1]]), text)


def _places(root: Any, where: str) -> Iterator[tuple[Location, Any]]:
    """Yield the location and value of everything that exists at `where`."""
    found: list[tuple[Location, Any]] = [((), root)]
    for part in where.split(".") if where else ():
        name = part.removesuffix("[]")
        found = [((*way, name), member(value, name)) for way, value in found]
        found = [(way, value) for way, value in found if value is not None]
        if part.endswith("[]"):
            found = [((*way, index), item) for way, items in found for index, item in enumerate(items)]
    yield from found


def _at(root: Any, place: Location) -> Any:
    for part in place:
        if root is None:
            return None
        root = root[part] if isinstance(part, int) else member(root, part)
    return root


def member(model: BaseModel, alias: str) -> Any:
    """Return the value of the member that is called `alias` in YAML.

    Raises:
        AttributeError: the model has no such member.
    """
    for name, info in type(model).model_fields.items():
        if info.alias == alias:
            return getattr(model, name)
    raise AttributeError(f"{type(model).__name__} has no member {alias}")


def shaped(name: str, where: tuple[str, ...], field: str, pattern: str, *, message: str, cure: str) -> Rule:
    """Return a rule that a text matches `pattern` as a whole. Python and RE2 must read the pattern alike."""

    def holds(model: Any) -> bool:
        value = member(model, field)
        return value is None or re.fullmatch(pattern, value) is not None

    cel = f"!has(self.{field}) || self.{field}.matches(r'^(?:{pattern})$')"
    return Rule(name, where, cel, holds, message, cure, field=field)


def named(name: str, where: tuple[str, ...], field: str) -> Rule:
    """Return a rule that a text is the name of an object of Kubernetes."""
    message = f"{field} is not a name that Kubernetes allows"
    return shaped(
        name, where, field, SUBDOMAIN, message=message, cure="Use lower-case letters, digits, dashes and dots"
    )


def absolute(name: str, where: tuple[str, ...]) -> Rule:
    """Return a rule that the member path is an absolute path."""
    return Rule(
        name=name,
        where=where,
        field="path",
        cel="!has(self.path) || self.path.startsWith('/')",
        holds=lambda model: model.path is None or model.path.startswith("/"),
        message="path is not an absolute path",
        cure="Begin it with /",
    )
