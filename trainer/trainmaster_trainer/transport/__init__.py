"""Carry requests with tensors between ranks that come and go, and know the attempt's key.

directory.py    which ranks are there, and where: the roster file, which changes while the job runs
handshake.py    both sides prove that they know the key before either trusts a byte
frame.py        what a message looks like: fixed header, JSON, raw tensor bytes
stream.py       bytes to and from one peer: the socket
ring.py         the same through memory, where both are on one host
connection.py   messages over a stream
service.py      the answering side: one thread per peer, so that a slow peer does not hold up others
links.py        the asking side: connects, waits, connects again

Nothing here reads or writes a pickle. Figures, and why it is not pyzmq: docs/decisions/0030-own-sockets.md.
"""
