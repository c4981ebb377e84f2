"""Define what users write and read: pydantic models of a TrainingJob, of which the CRD and its reference page are made.

It imports nothing of ours but `wire`.
"""
