"""Tell a bad checkpoint from a failing storage: see `trainmaster.wire.reading`, which `trainmaster audit` uses too."""

from trainmaster.wire.reading import CorruptCheckpointError, telling

__all__ = ["CorruptCheckpointError", "telling"]
