"""Define what `decide` may ask of a platform: few, idempotent actions.

Names are deterministic, so "already exists" is success.
"""

from dataclasses import dataclass

from trainmaster.wire import messages


@dataclass(frozen=True)
class EnsureObject:
    """Create the job's object of this kind (situation/objects.py)."""

    kind: str


@dataclass(frozen=True)
class DeleteObject:
    """Delete the job's object of this kind."""

    kind: str


@dataclass(frozen=True)
class CreateReplica:
    """Create the pod (or agent) of this incarnation."""

    role: str
    index: int
    incarnation: int


@dataclass(frozen=True)
class DeleteReplica:
    """Delete one replica, and only the one with this uid."""

    name: str
    uid: str


@dataclass(frozen=True)
class DeleteJob:
    """Delete the job itself; what it owns goes with it."""


@dataclass(frozen=True)
class PostEvent:
    """Post an event once. `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class GiveOrders:
    """Hold the standing orders of every agent of the job, by replica uid. They stay in memory and are never written."""

    orders: tuple[tuple[str, messages.Orders], ...]


Action = EnsureObject | DeleteObject | CreateReplica | DeleteReplica | DeleteJob | PostEvent | GiveOrders
