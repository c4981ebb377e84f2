"""Define heartbeat (agent to operator) and orders (the answer): the whole protocol between operator and pods.

An agent keeps one request open. It sends what it knows; the operator answers at once when its orders differ from the
version that the agent already has, else when `hold_seconds` have passed. An answer with nothing new is a 204 without a
body, for agents that say that they understand it; older agents get their orders again. Orders live in memory only and
are a pure function of the job's status and what the agents report, so an operator that was killed gives the same ones
again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, Optional, Tuple

from trainmaster.wire import codec
from trainmaster.wire.agent_states import AgentState, Verb


def digest_of(body: bytes) -> str:
    """Return the digest of an encoded message: the version of orders, for one."""
    return hashlib.sha256(body).hexdigest()[:16]


@dataclass(frozen=True)
class Rendezvous:
    """Hold where the ranks of one attempt meet: a socket on which the agent of the first worker already listens."""

    port: int
    key: str  # random per attempt: prefix in the store, and the secret that peers show
    ports: Tuple[int, ...] = ()  # of this replica's ranks: sockets that listen already, for peers that come and go


@dataclass(frozen=True)
class Member:
    """A member is one replica of a roster. Its ranks are `first_rank` to `first_rank + ranks - 1`."""

    role: str
    index: int
    incarnation: int
    address: str  # empty while a parameter server is away: its place among the servers stays its own
    first_rank: int
    ranks: int
    ports: Tuple[int, ...] = ()  # one per rank, where peers reach it (strategies whose members come and go)
    start: Optional[int] = None  # how often its ranks were started again within this attempt, alone


@dataclass(frozen=True)
class Roster:
    """A roster says who takes part in an attempt, and where they meet."""

    attempt: int
    members: Tuple[Member, ...]
    rendezvous_address: str
    rendezvous: Rendezvous
    resume_before: Optional[int] = None  # go on from a checkpoint older than this step, or from step 0
    doubted_attempt: Optional[int] = None  # but checkpoints of attempts after this one may be used
    independent: bool = False  # members come and go one by one: a change of one concerns that member alone
    workers: Optional[int] = None  # then: the ranks of workers when all are there, whoever is away now

    @property
    def world_size(self) -> int:
        """Return the number of ranks of all members."""
        return sum(member.ranks for member in self.members)

    @cached_property
    def digest(self) -> str:
        """Return the digest, equal for equal rosters: an agent reports which one it runs."""
        return digest_of(codec.encode(self))


@dataclass(frozen=True)
class UnsavedCheckpoint:
    """Report a checkpoint that could not be written. Training goes on, and the next save is tried."""

    step: int
    problem: str


@dataclass(frozen=True)
class Evaluation:
    """Hold the figures of the newest evaluation; None for a figure that is not finite."""

    step: int
    figures: Dict[str, Optional[float]]
    best_step: Optional[int] = None  # whose checkpoint is kept, as spec.checkpoint.best says
    stopped: str = ""  # why training ends after it, before the last step; empty: it goes on


@dataclass(frozen=True)
class Figures:
    """Hold what a task measures beside its loss: of the last step, and of the model."""

    metrics: Dict[str, Optional[float]] = field(default_factory=dict)
    evaluation: Optional[Evaluation] = None


@dataclass(frozen=True)
class RankProgress:
    """Hold the last content of one rank's progress page."""

    rank: int
    step: int
    phase: str = "train"  # load, train, save, evaluate, done: names for people and for the hang detector
    loss: Optional[float] = None
    samples_per_second: Optional[float] = None
    step_seconds: Optional[float] = None
    resumed_step: Optional[int] = None  # from which step this try went on; None before it is known
    busy_seconds: Optional[float] = None  # median per step that the rank itself works, without waiting for others
    save_seconds: Optional[float] = None  # in phase save, since this try began
    data_share: Optional[float] = None  # of its time of late, in which it waited for its samples: 0 to 1
    exchange_share: Optional[float] = None  # likewise, for other ranks, as far as that can be told
    snapshot_share: Optional[float] = None  # likewise, for snapshots of its state in memory
    unsaved: Optional[UnsavedCheckpoint] = None  # the last save failed; the next good one takes it back
    overdue_seconds: Optional[float] = None  # in phase train: by how much its step has lasted longer than usual
    attempt: Optional[int] = None  # of the page; None: of an older trainer, whose pages have none
    start: Optional[int] = None  # of the replica's starts within `attempt`; likewise
    total_steps: Optional[int] = None  # as the ranks say: scripts, and tasks with epochs
    figures: Optional[Figures] = None  # of a task, as the rank that writes its metrics says
    loss_is_odd: Optional[bool] = None  # a script has said one that is no finite number
    start_seconds: Optional[float] = None  # of a script: from when its rank was started until its first step began
    earlier_steps: Optional[int] = None  # of a script: those of programs or phases before; `step` goes on after them


