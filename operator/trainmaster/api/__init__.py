"""What users write and read: pydantic models of a TrainingJob, from which the CRD and its reference page are made.

Imports nothing of ours but `wire`. Read by the core, both hands and the CLI.
"""
