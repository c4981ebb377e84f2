"""Be the first program of a pod: `python3 -I .../agent/start.py` checks Python, sorts variables, and runs the agent.

Kubernetes gives a container's variables to its first program, and those of a user are meant for the user's program:
a PYTHONPATH, a PATH or an LD_LIBRARY_PATH could keep the agent from starting at all. So Python starts isolated (-I),
and the operator hands such variables over under other names (`names.ENV_OF_THE_USER`). Here they get their own back.

Any Python 3 must be able to read this file, so that an old one is told in a sentence what it lacks.
"""

import os
import sys
from typing import MutableMapping

_LEAST = (3, 9)
_BAD_CONFIGURATION = 78  # names.EXIT_BAD_CONFIGURATION, before that module can be imported
_LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120


def check_python() -> None:
    """End with a sentence where this Python is too old for the agent."""
    if sys.version_info < _LEAST:
        found = sys.version.split()[0]
        sys.stderr.write(
            "The image has Python " + found + " (" + sys.executable + "), and the agent needs Python 3.9 or newer: use "
            "an image whose python3 is 3.9 or newer (spec.workers.image), or none, for Trainmaster's own.\n"
        )
        sys.exit(_BAD_CONFIGURATION)


def give_back(environment: MutableMapping[str, str]) -> None:
    """Restore the user's variables, add our code to PYTHONPATH, and fill in what libraries expect to be set."""
    from trainmaster.wire import names  # noqa: PLC0415  an older Python could not read it

    explicit = names.ENV_OF_THE_USER + "HOME" in environment
    for name in [name for name in environment if name.startswith(names.ENV_OF_THE_USER)]:
        environment[name[len(names.ENV_OF_THE_USER) :]] = environment.pop(name)
    for name in names.LOCAL_ONLY:
        environment.pop(name, None)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != _LIBRARY]
    environment["PYTHONPATH"] = os.pathsep.join([_LIBRARY] + paths)  # noqa: RUF005  for old Pythons
    environment.setdefault("PYTHONUNBUFFERED", "1")
    # Libraries look up who they are, and a number without a name is an error to some.
    environment.setdefault("USER", "trainmaster")
    # An image names the home of its own user, mostly root, where the pod's user may not write.
    if not explicit and not os.access(environment.get("HOME", ""), os.W_OK):
        environment["HOME"] = "/tmp"  # noqa: S108  a volume of the pod's own


def main() -> int:
    """Run the agent; return its exit code."""
    check_python()
    sys.path.insert(0, _LIBRARY)
    give_back(os.environ)
    from trainmaster_trainer.agent.__main__ import main as run_agent  # noqa: PLC0415  likewise

    return run_agent()


if __name__ == "__main__":
    sys.exit(main())
