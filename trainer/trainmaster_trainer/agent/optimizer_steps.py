"""Count the optimizer steps of a script that knows nothing of Trainmaster, through torch's hook for all optimizers.

A step that a GradScaler skips calls no optimizer, and gradients that only add up call none either: neither is counted.
A script that does not import torch is not made to. See docs/decisions/0166-steps-of-a-script.md.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Optional, Set

from trainmaster_trainer import script_progress
from trainmaster_trainer.agent import rank_errors

_OPTIMIZER = "torch.optim.optimizer"
_MOST_PARAMETERS = 8  # that are asked for the optimizer's own count
_APART = (
    "optimizer steps are taken, and torch.distributed has no process group: each of the {} ranks trains a model of its "
    "own. Call torch.distributed.init_process_group() and train by DistributedDataParallel, FSDP or collectives; or "
    "set spec.workers.replicas, and spec.workers.gpus where there are any, to 1"
)


def count(ranks: int = 1) -> None:
    """Count from here on, or as soon as the program has imported torch; `ranks` are to train one model together."""
    if not _register(ranks):
        sys.meta_path.insert(0, _Awaited(ranks))


class _Awaited:
    """_Awaited is asked for every module that is not there yet, and finds none: it only looks whether torch is there.

    It takes itself away then. torch imports more modules after that of its optimizers.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 the protocol's
        if _register(self._ranks):
            sys.meta_path.remove(self)


def _register(ranks: int) -> bool:
    """Register the hook; return whether there is nothing more to wait for."""
    module = sys.modules.get(_OPTIMIZER)
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is not None:
        register(_Count(ranks).stepped)
    return register is not None


class _Count:
    """_Count makes steps of the calls of several optimizers.

    A step ends with the first call of any, and the next one begins when an optimizer steps that had its turn. So two
    that step side by side (a GAN, Muon beside AdamW, one for each parameter) count as one, and whoever steps five times
    while another does so once counts five: no step is counted twice, and the count never stands still.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._had_their_turn: Set[int] = set()
        self._first = True

    def stepped(self, optimizer: Any, arguments: Any, keywords: Any) -> None:  # noqa: ARG002 torch's protocol
        """Note that this optimizer has stepped. torch calls it after every step of every optimizer."""
        compiler = getattr(sys.modules["torch"], "compiler", None)
        if compiler is not None and hasattr(compiler, "is_compiling") and bool(compiler.is_compiling()):
            return  # it is no step, but the compiler that reads one
        me = id(optimizer)
        if me not in self._had_their_turn and self._had_their_turn:
            self._had_their_turn.add(me)
            return
        self._had_their_turn = {me}
        first, self._first = self._first, False
        with contextlib.suppress(Exception):  # whatever is wrong here, the script trains on
            progress = script_progress.of_this_process()
            if progress is not None:
                progress.counted(_own_count(optimizer) if first else None)
                if first and self._ranks > 1 and _is_apart():
                    rank_errors.say(f"trainmaster: {_APART.format(self._ranks)}")


def _is_apart() -> bool:
    """Return whether this process has joined no group, of torch.distributed or of its RPC."""
    distributed = sys.modules["torch.distributed"]
    if not distributed.is_available() or distributed.is_initialized():
        return False
    rpc = sys.modules.get("torch.distributed.rpc")
    return rpc is None or not rpc._is_current_rpc_agent_set()  # noqa: SLF001 nothing public tells


def _own_count(optimizer: Any) -> Optional[int]:
    """Return how many steps the optimizer itself says that it has taken, as Adam does; None where it does not say.

    After a restart that is more than were counted here: the script has loaded its state.
    """
    try:
        if sys.modules["torch"].cuda.is_available() and sys.modules["torch"].cuda.is_current_stream_capturing():
            return None  # a number may lie on the device, where it cannot be read now
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        states = [optimizer.state[one] for one in parameters if one in optimizer.state]
        counts = [int(state["step"]) for state in states[:_MOST_PARAMETERS] if "step" in state]
    except Exception:  # noqa: BLE001 an optimizer of the user's own may keep anything there
        return None
    return max(counts, default=None)