@dataclass(frozen=True)
class ErrorReport:
    """Hold the first Python error of a rank, from its error file."""

    type: str
    message: str
    frame: str = ""  # file:line in function, of the user's own code where there is any
    traceback: str = ""
    time: float = 0.0
    resume_before: Optional[int] = None  # as the rank says: a restart goes on from a checkpoint before this step


@dataclass(frozen=True)
class ExitReport:
    """Report how the first rank of this replica that died in `attempt` ended."""

    attempt: int
    rank: int
    step: int
    exit_code: Optional[int] = None
    signal: Optional[str] = None  # SIGKILL, SIGSEGV, ...
    out_of_memory: bool = False
    error: Optional[ErrorReport] = None
    start: Optional[int] = None  # of the replica's starts within `attempt`, where members start alone
    hung: bool = False  # no step ended for too long: the agent ended the rank
    stacks: str = ""  # the Python stacks of this replica's ranks at that moment, clipped
    overdue_seconds: Optional[float] = None  # hung: by how much its step had lasted longer than usual
    said: str = ""  # the end of its standard error, where it left no error file (a program that is not Python)
    waiting: bool = False  # hung, but all its ranks only wait for peers: not the cause, unless all replicas do


@dataclass(frozen=True)
class GoodEnd:
    """A rank of this replica ended with exit code 0 in `attempt`, and nobody had told it to end."""

    attempt: int
    rank: int


@dataclass(frozen=True)
class CheckpointRecord:
    """Name a complete checkpoint. `sha256` is that of the full model in name order, whatever the world size."""

    step: int
    time: float
    sha256: str
    seconds: Optional[float] = None  # from the step's end until it was complete


@dataclass(frozen=True)
class Heartbeat:
    """Report an agent's state to the operator. `sequence` rises by one with every message of one agent process."""

    job: str
    job_uid: str
    role: str
    index: int
    incarnation: int
    pod_uid: str
    sequence: int
    state: AgentState
    attempt: int  # the attempt that the state speaks of; 0 before the first
    offer: Rendezvous  # for the next attempt, should this replica be the first worker
    rendezvous: Optional[Rendezvous] = None  # of the attempt that runs
    roster_digest: str = ""
    ranks: Tuple[RankProgress, ...] = ()
    exit: Optional[ExitReport] = None  # the newest one; it may be of an older attempt (see its `attempt`)
    checkpoint: Optional[CheckpointRecord] = None
    orders_seen: str = ""  # version of the orders that the agent has; the answer waits until they differ
    hold: bool = True  # False: answer at once (something happened that cannot wait)
    start: Optional[int] = None  # which of its starts within `attempt` the state speaks of (independent rosters)
    stalled: Optional[ExitReport] = None  # of `attempt`: ranks live, and wait so long that somebody must hang
    good_end: Optional[GoodEnd] = None  # the first one of the newest attempt that has any
    warm: bool = False  # the warm parent has imported what it can: a start takes milliseconds
    trackers: Dict[str, str] = field(default_factory=dict)  # what is wrong with those that are not told, by title
    takes_204: bool = False  # an answer 204 without a body means: the orders are still those of `orders_seen`


@dataclass(frozen=True)
class Orders:
    """Tell an agent what to do. Idempotent: carrying out the same orders twice changes nothing."""

    verb: Verb
    attempt: int
    reason: str
    roster: Optional[Roster] = None
    exit_code: int = 0
    hold_seconds: float = 2.0
    grace_seconds: float = 0.5  # for ranks that must end: from SIGTERM to SIGKILL; 0 is SIGKILL at once
    hang_seconds: Optional[float] = None  # with RUN: a step that takes longer hangs; None: learn it from the steps
    evaluation_seconds: Optional[float] = None  # likewise of an evaluation

    @cached_property
    def version(self) -> str:
        """Return the version, equal for equal orders."""
        return digest_of(codec.encode(self))
