"""Give processes of one host memory that they share, and semaphores to wait for one another.

segment.py      anonymous memory, found through /proc by a process that is told where
semaphores.py   libc's semaphores in it

Why anonymous memory and why semaphores: docs/decisions/0010-anonymous-memory-and-semaphores.md.
"""
