"""Measure a task: the sizes of its model, and with `--machine` how fast this machine trains it.

`python -m trainmaster_trainer.measure` reads the plan as a rank does (TRAINMASTER_TRAINING) and prints the JSON of
wire/measured.py.
"""
