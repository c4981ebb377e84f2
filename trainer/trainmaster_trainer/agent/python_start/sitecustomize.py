"""Do at the start of every Python of a rank's command what `../any_python.py` has set it up for, and step aside.

`site` imports this before the program, as this folder is first on PYTHONPATH. Any Python from 2.7 on must be able to
run it. Only where the process is one of a rank, and Python is 3.9 or newer, are our packages imported, which import
nothing that takes time; the optimizer steps are waited for then, and the signal that asks for stacks is listened for.
The `sitecustomize` that would have been found without this folder runs then, in its own name.
"""

import os
import sys

_US = sys.modules.pop("sitecustomize", None)  # kept: Python 2 empties a module that nobody has any more
_FOLDER = os.path.dirname(__file__)  # noqa: PTH120 pathlib takes longer than all that is done here
sys.path[:] = [path for path in sys.path if path != _FOLDER]
sys.path_importer_cache.pop(_FOLDER, None)
_PACKAGES = os.environ.get("TRAINMASTER_PACKAGES")  # wire.names.ENV_PACKAGES
try:
    if _PACKAGES and sys.version_info >= (3, 9):
        _PATH = sys.path
        sys.path = _PACKAGES.split(os.pathsep) + _PATH
        try:
            import trainmaster  # noqa: F401 what is imported later finds it
            from trainmaster_trainer.agent import awaited_torch, stack_signal
        finally:
            sys.path = _PATH
        awaited_torch.count()
        stack_signal.listen(os.environ.get("TRAINMASTER_STACKS_FILE"))  # wire.names.ENV_STACKS_FILE
except Exception:  # noqa: BLE001, S110 whatever is wrong here, the program is not to notice
    pass

# Where there is none, its ImportError says so to `site`, which expects that.
__import__("sitecustomize")
