"""Tell a bad checkpoint from a failing storage: see `trainmaster.wire.read_errors`, which `audit` uses too."""

from trainmaster.wire.read_errors import CorruptCheckpointError, telling

__all__ = ["CorruptCheckpointError", "telling"]
