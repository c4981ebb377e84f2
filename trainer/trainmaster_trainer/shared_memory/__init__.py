"""Memory that processes of one host share, and how they wait for one another in it.

segment.py      anonymous memory, found through /proc by whoever is told where
semaphores.py   libc's semaphores in it

Used by `collectives/` between the ranks of a process group, and by `transport/` between peers that come and go. Why
anonymous memory and why semaphores: docs/decisions/0010-anonymous-memory-and-semaphores.md.
"""
