"""Define what `decide` may ask of a platform: few, idempotent actions.

Names are deterministic, so "already exists" is success.
"""

from dataclasses import dataclass

from trainmaster.wire import messages


@dataclass(frozen=True)
class CreateService:
    """Create the headless Service of a job, for frameworks that need DNS names."""


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


Action = CreateService | CreateReplica | DeleteReplica | DeleteJob | PostEvent | GiveOrders
