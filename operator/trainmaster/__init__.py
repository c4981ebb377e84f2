"""Trainmaster: one TrainingJob, trained on a laptop and on a cluster by the same rules."""

__version__ = "0.1.0"
