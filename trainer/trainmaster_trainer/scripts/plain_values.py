"""Compare the plain values of optimizers, such as learning rates: a checkpoint holds rank 0's for all ranks.

Where a model is divided (FSDP2) nothing else tells that they differ: each rank steps its own part, by its own rate.
They are compared at each save, as ranks whose rates differ for a while may have the same again later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group

_OWN_LOSS = "prev_loss"  # of LBFGS: a note of what this rank's closure gave last, which no later step looks at


def digest_of(tree: Any) -> str:
    """Return what is equal for two trees of the same values."""
    return hashlib.sha256(json.dumps(dict(_values(tree)), sort_keys=True).encode()).hexdigest()


def check_equal(trees: Mapping[str, Any], told: list[dict[str, str]], group: Group) -> None:
    """Check that each optimizer has the same tree on all ranks, which have told its digest. All ranks call it.

    Raises:
        ConfigurationError: names the first difference.
    """
    for name in sorted(trees):
        if any(one[name] != told[0][name] for one in told):
            raise ConfigurationError(_difference(name, group.gather(dict(_values(trees[name])))))


def _difference(name: str, values: list[dict[str, Any]]) -> str:
    rank = next(rank for rank, other in enumerate(values) if other != values[0])
    first, other = values[0], values[rank]
    path = next(path for path in {**first, **other} if first.get(path) != other.get(path))
    there, here = (json.dumps(one[path])[:60] if path in one else "absent" for one in (first, other))
    return (
        f"session.state: {name} is not equal on all ranks, and a checkpoint holds one for all. First difference: "
        f"{name}.state_dict(){path} is {there} on rank 0 and {here} on rank {rank}. Set it by what is equal on all "
        "ranks: give a schedule such as ReduceLROnPlateau the loss that is averaged over all ranks (all_reduce), not "
        "each rank's own."
    )


def _values(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of a tree with where it stands; of tensors their names."""
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _values(item, f"{path}[{index}]")
    elif isinstance(tree, dict) and "dict" in tree:
        for key, item in tree["dict"]:
            if key != _OWN_LOSS:
                yield from _values(item, f"{path}[{key!r}]")
    else:
        yield path, tree
