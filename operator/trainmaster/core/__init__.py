"""Decide purely: frozen values in, frozen values out. No I/O, clock, randomness, logging or threads.

`decide.decide(job, observed, now)` is the only entry point; loop.py calls it.
"""
