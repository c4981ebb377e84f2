"""Define the parts of a spec about elasticity, checkpoints, failures and scheduling."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from trainmaster.api.model import FigureName, Int, IntOrText, Model, Name, Place

_Count = Annotated[Int, Field(ge=1, le=10_000)]


class Elasticity(Model):
    """Train on with fewer workers when some have not come for a minute, and with all again when they are there."""

    min_replicas: _Count = 1
    """Never train with fewer workers than this; wait instead. ParameterServer and Gossip look at it at their start \
and end only."""
    max_replicas: _Count
    """Never train with more workers than this."""


class ClaimReference(Model):
    """The reference names a PersistentVolumeClaim in the job's namespace."""

    claim_name: Name
    """Its name. ReadWriteMany, if workers run on several nodes."""


class ObjectStoreSpec(Model):
    """A bucket that speaks S3, or anything else that fsspec reaches and the image has a driver for."""

    url: Place
    """For example s3://bucket/folder. Each job has a folder of its own below it."""
    endpoint: Place | None = None
    """`endpoint` is the server, for example http://minio.storage:9000. Unset: Amazon's."""
    secret_name: Name | None = None
    """A Secret in the job's namespace whose keys become variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY. Unset, \
and on a laptop: the variables that are there already."""


class Storage(Model):
    """The storage says where checkpoints are kept. Set exactly one of the members."""

    persistent_volume_claim: ClaimReference | None = None
    """A PersistentVolumeClaim that all replicas mount at /checkpoints. Each job has a folder of its own there: its \
name, a dash, and the first eight characters of its uid."""
    path: Place | None = None
    """An absolute path that is there already: a shared mount of your own volumes, or a folder on a laptop."""
    object_store: ObjectStoreSpec | None = None
    """A bucket. Every save is committed by one last request, so a cut connection or a late pod harms nothing."""


class ResumeFrom(Model):
    """Start from a checkpoint of another run. Set exactly one of job and path."""

    job: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """A TrainingJob whose newest checkpoint is taken: on a cluster one with the same claim, on a laptop one whose run \
lies in the same folder of runs, on both one with the same objectStore.url."""
    path: Place | None = None
    """A folder of checkpoints, as the pods see it, for example /checkpoints/digits-1f6f0c2a of a job whose claim this \
job has too; or its URL in an object store, for example s3://bucket/folder/digits-1f6f0c2a. The store is that of this \
job's own objectStore.endpoint and Secret, else what the variables AWS_* say."""
    step: Annotated[Int, Field(ge=0, le=1_000_000_000_000)] | None = None
    """The checkpoint of this step. Unset: the newest. None that its job gave up, as after a loss that was no number, \
when an attempt went on from an older one."""


class Best(Model):
    """The best checkpoint is that with the best value of one figure of the evaluation."""

    metric: FigureName
    """The figure, for example accuracy."""
    mode: Literal["min", "max"]
    """Whether the smallest or the largest figure is the best."""


class Checkpoint(Model):
    """The state of training is saved, so that little is lost when something dies: this says when and where."""

    every_steps: Annotated[Int, Field(ge=1, le=1_000_000_000)] = 50
    """Save after every so many steps. Without a snapshot in memory a failure costs at most that many, nearly twice as \
many while a save is still being written, and more where saves fail."""
    memory_every_steps: Annotated[Int, Field(ge=0, le=1_000_000_000)] | None = None
    """Keep a snapshot in the memory of each replica after every so many steps: the death of a process then costs no \
more than that. Where every rank has all of the state (AllReduce without PowerSGD and TopK), one replica's snapshot \
brings back all. Where a model is divided (FullySharded, Pipeline, Tensor, Mesh), the next replica keeps copies of \
each rank's. LocalSGD keeps them at meetings; ParameterServer, Gossip and tpu keep none. 0 is never. Unset: after \
every step, or as seldom as it takes to cost at most 3 % of the time. Where memory is too short for it, it is left \
out, and the log says so."""
    keep: Annotated[Int, Field(ge=1, le=1000)] = 3
    """`keep` is the number of the newest checkpoints to keep. One that is bad, or of a branch that was given up, goes \
first."""
    best: Best | None = None
    """Keep one checkpoint more: that of the step with the best figure, which is saved when it is evaluated. The step \
waits for this save. Needs training.evaluateEverySteps."""
    storage: Storage | None = None
    """`storage` is where checkpoints are kept. Unset on a cluster: inside the pods, so they outlive a crash of the \
training process but not a suspension or the loss of all pods (ParameterServer: of server 0's). Unset on a laptop: \
.trainmaster/NAME-DATE/ in the current folder, or --workdir."""
    resume_from: ResumeFrom | None = None
    """Start from a checkpoint of another run, as long as this job has none of its own. It begins by saving that one \
as its own, so that a restart goes on from the same, whatever becomes of the other run."""


