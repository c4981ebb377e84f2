"""Read the options of ParameterServer in the YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster_trainer.strategies.parameter_server.compression import check
from trainmaster_trainer.strategies.strategy import check_options

UPDATES = ("Async", "Sync")


@dataclass(frozen=True)
class ServerOptions:
    """Hold the options: how workers and servers keep in step."""

    sync: bool
    bound: int | None  # steps that a ticket may be ahead of the oldest one that is not done; None is without bound
    spare: int  # shares of a step that need not come
    compression: str  # of what workers push

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> ServerOptions:
        """Return the options of the plan.

        Raises:
            ConfigurationError: there is no such option, or value of it.
        """
        known: dict[str, tuple[str, ...]] = {"maxStaleness": (), "backupWorkers": (), "compression": ()}
        check_options("ParameterServer", options, {"update": UPDATES, **known})
        compression = str(options.get("compression", "None"))
        check(compression)
        sync = options.get("update", "Async") == "Sync"
        bound = 0 if sync else options.get("maxStaleness")
        return cls(sync, bound, int(options.get("backupWorkers") or 0), compression)
