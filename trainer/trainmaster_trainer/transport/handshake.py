"""The handshake has three messages: each side proves that it knows the attempt's key, without sending the key.

    caller    -> listener   magic, attempt, own rank, wanted rank, life, nonce           (64 bytes)
    listener  -> caller     nonce, HMAC(key, "listener" + all of the above)              (64 bytes)
    caller    -> listener   HMAC(key, "caller" + all of the above)                       (32 bytes)

Challenge and response with fresh nonces of both sides, as in ISO/IEC 9798-4 mechanism 5 (three passes, mutual), with
HMAC-SHA256 (RFC 2104). A recorded conversation is worthless: the listener's nonce is new each time. The words
"listener" and "caller" keep one side's proof from being sent back to it. The key of another attempt gives other
proofs. All lengths are fixed, so a stranger cannot make a process reserve memory, and nothing is believed before its
last message is verified. From the same bytes both derive the session key that signs every header that follows.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from dataclasses import dataclass

from trainmaster_trainer.transport.stream import receive

MAGIC = b"TMPEERS1"
_HELLO = struct.Struct("<8sQII8s32s")
NONCE = 32
PROOF = 32


class HandshakeRefusedError(ConnectionError):
    """HandshakeRefusedError says that the other side did not prove that it belongs to this attempt."""


@dataclass(frozen=True)
class Identity:
    """Identity says which rank this process is. `life` differs between successive processes of the same rank."""

    rank: int
    attempt: int
    key: bytes
    life: bytes


@dataclass(frozen=True)
class Caller:
    """Caller says which rank is at the other end of a verified connection."""

    rank: int
    life: bytes


def identify(rank: int, attempt: int, key: str) -> Identity:
    """Return the identity of this process in an attempt whose members share `key`.

    Raises:
        ValueError: the key is empty, and would prove nothing.
    """
    if not key:
        raise ValueError("the attempt has no key")
    derived = hmac.digest(key.encode(), b"trainmaster transport 1, attempt %d" % attempt, "sha256")
    return Identity(rank, attempt, derived, os.urandom(8))


def call(connected: socket.socket, own: Identity, wanted: int) -> bytes:
    """Carry out the caller's side of the handshake; return the session key.

    Raises:
        RefusedError: the listener is not rank `wanted` of this attempt.
        OSError: it went away, or said nothing in the socket's time.
    """
    hello = _HELLO.pack(MAGIC, own.attempt, own.rank, wanted, own.life, os.urandom(NONCE))
    connected.sendall(hello)
    answer = receive(connected, NONCE + PROOF)
    transcript = hello + answer[:NONCE]
    if not hmac.compare_digest(answer[NONCE:], _prove(own.key, b"listener", transcript)):
        raise HandshakeRefusedError(f"the process at rank {wanted}'s address does not have this attempt's key")
    connected.sendall(_prove(own.key, b"caller", transcript))
    return _prove(own.key, b"session", transcript)


def answer(connected: socket.socket, own: Identity) -> tuple[Caller, bytes]:
    """Carry out the listener's side of the handshake; return the caller and the session key.

    Raises:
        RefusedError: the caller does not have the key, is of another attempt, or wanted another rank.
        OSError: it went away, or said nothing in the socket's time.
    """
    hello = receive(connected, _HELLO.size)
    magic, attempt, rank, wanted, life, _nonce = _HELLO.unpack(hello)
    if magic != MAGIC or attempt != own.attempt or wanted != own.rank:
        raise HandshakeRefusedError(f"a caller spoke of attempt {attempt}, rank {wanted}")
    transcript = hello + os.urandom(NONCE)
    connected.sendall(transcript[len(hello) :] + _prove(own.key, b"listener", transcript))
    proof = receive(connected, PROOF)
    if not hmac.compare_digest(proof, _prove(own.key, b"caller", transcript)):
        raise HandshakeRefusedError(f"a caller who says that it is rank {rank} does not have this attempt's key")
    return Caller(rank, life), _prove(own.key, b"session", transcript)


def _prove(key: bytes, word: bytes, transcript: bytes) -> bytes:
    return hmac.digest(key, word + transcript, "sha256")
