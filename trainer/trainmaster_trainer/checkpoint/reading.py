"""Telling a bad checkpoint from bad weather: see `trainmaster.wire.reading`, which `trainmaster audit` uses as well."""

from trainmaster.wire.reading import CorruptCheckpointError, telling

__all__ = ["CorruptCheckpointError", "telling"]
