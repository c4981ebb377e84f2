"""A look at a task: sizes of its model, and with `--machine` how fast this machine computes and exchanges it.

`python -m trainmaster_trainer.measure` reads the plan as a rank does (TRAINMASTER_TRAINING) and prints the JSON of
wire/measured.py. Started by `trainmaster explain` and `trainmaster advise`.
"""
