"""Say what `session.state(...)` returns, in a module that does nothing when it is imported.

The warm parent imports what keeps a script's state, for all ranks (`agent/warm.py`). It must not import `session`,
which says at the end of a process that a rank has left; it is the script that imports that.
"""

from __future__ import annotations


class SessionState:
    """SessionState is the state of a script's objects, which outlives its processes.

    This one does nothing: outside of Trainmaster (under plain python or torchrun) there is nobody to keep it.
    """

    def restore(self) -> int:
        """Load the newest state into the objects, and return how many steps were done by then; 0 if there is none.

        Call it once on every rank, when the objects are made and before the first step.
        """
        return 0

    def step(self, n: int, *, last: bool = False) -> None:
        """Say that `n` steps of the whole training are done. Call it on every rank after each step.

        The state is kept in memory as often as costs 3 % of the time, and saved every `checkpoint.everySteps`. Where a
        rank was asked to stop, all ranks save and leave from here with SystemExit. With `last`, no further step comes,
        though more were announced: it returns when this one is saved. All ranks say so of the same step.
        """
