"""Count the optimizer steps of a script that knows nothing of Trainmaster, through torch's hook for all optimizers.

A step that a GradScaler skips calls no optimizer, and gradients that only add up call none either: neither is counted.
See docs/decisions/0166-steps-of-a-script.md.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import weakref
from types import FrameType
from typing import Any, Dict, Optional, Set

from trainmaster.wire import names
from trainmaster.wire.progress_page import ProgressFile
from trainmaster.wire.spawning import EACH_STARTS

from trainmaster_trainer import script_progress
from trainmaster_trainer.agent import awaited_torch, rank_errors

_MOST_FRAMES = 10  # between our hook and who called the optimizer: torch's, and wrappers of schedules and the like
_MOST_PARAMETERS = 8  # that are asked for the optimizer's own count
_APART = (
    "optimizer steps are taken, and torch.distributed has no process group: each of the {} ranks trains a model of its "
    "own. Call torch.distributed.init_process_group() and train by DistributedDataParallel, FSDP or collectives; or "
    "set spec.workers.replicas, and spec.workers.gpus where there are any, to 1"
)


def count() -> None:
    """Count in this process, which is the rank's own, from here on, or as soon as the program has imported torch."""
    awaited_torch.count(Count().stepped)


class Count:
    """Count makes steps of the calls of several optimizers. `elsewhere`: in a process that the rank has started.

    A step ends with the first call of any, and the next one begins when an optimizer steps that had its turn. So two
    that step side by side (a GAN, Muon beside AdamW, one for each parameter) count as one, and whoever steps five times
    while another does so once counts five: no step is counted twice, and the count never stands still.
    """

    def __init__(self, elsewhere: bool = False) -> None:
        self._is_a_scripts = not elsewhere or names.ENV_PLACE in os.environ  # a script may run Trainmaster, and a task
        self._had_their_turn: Set[int] = set()
        self._first = True
        self._leaders: Dict[int, weakref.ref[Any]] = {}  # the optimizers that a step has ended with

    def stepped(self, optimizer: Any) -> None:
        """Note that this optimizer has stepped."""
        if not self._is_a_scripts or _makes_a_state():
            return
        me = id(optimizer)
        if me not in self._had_their_turn and self._had_their_turn:
            self._had_their_turn.add(me)
            return
        self._had_their_turn = {me}
        first, self._first = self._first, False
        led = self._leaders.get(me)
        if is_new := led is None or led() is not optimizer:
            self._leaders[me] = weakref.ref(optimizer)
        progress = script_progress.of_this_process(only_counts=True)
        if progress is not None:
            progress.counted(_own_count(optimizer) if is_new else None)
        if first and (progress is not None or multiprocessing.parent_process() is not None):
            _say_if_apart()


def _makes_a_state() -> bool:
    """Return whether torch's checkpoints take this step, with gradients and rates of 0, for the optimizer's state.

    They do so before they load one into it, and before they save that of one which has none, such as plain SGD.
    """
    frame: Optional[FrameType] = sys._getframe(1)  # noqa: SLF001 a traceback of what calls takes longer
    for _ in range(_MOST_FRAMES):
        if frame is None or frame.f_code.co_name == "_init_optim_state":
            return frame is not None
        frame = frame.f_back
    return False


def _say_if_apart() -> None:
    """Say that the ranks of this job train a model each, where they plainly do."""
    rank, _, ranks = os.environ.get(names.ENV_PLACE, "0/1").partition("/")
    distributed = sys.modules["torch.distributed"]
    if int(ranks) == 1 or not distributed.is_available():
        return
    group = (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else None
    if multiprocessing.parent_process() is None:
        # Nothing public tells of RPC.
        rpc = sys.modules.get("torch.distributed.rpc")
        is_apart, text = group is None and (rpc is None or not rpc._is_current_rpc_agent_set()), _APART  # noqa: SLF001
    else:  # it may help the rank's process, which trains itself
        helps = ProgressFile(os.environ[names.ENV_PROGRESS_FILE]).writer == os.getppid()
        is_apart, text = not helps and group != (int(rank), int(ranks)), EACH_STARTS
    if is_apart:
        say_apart(text.format(ranks))


def say_apart(text: str) -> None:
    """Say that the ranks train a model each, once in each rank, whichever of its processes finds it first."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(f"{os.environ[names.ENV_PROGRESS_FILE]}.apart", os.O_CREAT | os.O_EXCL))
        rank_errors.say(f"trainmaster: {text}")


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
