"""Pure decisions: frozen values in, frozen values out. No I/O, clock, randomness, logging or threads.

`decide.decide(job, observed, now)` is the only door; loop.py calls it.
"""
