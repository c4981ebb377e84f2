"""Gossip: every worker has the whole model, trains on its own, and averages with one random other after each step.

This is decentralized asynchronous data parallelism: AD-PSGD (Lian et al., "Asynchronous decentralized parallel
stochastic gradient descent", ICML 2018). No process hands out work or holds the model for others. A slow worker does
not slow down others, because it answers them while it computes.

mixing.py   the pairwise average, atomic and without loss (pure arithmetic under a lock)
sample_counters.py   who has done how much: a counter that only grows, spread with every exchange (pure)
peer.py     a worker: its steps, its meetings, its answers
loop.py     its loop
checkpoint_writer.py   what one worker does for all: metrics and checkpoints; the lowest rank of the roster

How much is done, and when it is over, is known from the sample counters: when their sum says steps x globalBatchSize
samples, a worker stops. What is on its way at that moment is done too, so the sum may end above by one share per
worker. Each worker draws its own share of the order of samples; a worker that is faster goes further in it, so unlike
the synchronous strategies Gossip does not promise that each epoch shows each sample once, only that the
number is right.
"""
