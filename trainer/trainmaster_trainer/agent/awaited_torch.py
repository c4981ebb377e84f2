"""Count optimizer steps as soon as the program has imported torch; it is not made to.

Every Python that a rank starts imports this before its program, so it imports nothing but `sys`: what counts
(`optimizer_steps`) is imported with the first step. A process that takes none, as a data loader's, does without.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in typing, which takes longer to import than all that is done here
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

_OPTIMIZER = "torch.optim.optimizer"
_registered = False
_stepped: Optional[Callable[[Any], None]] = None  # what is told of each step, once there was one


def count(stepped: Optional[Callable[[Any], None]] = None) -> None:
    """Count from here on, or as soon as torch is there. `stepped`: what is told of each step, where that is here."""
    global _stepped  # noqa: PLW0603 one process counts once
    _stepped = stepped or _stepped
    if not _register() and not any(isinstance(one, _Awaited) for one in sys.meta_path):
        sys.meta_path.insert(0, _Awaited())


class _Awaited:
    """_Awaited is asked for every module that is not there yet, and finds none: it only looks whether torch is there.

    It takes itself away then. torch imports more modules after that of its optimizers.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 the protocol's
        if _register() and self in sys.meta_path:
            sys.meta_path.remove(self)


def _register() -> bool:
    """Have torch call us after every step, once; return whether there is nothing more to wait for."""
    global _registered  # noqa: PLW0603 likewise
    register = getattr(sys.modules.get(_OPTIMIZER), "register_optimizer_step_post_hook", None)
    if register is not None and not _registered:
        _registered = True
        register(_note_step)
    return register is not None


def _note_step(optimizer: Any, arguments: Any, keywords: Any) -> None:  # noqa: ARG001 torch's protocol
    """Note that this optimizer has stepped. torch calls it after every step of every optimizer."""
    global _stepped  # noqa: PLW0603 likewise
    compiler = getattr(sys.modules["torch"], "compiler", None)
    if compiler is not None and hasattr(compiler, "is_compiling") and bool(compiler.is_compiling()):
        return  # it is no step, but the compiler that reads one
    try:
        if _stepped is None:
            from trainmaster_trainer.agent.optimizer_steps import Count  # noqa: PLC0415 only where steps are taken

            _stepped = Count(elsewhere=True).stepped
        _stepped(optimizer)
    except Exception:  # noqa: BLE001, S110 whatever is wrong here, the script trains on
        pass
