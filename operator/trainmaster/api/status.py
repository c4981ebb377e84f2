"""Define TrainingJobStatus: what Trainmaster says about a job, and its only memory.

The core writes it as one value per decision. `read` reads it back and never fails: users may edit the status, and that
must not stop the operator. Nothing makes a write fail either: long texts are clipped, not refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, computed_field

from trainmaster.api.job_states import TERMINAL, Phase, RestartDecision
from trainmaster.api.model import Keyed
from trainmaster.api.policies import Storage
from trainmaster.api.repair import keep_valid
from trainmaster.api.status_model import ClippedText, Count, Figure, Number, Seconds, StatusModel, Time
from trainmaster.api.status_of_pods import AvoidedNode, LastLines
from trainmaster.wire import names

if TYPE_CHECKING:
    from dataclasses import dataclass  # mypy checks `replace` of the standard library's dataclasses only
else:
    from pydantic.dataclasses import dataclass

MAX_RESTARTS_KEPT = 50
MAX_HISTORY = 128
MAX_EVALUATIONS = 32
_FIGURES_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Condition(StatusModel):
    """One statement about the job, with its reason, in Kubernetes' own form."""

    type: Annotated[str, Field(min_length=1)]
    """`type` names what the statement is about."""
    status: Literal["True", "False", "Unknown"]
    """`status` says whether the statement holds."""
    reason: ClippedText = ""
    """`reason` says why, in one word."""
    message: ClippedText = ""
    """`message` says why, in a sentence."""
    last_transition_time: Time
    """`lastTransitionTime` is since when it has been so."""
    observed_generation: Count | None = None
    """The generation of the spec that it speaks of."""


@dataclass(frozen=True, kw_only=True)
class Waiting(StatusModel):
    """These are the shares of their time of late in which workers wait: 0.71 is 71 %."""

    data: Figure = None
    """The share in which a rank waits for its samples, of the rank that waits longest. More data workers \
(training.dataWorkers) make it smaller, or samples that take less time."""
    exchange: Figure = None
    """The share in which a rank waits for the others, of the rank that waits shortest."""
    snapshots: Figure = None
    """The share in which a rank takes snapshots in memory, of the rank that does it longest."""


@dataclass(frozen=True, kw_only=True)
class StepTime(StatusModel):
    """A step time says where the seconds of a step go, on one rank."""

    rank: Count
    """The rank."""
    computing: Figure = None
    """Seconds in which it computes, and all that is none of the others."""
    data: Figure = None
    """Seconds in which it waits for its samples."""
    exchange: Figure = None
    """Seconds in which it waits for the other ranks, as far as it can tell."""
    snapshots: Figure = None
    """Seconds in which it takes snapshots in memory."""


