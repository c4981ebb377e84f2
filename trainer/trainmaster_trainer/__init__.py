"""Hold the pod's side of Trainmaster: the agent, and the trainer that it starts.

Nothing is imported here: the agent runs in images that have no torch.
"""