class HangLimits(NamedTuple):
    """HangLimits are the seconds after which a step and an evaluation count as hung; None where they are learned."""

    step: float | None
    evaluation: float | None


class FailurePolicy(Model):
    """The policy says what to do when something dies. Evictions and lost nodes never count."""

    max_restarts: Annotated[Int, Field(ge=0, le=1_000_000)] = 10
    """Restart at most so often after failures of the training itself; more than 50 are 50. Progress fills the budget \
up again; of a script of one's own (`command`), a day of running does, too."""
    hang_seconds: IntOrText = "auto"
    """Restart when no step has ended for so many seconds; auto is to learn the limit from the job's own step times. \
Saving, loading and the first evaluation may take an hour, the first step after each start 10 minutes, or so many \
seconds where that is more; a later evaluation five times as long as any before, and at least so many seconds (auto: \
10 minutes); a batch of an evaluation no longer than a step, or five times as long as any before (auto: at least a \
minute). A script of one's own (`command`) does not say when it does so: with auto, a rank in its own code has half an \
hour, and a minute where all ranks wait for one another. Where it takes no steps that are known, only ranks that are \
stopped (SIGSTOP) are noticed."""
    evaluation_seconds: Annotated[Int, Field(ge=1, le=86_400)] | None = None
    """Restart when an evaluation tells nothing for so many seconds, the first one too: while it opens its samples, in \
the task's own `evaluate()`, and where ranks wait for its figures. Batches of samples are looked at one by one, as \
hangSeconds says. Of a script: when a rank is in its own code for so long between two steps, where it may evaluate or \
save; longer steps are no hang. Unset, as hangSeconds says."""
    start_seconds: Annotated[Int, Field(ge=1, le=86_400)] = 600
    """Fail a job whose replicas cannot start for so many seconds, whatever keeps them from it: an image, a volume, a \
ConfigMap, a container that ends again and again, a policy. Only a cluster or a quota that is merely full, and what is \
broken beside the job, is waited for without end. A correction of the spec begins them anew."""
    node_lost_seconds: Annotated[Int, Field(ge=0, le=86_400)] | None = None
    """A replica is lost, and replaced without waiting for it, when nothing has been heard of it for so many seconds \
(unset: 20; at least 10), and Kubernetes says that its node does not answer (after 50 seconds, as it comes), or all \
other ranks have waited for a step to end for as long. One whose agent can still be heard trains on, until Kubernetes \
gives its node up: so many seconds after it has marked the node (unset: as the cluster has it, mostly 300)."""

    @property
    def hang_limits(self) -> HangLimits:
        """Return the limits as the agents and the ranks are told them."""
        evaluation = self.evaluation_seconds
        step = None if self.hang_seconds == "auto" else float(self.hang_seconds)
        return HangLimits(step, None if evaluation is None else float(evaluation))


class Scheduling(Model):
    """Scheduling says how the pods get their place on the cluster."""

    gang: Literal["None", "Kueue", "Native", "Volcano", "Coscheduling"] = "None"
    """`gang` names who makes sure that all pods start together or none does."""
    queue: Name | None = None
    """The queue to wait in, for example the name of a Kueue LocalQueue."""
    spares: Annotated[Int, Field(ge=0, le=1000)] = 0
    """So many workers more than the strategy needs stand by, warm, each in a pod like the others'. When a worker's \
pod or node is lost, a spare takes its place at once, and the pod that replaces the lost one becomes the spare. It \
holds GPUs, CPUs and memory while it waits, and costs what a worker costs. A job never waits for its spares. Not for \
ParameterServer and Gossip, where nobody waits for a lost worker."""
