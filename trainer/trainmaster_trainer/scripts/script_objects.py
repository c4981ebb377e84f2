"""ScriptObjects are what a script wants to be kept, as one state of named tensors and JSON.

Of modules and optimizers all ranks have the same, or each its part of a DTensor; what all have is written once, and
what is no parameter (a running mean, say) is that of rank 0. Any other object is kept once if it is equal on all ranks
when a checkpoint is saved, else for each rank. A rank's random number generators are its own.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from trainmaster.wire.manifest import SCRIPT

from trainmaster_trainer.checkpoint import of_scripts, trees
from trainmaster_trainer.checkpoint.checkpointable import Snapshots
from trainmaster_trainer.checkpoint.model_state import ModelState
from trainmaster_trainer.checkpoint.neighbours import room_for
from trainmaster_trainer.checkpoint.of_scripts import OWN, SHARED
from trainmaster_trainer.checkpoint.pieces import local, local_like, placed_like
from trainmaster_trainer.checkpoint.soundness import allowed_in
from trainmaster_trainer.checkpoint.state import MODEL, Shapes, State, dtype_name
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import Group
from trainmaster_trainer.scripts import plain_values
from trainmaster_trainer.scripts.generators import OwnGenerators, with_state_dict
from trainmaster_trainer.scripts.own_rates import own_rates
from trainmaster_trainer.scripts.signs import Captured, sign_of
from trainmaster_trainer.scripts.unkept import SteppingOptimizers

log = logging.getLogger(__name__)
Placed = Callable[[Tensor, Tensor], Tensor]  # a saved tensor, and what it is to be like
_GENERATORS = "_generators"


class ScriptObjects:
    """ScriptObjects captures and restores what `session.state` was given, together with the rank's generators."""

    sync_every = 1

    def __init__(self, objects: Mapping[str, Any], group: Group, *, snapshots: bool = True) -> None:
        self._group = group
        self.total = 0  # how many steps there will be, as far as the script says; 0: it does not
        self._things = {name: with_state_dict(_unwrapped(thing)) for name, thing in objects.items()}
        self._things[_GENERATORS] = OwnGenerators()
        self._last: dict[tuple[str, str], Captured] = {}  # each object as it was captured last
        self._split = [name for name, thing in self._things.items() if isinstance(thing, nn.Module | Optimizer)]
        tensors = {full: one for name in self._split for full, one in self._captured(name)[0].tensors.items()}
        self.snapshots = self._kind(tensors) if snapshots else Snapshots.NONE
        self._room = 0  # of the trees that are this rank's own
        self._scalars: dict[str, Any] = {}  # of the last snapshot
        self._own_trees: dict[str, Any] = {}  # the trees that are this rank's own, as they were packed last
        self._packed = torch.empty(0, dtype=torch.uint8)
        self._allowed = allowed_in({name: local(tensor) for name, tensor in tensors.items()}, self._buffers(tensors))

    def _kind(self, tensors: Mapping[str, Tensor]) -> Snapshots:
        """Return how snapshots relate: where a model is divided, all of a snapshot is what its rank alone has."""
        if self._group.world_size == self._group.local_world_size:
            return Snapshots.PER_RANK
        return Snapshots.COPIED if any(isinstance(one, DTensor) for one in tensors.values()) else Snapshots.NEIGHBOURS

    @property
    def kinds(self) -> dict[str, str]:
        """Return the type of each object."""
        return {name: type(thing).__name__ for name, thing in self._things.items()}

    @property
    def _steppers(self) -> dict[str, str]:
        """Return the type of each optimizer and schedule: one of another type takes such a state, and fails later."""
        return {
            name: self.kinds[name] for name, one in self._things.items() if isinstance(one, Optimizer | LRScheduler)
        }

    def copies(self) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of each module and optimizer that all ranks have, or each a part of."""
        found = {}
        for name in self._split:
            writer, _ = self._captured(name)
            left_out = self._not_everywhere(name, writer.tensors)
            found[name] = {full: one for full, one in writer.tensors.items() if full not in left_out}
        return found

    def check_kept(self, stepping: SteppingOptimizers) -> None:
        """Say so, once, where an optimizer that takes steps is not among the objects. All ranks call it together."""
        things = {name: thing for name, thing in self._things.items() if name != _GENERATORS}
        unkept = stepping.unkept_by(things)  # on each rank: a state_dict may be a collective, and the hook goes with it
        for kind in unkept if self._group.is_first else ():
            log.warning(
                "session.state: an optimizer (%s) takes steps whose state is in none of %s: after a restart it would "
                "begin anew. Make it before session.state, and give it by a name, such as optimizer=optimizer.",
                kind, listed(things),
            )  # fmt: skip

    # --- capturing ---

    def outline(self) -> State:
        """Return what a checkpoint must fit. Only modules are asked: a loader may begin when its state is asked for."""
        shapes: Shapes = {}
        for name in self._split:
            shapes |= _shapes(self._captured(name)[0].tensors)
        model = {name: form for name, form in shapes.items() if name.startswith(MODEL)}
        return State(forms=model, allowed=self._allowed)

    def state(self) -> State:
        """Return what a checkpoint holds. All ranks call it together."""
        kept = State(scalars={SCRIPT: self._head()}, allowed=self._allowed)
        table = kept.scalars[SCRIPT]["objects"]
        own: set[str] = set()
        shapes: Shapes = {}
        for name in self._split:
            writer, table[name] = self._captured(name)
            of_first = self._not_everywhere(name, writer.tensors)
            shapes |= _shapes(writer.tensors)
            if self._group.is_first:
                own |= of_first
            kept.tensors |= {
                full: one for full, one in writer.tensors.items() if self._group.is_first or full not in of_first
            }
        own |= self._add_others(kept.tensors, table)
        model = {name: form for name, form in shapes.items() if name.startswith(MODEL)}
        is_split = any(isinstance(one, DTensor) for one in kept.tensors.values())
        kept.forms, kept.whole, kept.own = model, model if is_split else None, frozenset(own)
        return kept

    def _add_others(self, tensors: dict[str, Tensor], table: dict[str, Any]) -> set[str]:
        """Add the objects that are neither modules nor optimizers. Return the names of tensors that others lack.

        Raises:
            ConfigurationError: an optimizer in the table has not the same plain values on all ranks.
        """
        others = {name: self._captured(name) for name in self._things if name not in self._split}
        optimizers = {name: tree for name, tree in table.items() if isinstance(self._things[name], Optimizer)}
        digests = {name: plain_values.digest_of(tree) for name, tree in optimizers.items()}
        told = self._group.gather(digests | {name: _digest(*captured) for name, captured in others.items()})
        plain_values.check_equal(optimizers, told, self._group)
        own: set[str] = set()
        trees_here: dict[str, Any] = {}
        for name, (writer, tree) in others.items():
            is_shared = all(one[name] == told[0][name] for one in told) and (
                self._group.world_size > 1 or name != _GENERATORS
            )
            table[name] = tree if is_shared else None
            if is_shared and self._group.is_first:
                tensors |= writer.tensors
                own |= writer.tensors.keys()
            elif not is_shared:
                writer, trees_here[name] = self._captured(name, f"{OWN}/{self._group.rank}/{name}")  # noqa: PLW2901
                tensors |= writer.tensors
                own |= writer.tensors.keys()
        if trees_here:
            name = f"{OWN}/{self._group.rank}/json"
            tensors[name] = of_scripts.packed(trees_here)
            own.add(name)
        return own

    def local_state(self) -> State:
        """Return what this rank holds, for a snapshot in memory."""
        kept = State(allowed=self._allowed)
        table: dict[str, Any] = {}
        for name in self._things if self.snapshots is not Snapshots.NEIGHBOURS else self._split:
            writer, table[name] = self._captured(name)
            kept.tensors |= {full: local(one) for full, one in writer.tensors.items()}
        if self.snapshots is Snapshots.NEIGHBOURS:
            kept.own = frozenset(self._buffers(kept.tensors) | self._add_own(kept.tensors, table))
        head, last = self._head(), self._scalars.get(SCRIPT, {})
        if head != {**last, "objects": {}} or not _are_same(table, last["objects"]):
            self._scalars = {SCRIPT: {**head, "objects": table}}
        kept.scalars = self._scalars  # the same object again where nothing has changed
        return kept

    def _add_own(self, tensors: dict[str, Tensor], table: dict[str, Any]) -> set[str]:
        """Add the objects that are neither modules nor optimizers as this rank's own. Return their tensors' names."""
        found: dict[str, Tensor] = {}
        trees_here: dict[str, Any] = {}
        for name in self._things:
            if name not in self._split:
                table[name] = None
                writer, trees_here[name] = self._captured(name, f"{OWN}/{self._group.rank}/{name}")
                found |= writer.tensors
        if not _are_same(trees_here, self._own_trees):
            packed = of_scripts.packed(trees_here)
            self._room = room_for(packed.numel(), self._room)
            blanks = torch.full((self._room - packed.numel(),), ord(" "), dtype=torch.uint8)
            self._own_trees, self._packed = trees_here, torch.cat([packed, blanks])
        found[f"{OWN}/{self._group.rank}/json"] = self._packed
        tensors |= found
        return {*found}

    def _head(self) -> dict[str, Any]:
        return {"ranks": self._group.world_size, "total": self.total, "kinds": self._steppers, "objects": {}}

    def _captured(self, name: str, prefix: str = "") -> tuple[trees.Writer, Any]:
        """Return the tensors and the tree of an object: the same again where nothing but tensors' values has changed.

        To find that out takes a third of what it takes to make them.
        """
        is_split = name in self._split
        prefix = prefix or (self._prefix(name) if is_split else f"{SHARED}/{name}")
        state, last = self._things[name].state_dict(), self._last.get((name, prefix))
        sign = sign_of(self._things[name], state)
        if last is None or sign is None or last.sign != sign:
            writer = trees.Writer(name, prefix, as_bytes=not is_split)
            last = Captured(state, sign, writer, writer.tree(state))
            if sign is not None:
                self._last[name, prefix] = last
        return last.writer, last.tree

    def _prefix(self, name: str) -> str:
        """Return what the names of an object's tensors begin with: all modules are the model if none is called so."""
        if name == "model" or not isinstance(self._things[name], nn.Module):
            return name
        return name if isinstance(self._things.get("model"), nn.Module) else f"{MODEL}{name}"

    def _not_everywhere(self, name: str, tensors: Mapping[str, Tensor]) -> set[str]:
        """Return the names of tensors that may differ between ranks though they are those of one model: buffers."""
        thing = self._things[name]
        if not isinstance(thing, nn.Module):
            return set()
        same = {f"{self._prefix(name)}/{one}" for one, _ in thing.named_parameters(remove_duplicate=False)}
        return {full for full, one in tensors.items() if full not in same and not isinstance(one, DTensor)}

    def _buffers(self, tensors: Mapping[str, Tensor]) -> set[str]:
        modules = [name for name in self._split if isinstance(self._things[name], nn.Module)]
        return {full for name in modules for full in self._not_everywhere(name, tensors)}

    # --- restoring ---

    def restore(self, state: State) -> None:
        """Go on from a checkpoint of this job.

        Raises:
            ConfigurationError: it has other objects, or cannot be divided among so many ranks.
        """
        if SCRIPT not in state.scalars:
            raise ConfigurationError(
                "session.state: this job's checkpoints are those of a task. Train in another folder, with "
                "spec.checkpoint.resumeFrom to begin with one of them."
            )
        saved = state.scalars[SCRIPT]
        if saved["objects"].keys() != self._things.keys():
            raise ConfigurationError(
                f"session.state: it was given {listed(self._things)}, and this job's checkpoint has "
                f"{listed(saved['objects'])}. Give the same again, or begin another job with "
                "spec.checkpoint.resumeFrom."
            )
        for name, (was, here) in self._changed(saved).items():
            raise ConfigurationError(
                f"session.state: {name} is of type {here}, and was of type {was} when this job's checkpoint was saved. "
                "Give the same again, or begin another job with spec.checkpoint.resumeFrom."
            )
        self._load(state, self._things, placed_like)

    def _changed(self, saved: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Return what each optimizer and schedule that is of another type now was and is."""
        kinds = saved.get("kinds", {})
        return {name: (kinds[name], here) for name, here in self._steppers.items() if kinds.get(name, here) != here}

    def borrow(self, state: State) -> None:
        """Begin with another job's checkpoint: a script's, or a task's model and optimizer.

        What it has not got begins anew.
        """
        if SCRIPT not in state.scalars:
            self._borrow_from_task(state)
            return
        saved = state.scalars[SCRIPT]
        changed = self._changed(saved)
        there = [name for name in self._things if name in saved["objects"] and name not in changed]
        with own_rates(self._things, there, saved.get("kinds", {})):
            self._load(state, there, placed_like)
        self.total = 0  # that was the other job's
        names = (f"{name} of this type" if name in changed else name for name in self._things if name not in there)
        self._tell_anew(names)

    def _borrow_from_task(self, state: State) -> None:
        model, optimizer = self._things.get("model"), self._things.get("optimizer")
        if not isinstance(model, nn.Module):
            raise ConfigurationError(
                "spec.checkpoint.resumeFrom: a task's checkpoint has a model and an optimizer; give session.state the "
                "model as model=."
            )
        taken = ["model", _GENERATORS]
        if isinstance(optimizer, Optimizer):
            ModelState(model, optimizer).restore(state)
            taken.append("optimizer")
        else:
            here = model.state_dict()
            model.load_state_dict({name: placed_like(state.tensors[MODEL + name], one) for name, one in here.items()})
        self._tell_anew(name for name in self._things if name not in taken)

    def _tell_anew(self, names: Any) -> None:
        left = sorted(names)
        if left and self._group.is_first:
            log.warning("The checkpoint that this job begins with has no %s: that begins anew.", ", ".join(left))

    def restore_local(self, state: State) -> None:
        """Go on from a snapshot of this rank's own."""
        own = State({name: tensor.clone() for name, tensor in state.tensors.items()}, state.scalars)
        self._load(own, self._things, local_like)

    def _load(self, state: State, names: Any, placed: Placed) -> None:
        ranks, rank = state.scalars[SCRIPT]["ranks"], self._group.rank
        same = ranks == self._group.world_size
        self.total = state.scalars[SCRIPT]["total"]
        table = of_scripts.trees_of(state, rank if same else rank % ranks)
        for name in names:
            if not same and name != _GENERATORS and state.scalars[SCRIPT]["objects"][name] is None:
                raise ConfigurationError(
                    f"session.state: the state of {name} was another one on each of {ranks} ranks, and there are "
                    f"{self._group.world_size} now. Resume with {ranks} ranks, or let {name} keep what holds for all "
                    "ranks, such as the number of samples that all of them have taken."
                )
            value = trees.read(table[name], state.tensors, self._placing(name, placed))
            if name == _GENERATORS and not same and rank >= ranks:
                self._things[name].reseed(value, rank)
            else:
                _load_into(name, self._things[name], value)

    def _placing(self, name: str, placed: Placed) -> trees.Place:
        """Return what makes of a saved tensor one that `load_state_dict` takes: DTensors are as the module has them."""
        thing = self._things[name]
        here = thing.state_dict() if isinstance(thing, nn.Module) else {}
        of_optimizer = isinstance(thing, Optimizer)
        parameters = [one for group in thing.param_groups for one in group["params"]] if of_optimizer else []

        def place(tensor: Tensor, path: trees.Path, sharded: bool) -> Tensor:
            like: Any = here.get(path[0]) if here else None
            if sharded and of_optimizer and path[0] == "state":
                like = parameters[path[1]]
            return placed(tensor, like) if isinstance(like, DTensor) else tensor

        return place


def _are_same(trees: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether these are the very trees that there were before: `_captured` gives the same again."""
    return trees.keys() == before.keys() and all(tree is before[name] for name, tree in trees.items())


def _load_into(name: str, thing: Any, value: Any) -> None:
    try:
        thing.load_state_dict(value)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ConfigurationError(
            f"session.state: {name}.load_state_dict() does not take what was saved: {str(error).rstrip('.')}. "
            "Make the object as it was when it was saved, before restore()."
        ) from error


def _shapes(tensors: Mapping[str, Tensor]) -> Shapes:
    return {name: (dtype_name(one.dtype), tuple(one.shape)) for name, one in tensors.items()}


def _unwrapped(thing: Any) -> Any:
    """Return the module itself: its names must not depend on DistributedDataParallel or torch.compile around it."""
    while True:
        if isinstance(thing, DistributedDataParallel | DataParallel):
            thing = thing.module
        elif isinstance(thing, nn.Module) and isinstance(getattr(thing, "_orig_mod", None), nn.Module):
            thing = thing._orig_mod  # noqa: SLF001 (torch.compile has no public name for it)
        else:
            return thing


def _digest(writer: trees.Writer, tree: Any) -> str:
    digest = hashlib.sha256(json.dumps(tree).encode())
    for tensor in writer.tensors.values():
        digest.update(memoryview(tensor.numpy()))  # type: ignore[arg-type]  # arrays are buffers
    return digest.hexdigest()


def listed(names: Any) -> str:
    """Return the names of objects, for a sentence."""
    return ", ".join(name for name in sorted(names) if name != _GENERATORS) or "nothing"
