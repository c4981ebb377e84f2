"""Convert frozen dataclasses to JSON and back, with a clear error for anything that does not fit.

Heartbeats come from pods, so nothing in them is trusted: types are checked, unknown members are ignored (an older
operator must understand a newer agent), and errors name the member.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from enum import Enum
from typing import Any, Mapping, Optional, Type, TypeVar, Union

from trainmaster.wire.bounded_json import finite

T = TypeVar("T")
_fields_of = functools.cache(dataclasses.fields)
_hints = functools.cache(typing.get_type_hints)


class WireError(ValueError):
    """Report a message that does not fit its type. The text names the member."""


def encode(value: Any) -> bytes:
    """Return the canonical JSON of a dataclass: sorted members, no spaces, so that equal values have equal bytes."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":")).encode()


def to_plain(value: Any) -> Any:
    """Return dataclasses and tuples as JSON's own dicts and lists."""
    if value is None or isinstance(value, (str, int, float)):  # most values are
        return value
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {}
        for field in _fields_of(type(value)):
            member = getattr(value, field.name)
            is_empty = not member and (member is None or member is False or member in ((), {}, ""))
            # What is empty by default goes without saying: a new member changes neither bytes nor digest of messages.
            if not (is_empty and (field.default == member or field.default_factory is not dataclasses.MISSING)):
                plain[field.name] = to_plain(member)
        return plain
    return value


def decode(kind: Type[T], data: Union[bytes, str], most_items: Optional[int] = None) -> T:
    """Parse JSON into `kind`. Lists of more than `most_items` are refused before anything is made of them.

    Raises:
        WireError: not JSON, or a member is missing or of another type, or a list is too long.
    """
    try:
        plain = json.loads(data, parse_constant=finite, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from None
    waiting = [] if most_items is None else [(kind.__name__, plain)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, list):
            if most_items is not None and len(value) > most_items:
                raise WireError(f"{place}: {len(value)} are more than {most_items}")
            waiting += [(f"{place}[]", item) for item in value if isinstance(item, (list, dict))]
        elif isinstance(value, dict):
            waiting += [(f"{place}.{key}", item) for key, item in value.items() if isinstance(item, (list, dict))]
    return from_plain(kind, plain)


def from_plain(kind: Type[T], plain: Any, where: str = "") -> T:
    """Convert parsed JSON into a dataclass, like `decode`. `where`: which member of a message it is."""
    where = where or kind.__name__
    if not isinstance(plain, Mapping):
        raise WireError(f"{where}: expected an object")
    values, members = {}, _hints(kind)  # type: ignore[arg-type]  # for mypy, T may be anything
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # likewise
        if field.name in plain:
            values[field.name] = _convert(members[field.name], plain[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise WireError(f"{where}.{field.name}: missing")
    return kind(**values)


_UNIONS = (Union, getattr(types, "UnionType", Union))  # the latter is the type of `X | None`, where Python has it


def know(*kinds: type) -> None:
    """Look up the members' types of these and of all they are made of, so that decoding one need not."""
    for kind in kinds:
        if dataclasses.is_dataclass(kind):
            know(*_hints(kind).values())
        know(*[argument for argument in typing.get_args(kind) if argument is not kind])


def _convert(kind: Any, plain: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any or (origin in _UNIONS and plain is None):
        return plain
    if origin in _UNIONS:
        (inner,) = [arm for arm in typing.get_args(kind) if arm is not type(None)]
        return _convert(inner, plain, where)
    if origin is tuple:
        if not isinstance(plain, list):
            raise WireError(f"{where}: expected a list")
        inner = typing.get_args(kind)[0]
        return tuple(_convert(inner, item, f"{where}[{index}]") for index, item in enumerate(plain))
    if origin is dict:
        if not isinstance(plain, dict):
            raise WireError(f"{where}: expected an object")
        inner = typing.get_args(kind)[1]
        return {str(key): _convert(inner, item, f"{where}.{key}") for key, item in plain.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return from_plain(kind, plain, where)
    return _convert_scalar(kind, plain, where)


def _convert_scalar(kind: Any, plain: Any, where: str) -> Any:
    try:
        if issubclass(kind, Enum):
            return kind(plain)
        if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
            return float(plain)
    except OverflowError:
        raise WireError(f"{where}: the number is too large") from None
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise WireError(f"{where}: {plain!r:.40} is none of {known}") from None
    # bool is an int in Python, but not in a message.
    if not isinstance(plain, kind) or (isinstance(plain, bool) and kind is not bool):
        raise WireError(f"{where}: expected {kind.__name__}, got {type(plain).__name__}")
    return plain
