"""Keep the state of scripts: what `session.state(...)` does in a rank of Trainmaster.

script_state.py     restore and step: the loop's part, on the script's own calls
script_objects.py   the script's objects as one state of named tensors and JSON
script_measures.py  its figures, evaluations and the best checkpoint
signs.py            whether an object has more than other numbers since the last snapshot
comparing.py        whether all ranks have the same
unkept.py           optimizers that take steps and are not among the objects
generators.py       random number generators as objects with a state_dict
meeting.py          the group of the script's ranks, and whether all of them call
"""