@dataclass(frozen=True, kw_only=True)
class EvaluationStatus(StatusModel):
    """The newest evaluation of the model."""

    step: Count = 0
    """`step` is the step after which it was."""
    figures: dict[str, Number] = Field(default_factory=dict)
    """`figures` are what the task measured; a figure that is not finite is left out."""
    best_step: Count | None = None
    """The step whose checkpoint is kept as the best one, as checkpoint.best asks for it."""
    stopped: ClippedText | None = None
    """`stopped` says why training ends after this evaluation, as training.stopEarly asks for it."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def summary(self) -> str:
        """The first figures by name, for the column."""
        return ", ".join(f"{name} {value:.4g}" for name, value in sorted(self.figures.items())[:_FIGURES_SHOWN])


@dataclass(frozen=True, kw_only=True)
class JobProgress(StatusModel):
    """JobProgress says how far training is."""

    step: Count = 0
    """The last step that ended."""
    total_steps: Count | None = None
    """`totalSteps` is how many there will be."""
    earlier_steps: Count | None = None
    """`earlierSteps` are, of a script, those of `step` that other programs, or another phase of it, took before."""
    loss: Figure = None
    """The loss at that step."""
    metrics: dict[str, Number] | None = None
    """`metrics` are what the task's metrics() gave at that step."""
    evaluation: EvaluationStatus | None = None
    """The newest evaluation of the model."""
    samples_per_second: Figure = None
    """Samples per second over all workers."""
    waiting: Waiting | None = None
    """`waiting` tells on what the workers wait, if they do."""
    step_times: tuple[StepTime, ...] | None = None
    """`stepTimes` tell where the seconds of a step go, of a task: on each rank, or on the eight that work longest."""
    eta: ClippedText | None = None
    """`eta` is how long training will still take, for example 1h20m."""
    time: Time | None = None
    """`time` is when this was read from the workers."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def summary(self) -> str:
        """step/totalSteps, for the column."""
        return f"{self.step}/{self.total_steps}" if self.total_steps is not None else str(self.step)


@dataclass(frozen=True, kw_only=True)
class HistoryPoint(StatusModel):
    """A point of the curve of training."""

    step: Count
    """The step."""
    loss: Figure = None
    """The loss at that step."""
    samples_per_second: Figure = None
    """Samples per second over all workers."""


@dataclass(frozen=True, kw_only=True)
class EvaluationPoint(StatusModel):
    """A point of the curve of evaluations."""

    step: Count
    """`step` is the step after which it was."""
    figures: dict[str, Number] = Field(default_factory=dict)
    """The first figures by name, at most three."""


@dataclass(frozen=True, kw_only=True)
class CheckpointStatus(StatusModel):
    """The newest complete checkpoint: where training resumes."""

    step: Count
    """Its step."""
    time: Time | None = None
    """`time` is when it was complete."""
    sha256: ClippedText = ""
    """The SHA-256 of the whole model in it."""
    seconds: Seconds | None = None
    """`seconds` is how long it took, from the step's end until it was complete. Pods made from then on get three \
times that to save before they go."""


@dataclass(frozen=True, kw_only=True)
class CodeStatus(StatusModel):
    """The code that the job runs, where it is not in the image. `trainmaster code NAME -o DIR` brings it back."""

    sha256: ClippedText | None = None
    """The SHA-256 of the bundle, of the file at the URL, or of the image. A commit of git has none."""
    commit: ClippedText | None = None
    """The git commit that was checked out."""
    dirty: bool | None = None
    """`dirty` is true if the folder differed from that commit."""
    source: ClippedText | None = None
    """`source` is where it comes from: the URL, the repository or the image. Unset: ConfigMaps of the job."""


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus(StatusModel):
    """The workers."""

    ready: Count = 0
    """Workers that take part or could at once."""
    desired: Count = 0
    """Workers wanted."""
    selector: ClippedText = ""
    """The label selector of their pods, for autoscalers."""
    spares: Count | None = None
    """Workers more that stand by and could take a place at once, where the job asks for spares."""
    done: Count | None = None
    """Workers that had finished when the job succeeded. Their pods are ready for nothing any more."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def summary(self) -> str:
        """ready/desired, for the column; of a job that has succeeded done/desired."""
        return f"{self.ready if self.done is None else self.done}/{self.desired}"


@dataclass(frozen=True, kw_only=True)
class Goodput(StatusModel):
    """The accounts say where the seconds from `since` to `time` went, suspensions included. They add up to it."""

    since: Time | None = None
    """`since` is when the accounts begin: the job was created, or first looked at."""
    time: Time | None = None
    """`time` is when the accounts end."""
    waiting: Seconds = 0.0
    """`waiting` was for replicas that were not there, and while suspended."""
    starting: Seconds = 0.0
    """`starting` goes from all replicas there to the first step; after a change of size too. Of a script it is known \
