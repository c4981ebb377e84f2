"""Say what went wrong with a save, or after one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from trainmaster_trainer.checkpoint.copier import TornCopyError
from trainmaster_trainer.errors import ConfigurationError

log = logging.getLogger(__name__)
STANDS = "The checkpoint of step {step} stands; after it"


def problem_of(error: Exception, rank: int) -> str:
    """Return what went wrong with a save, in words."""
    kind = "" if isinstance(error, OSError | ConfigurationError | TornCopyError) else f"{type(error).__name__}: "
    return f"rank {rank}: {kind}{error}"


@contextmanager
def only_telling(what: str, rank: int) -> Iterator[None]:
    """Log what goes wrong within, and no more."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (whatever it was)
        log.warning("%s: %s", what, problem_of(error, rank))
