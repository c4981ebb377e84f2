"""Rename the user's variables that would change how the agent itself starts. It is pure.

PATH chooses the interpreter, the dynamic loader obeys LD_PRELOAD and LD_LIBRARY_PATH, Python PYTHONHOME and PYTHONPATH.
They are for the user's program, so the agent gives them their names back after it has started (`agent/start.py` in the
trainer).
"""

import re
from typing import Any

from trainmaster.wire import names

Document = dict[str, Any]

_AT_THE_START = re.compile(r"PATH|HOME|PYTHON\w*|LD_\w+|GLIBC_TUNABLES|GCONV_PATH|MALLOC_\w+")
# As Kubernetes reads a value: `$$` stands for one `$`, and `$(NAME)` for a variable that stands before it in the list.
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def is_sheltered(name: object) -> bool:
    """Return whether a process reads the variable of this name when it starts."""
    return isinstance(name, str) and _AT_THE_START.fullmatch(name) is not None


def sheltered(variables: list[Any]) -> list[Any]:
    """Return the list with such variables, and references to them, renamed. The order stays."""
    renamed: set[str] = set()
    return [_rename(variable, renamed) for variable in variables]


def _rename(variable: Any, renamed: set[str]) -> Any:
    if not isinstance(variable, dict):
        return variable  # a typing error in a template: the API server says what is wrong with it
    value, name = variable.get("value"), variable.get("name")
    if isinstance(value, str) and renamed:
        variable = {**variable, "value": _REFERENCE.sub(lambda found: _reference(found, renamed), value)}
    if isinstance(name, str) and is_sheltered(name):
        renamed.add(name)
        variable = {**variable, "name": names.ENV_OF_THE_USER + name}
    return variable


def _reference(found: re.Match[str], renamed: set[str]) -> str:
    return f"$({names.ENV_OF_THE_USER}{found[1]})" if found[1] in renamed else found[0]