once two steps were told, and is in `training` until then."""
    training: Seconds = 0.0
    """Steps that were not trained again."""
    saving: Seconds = 0.0
    """Training stood still to save."""
    recovering: Seconds = 0.0
    """`recovering` goes from a failure to the next step."""
    lost_work: Seconds = 0.0
    """Steps that had to be trained again."""
    try_from: Count = 0
    """The step that the present try began from."""
    try_training: Seconds = 0.0
    """`tryTraining` is the part of `training` that this try has added."""
    try_saving: Seconds = 0.0
    """`trySaving` is the part of `saving` that this try has added."""
    try_starting: Seconds = 0.0
    """`tryStarting` are the seconds of this try in phase Running that were no training yet."""

    @property
    def total(self) -> float:
        """Return the sum of all accounts in seconds: the wall time."""
        return self.waiting + self.starting + self.training + self.saving + self.recovering + self.lost_work

    @computed_field  # type: ignore[prop-decorator]
    @property
    def share(self) -> str:
        """Training as a share of all, for the column."""
        return f"{100 * self.training / self.total:.0f}%" if self.total > 0 else ""


@dataclass(frozen=True, kw_only=True)
class Founders(StatusModel):
    """The founders are the group as an attempt began. Rank numbers are counted from it, whoever comes or goes."""

    workers: Count = 0
    """Workers."""
    parameter_servers: Count = 0
    """Parameter servers."""


@dataclass(frozen=True, kw_only=True)
class RestartRecord(StatusModel):
    """An entry of the restart ledger tells what died, what it cost, and what was decided."""

    attempt: Count
    """The attempt that ended."""
    time: Time
    """When."""
    failure_class: ClippedText = Field(default="", alias="class")
    """PythonError, OutOfMemory, Hang, Disruption, ...: what decides whether it costs budget (docs/failures.md)."""
    replica: ClippedText | None = None
    """The replica that failed first."""
    members: tuple[str, ...] | None = None
    """`members` are, where members come and go one by one, all who ended of it at about one time. Each is named in \
its newest entry only."""
    node: ClippedText | None = None
    """The node that it ran on."""
    exit: ClippedText | None = None
    """`exit` is how it ended: exit code or signal."""
    evidence: ClippedText | None = None
    """The line that shows it: the error, the eviction message, ..."""
    step: Count = 0
    """The step at which it happened."""
    earlier_steps: Count | None = None
    """`earlierSteps` are, of a script, those of `step` that other programs, or another phase of it, took before. How \
many steps were lost is not known then: a program that has nothing left to do takes none."""
    fingerprint: ClippedText = ""
    """The failure without its numbers: equal for two failures of the same kind."""
    resume_before: Count | None = None
    """The next attempt goes on from a checkpoint older than this step, or begins anew."""
    stacks: ClippedText | None = None
    """`stacks` tell where the Python code stood when it hung. They are kept of the newest hang only; the agent's log \
has all of it."""
    steps_lost: Count | None = None
    """Steps to be trained again."""
    seconds_to_detect: Figure = None
    """`secondsToDetect` are, of a hang or a lost node, the seconds that a step had been overdue when the failure was \
seen, as far as agents said."""
    seconds_lost: Figure = None
    """Seconds until the next step, those before the failure was seen (secondsToDetect) included."""
    decision: RestartDecision | None = None
    """`decision` is what was done."""
    why: ClippedText = ""
    """`why` is the reason for the decision."""


