"""Add up tensors over ranks with the textbook's algorithms, each in a file of its own.

reducer.py        the interface, and the bytes that are counted
links.py          sending and receiving between two ranks
ring.py           chunks go round, twice
driver.py         all send to one, which adds up and sends back
tree.py           pairs, pairs of pairs, and back down
hierarchical.py   inside each replica, then between replicas, then down
shared.py         between processes of one host, through memory (memory.py, slots.py, ../shared_memory/)
native.py         what torch has
hook.py           any of them as a communication hook of DistributedDataParallel
choose.py         which one a job gets
"""
