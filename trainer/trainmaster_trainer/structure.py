"""Handle tensors in lists, tuples, mappings and dataclasses, as samples, batches and a model's outputs have them.

What comes out is of the class that went in, with all that it knows besides its members, as torch's default_collate
keeps it: a model may ask its inputs for an attribute, a loss its outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


def members(value: Any) -> list[Any]:
    """Return the members of a list, tuple, mapping or dataclass; nothing for anything else."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, Mapping):
        return list(value.values())
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in fields(value)]
    return []


def leaves(value: Any) -> list[Tensor]:
    """Return all tensors in a structure."""
    if isinstance(value, Tensor):
        return [value]
    return [leaf for member in members(value) for leaf in leaves(member)]


def each_tensor(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a structure with `change` applied to its tensors."""
    if isinstance(value, Tensor):
        return change(value)
    return each_member(value, lambda member: each_tensor(member, change))


def each_member(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with `change` applied to its members; the same object where none of them changes."""
    before = members(value)
    after = [change(member) for member in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(*after) if hasattr(value, "_fields") else type(value)(after)
    if isinstance(value, Mapping):
        return _mapping_like(value, dict(zip(value, after, strict=True)))
    clone = copy.copy(value)
    for field, member in zip(fields(value), after, strict=True):
        object.__setattr__(clone, field.name, member)  # also where it is frozen
    return clone


def _mapping_like(value: Any, items: dict[Any, Any]) -> Any:
    """Return such a mapping with these items; a plain dict only if it cannot be made. Some refuse an update."""
    try:
        if not isinstance(value, MutableMapping):
            return type(value)(items)
        clone = copy.copy(value)
        for key, item in items.items():
            clone[key] = item
    except TypeError:
        return items
    return clone


def to_device(value: Any, device: torch.device) -> Any:
    """Return the structure with its tensors on the device."""
    return each_tensor(value, lambda tensor: tensor.to(device, non_blocking=True))


def part_of(value: Any, first: int, end: int) -> Any:
    """Return samples `first` to `end - 1` of a structure."""
    if isinstance(value, Tensor) or are_texts(value):
        return value[first:end]
    return each_member(value, lambda member: part_of(member, first, end))


def are_texts(value: Any) -> bool:
    """Return whether this is one text per sample: default_collate gives a list if they are in a dict, else a tuple."""
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, (str, bytes)) for item in value)
