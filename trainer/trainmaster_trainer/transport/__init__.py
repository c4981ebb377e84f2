"""Transport: requests with tensors between ranks that come and go, and prove that they know the attempt's key.

directory.py    who is there, and where: the roster file, which changes while we run
handshake.py    both sides prove themselves before either believes a byte
frame.py        what a message looks like: fixed header, JSON, raw tensor bytes
stream.py       bytes to and from one peer: the socket
ring.py         the same through memory, where both are on one host
connection.py   messages over a stream
service.py      the answering side: one thread per peer, so that a slow one holds up nobody
links.py        the asking side: connects, waits, connects again

Used by the strategies without a process group across replicas (ParameterServer, Gossip). Nothing here reads or writes
a pickle. Figures, and why it is not pyzmq: docs/decisions/0030-own-sockets.md.
"""