@dataclass(frozen=True, kw_only=True)
class TrainingJobStatus(StatusModel):
    """The status says what is: it is written by Trainmaster, never by people."""

    observed_generation: Count | None = None
    """The generation of the spec that this status speaks of."""
    phase: Phase = Phase.PENDING
    """`phase` says where the job is in its life. Succeeded and Failed are for ever."""
    reason: ClippedText | None = None
    """`reason` says why the job ended, in one word."""
    message: ClippedText | None = None
    """`message` says what happens now, in a sentence."""
    conditions: Annotated[tuple[Condition, ...], Keyed("type")] = ()
    """Statements about the job with their reasons."""
    attempt: Count = 0
    """`attempt` is the number of the try: 1 from the first on; it rises with a restart, a change of size and a \
suspension."""
    incarnations: dict[str, Annotated[int, Field(ge=1, le=names.MAX_INCARNATION)]] = Field(default_factory=dict)
    """`incarnations` map a replica to how often its pod was replaced; those never replaced are not in it."""
    starts: dict[str, Count] = Field(default_factory=dict)
    """`starts` tell, where members come and go one by one (ParameterServer, Gossip), who takes part in this attempt, \
and how often each was started again alone."""
    founders: Founders | None = None
    """`founders` are the members with whom this attempt began, where members come and go one by one."""
    absent: tuple[str, ...] = ()
    """`absent` are the workers that this attempt does without, where their number may change by itself (elasticity)."""
    done: tuple[str, ...] = ()
    """Workers that are through with this attempt while others still train: what becomes of their pods costs nothing."""
    substitutes: dict[str, Annotated[int, Field(ge=0, le=20_000)]] = Field(default_factory=dict)
    """`substitutes` map, where spares stand by, a place in the group to the number of the worker that fills it now, \
as in worker-1: 4. Not in it are places that are filled by the worker of their own number."""
    resume_before: Count | None = None
    """This attempt goes on from a checkpoint older than this step, or begins anew: what was saved from it on may \
hold what went wrong. It stands until training has passed it."""
    start_time: Time | None = None
    """`startTime` is when the job was created, or resumed after a suspension, as of a Kubernetes Job: \
activeDeadlineSeconds counts from it. `goodput` counts from the creation."""
    running_time: Time | None = None
    """`runningTime` is when this attempt made its first step."""
    completion_time: Time | None = None
    """`completionTime` is when the job succeeded or failed."""
    progress: JobProgress | None = None
    """`progress` tells how far training is."""
    history: Annotated[tuple[HistoryPoint, ...], AfterValidator(lambda kept: kept[-MAX_HISTORY:])] = ()
    """The curve of training, oldest first: at most 128 points, spread over all steps of the present training."""
    evaluations: Annotated[tuple[EvaluationPoint, ...], AfterValidator(lambda kept: kept[-MAX_EVALUATIONS:])] = ()
    """The curve of evaluations, oldest first: at most 32 of them, spread over all steps of the present training."""
    checkpoint: CheckpointStatus | None = None
    """The newest complete checkpoint."""
    storage: Storage | None = None
    """`storage` is where checkpoints are kept if spec.checkpoint.storage is not set: what the administrator gave to \
all jobs when this one began."""
    code: CodeStatus | None = None
    """The code that the job runs, where it was sent with the job."""
    replicas: ReplicaStatus | None = None
    """The workers."""
    goodput: Goodput | None = None
    """`goodput` tells where the time went."""
    avoided_nodes: Annotated[tuple[AvoidedNode, ...], Keyed("node")] = ()
    """Nodes that the job's pods keep away from for a while."""
    last_lines: Annotated[tuple[LastLines, ...], Keyed("replica")] = ()
    """`lastLines` is what deleted pods printed last, whose logs went with them: the newest pod of each of the first \
four replicas."""
    parameter_servers: ReplicaStatus | None = None
    """The parameter servers, where there are any."""
    restart_count: Count = 0
    """`restartCount` is how many times training had to start again."""
    restarts: Annotated[tuple[RestartRecord, ...], AfterValidator(lambda kept: kept[-MAX_RESTARTS_KEPT:])] = ()
    """The restart ledger, oldest first: at most 50 entries. Those that cost nothing are dropped first."""

    @property
    def finished(self) -> bool:
        """Return whether the job has succeeded or failed, which is final."""
        return self.phase in TERMINAL

    @classmethod
    def read(cls, data: Any) -> TrainingJobStatus:
        """Return the status in `data`; what does not fit is left out. This never raises."""
        if isinstance(data, cls):
            return data
        if not isinstance(data, Mapping):
            return cls()
        return keep_valid(cls, data).model or cls()
