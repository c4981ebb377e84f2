"""Run `python -m trainmaster_trainer.agent`, PID 1 of a replica. The environment alone configures it."""

from __future__ import annotations

import os
import sys

from trainmaster.wire import names

from trainmaster_trainer.agent import agent_settings
from trainmaster_trainer.agent.engine import Engine


def main() -> int:
    """Run the agent; return its exit code."""
    os.environ.setdefault("RES_OPTIONS", names.RESOLVER_OPTIONS)  # ranks and store inherit it
    try:
        if names.ENV_CODE in os.environ:
            from trainmaster_trainer.agent import bundled  # noqa: PLC0415 (tarfile takes a megabyte, and most need none)

            bundled.bring(os.environ)
        configuration = agent_settings.read(os.environ)
    except agent_settings.SettingsError as error:
        sys.stderr.write(f"trainmaster agent: {error}\n")
        return names.EXIT_BAD_CONFIGURATION
    return Engine(configuration).run()


if __name__ == "__main__":
    sys.exit(main())
