"""Define how the state of a script (`session.state`) lies in a checkpoint, and check that one can be read.

scalars["session"]    {"ranks": how many saved it, "total": steps or 0, "objects": {name: tree}, "kinds": {name: type}};
                      the tree is null where each rank has its own; kinds are those of optimizers and schedules
model/<name>          of the module that is called `model`; of all modules, if none is
<object>/<path>       tensors of other modules and of optimizers
objects/<name>/...    what is equal on all ranks
ranks/<rank>/...      what each rank has of its own; ranks/<rank>/json: the trees of it

`trees.py` says what a tree is.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from trainmaster.wire import bounded_json
from trainmaster.wire.manifest import MOST_RANKS, MOST_TENSORS, MOST_VALUES, SCRIPT

from trainmaster_trainer.checkpoint import trees
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.state import State

OWN = "ranks"
SHARED = "objects"


def packed(own: Mapping[str, Any]) -> Tensor:
    """Return a rank's own trees as a tensor."""
    return torch.frombuffer(bytearray(json.dumps(own).encode()), dtype=torch.uint8)


def trees_of(state: State, rank: int) -> dict[str, Any]:
    """Return the tree of each object, as `rank` of those that saved the state has it.

    Raises:
        ValueError, KeyError, TypeError: it is not there.
    """
    session = state.scalars[SCRIPT]
    found = dict(session["objects"])
    if any(tree is None for tree in found.values()):
        text = state.tensors[f"{OWN}/{rank}/json"].numpy().tobytes()
        own = bounded_json.parse(text, MOST_VALUES, MOST_TENSORS)
        found = {name: own[name] if tree is None else tree for name, tree in found.items()}
    return found


def check_readable(state: State) -> None:
    """Check that all that a script restores is there.

    Raises:
        CorruptCheckpointError: it is not.
    """
    try:
        ranks = state.scalars[SCRIPT]["ranks"]
        operator.index(state.scalars[SCRIPT]["total"])
        ", ".join(state.scalars[SCRIPT].get("kinds", {}).values())  # all of them are text
        own = any(tree is None for tree in state.scalars[SCRIPT]["objects"].values())
        for rank in range(min(ranks, MOST_RANKS) if own else 1):
            for tree in trees_of(state, rank).values():
                trees.read(tree, state.tensors, lambda tensor, *_: tensor)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise CorruptCheckpointError(f"what it says of the script's objects cannot be read: {error!r:.200}") from None
