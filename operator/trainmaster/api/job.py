"""Define TrainingJob: the custom resource, as a user writes it and the operator reads it.

Its parts are in files of their own; this one puts them together and answers the core's questions about a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ModelWrapValidatorHandler, model_validator

from trainmaster.api.model import Int, Model
from trainmaster.api.policies import Checkpoint, Elasticity, FailurePolicy, Scheduling
from trainmaster.api.roles import TPU, ReplicaSpec, ServerSpec
from trainmaster.api.sizes import fit_a_spec
from trainmaster.api.status import TrainingJobStatus
from trainmaster.api.strategy_spec import StrategySpec
from trainmaster.api.training_spec import TrainingSpec
from trainmaster.wire import frameworks, names
from trainmaster.wire.strategies import WHOLE_MODELS


class TrainingJobSpec(Model):
    """The spec says what to train, by which strategy, on what. Only strategy and training must be given."""

    strategy: StrategySpec
    """How to train: one word, and options of that type."""
    training: TrainingSpec
    """What to train: a task or a command."""
    workers: ReplicaSpec = Field(default_factory=ReplicaSpec)
    """The pods that train."""
    parameter_servers: ServerSpec | None = None
    """The pods that hold the model. For strategy type ParameterServer only; unset there: one."""
    elasticity: Elasticity | None = None
    """Bounds between which the number of workers may change by itself. Unset: it stays."""
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    """`checkpoint` says when and where the state of training is saved."""
    failure_policy: FailurePolicy = Field(default_factory=FailurePolicy)
    """`failurePolicy` says what to do when something dies."""
    scheduling: Scheduling | None = None
    """`scheduling` says how the pods get their place on the cluster."""
    suspend: bool = False
    """true ends all pods, a task's after a checkpoint, and keeps the job; false lets it go on from there. Needs \
checkpoint.storage on a cluster: checkpoints inside the pods go with them, and the job then begins at step 0."""
    active_deadline_seconds: Annotated[Int, Field(ge=1, le=1_000_000_000)] | None = None
    """Fail the job when it has not ended after so many seconds. After a suspension they begin anew."""
    ttl_seconds_after_finished: Annotated[Int, Field(ge=0, le=1_000_000_000)] | None = None
    """Delete the job so many seconds after its end. Unset: keep it."""
    reproducible: bool = Field(
        default=False,
        description="The same final model to the last bit with 1 to 8 ranks, and after any change of their number; "
        f"slower. For {', '.join(WHOLE_MODELS)}.",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _fits(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Check the size of the whole spec, after all fields, so that an error of one field names that field."""
        spec = handler(data)
        if isinstance(data, Mapping):
            fit_a_spec(data)
        return spec

    @property
    def worker_ranks(self) -> int:
        """Return the number of ranks of all workers: the data is shared among them."""
        return self.workers.replicas * self.ranks_each

    @property
    def ranks_each(self) -> int:
        """Return the number of ranks of each worker: one per GPU, or one on CPUs and where it drives all devices."""
        one_drives_all = self.workers.accelerator == TPU or self.training.framework in frameworks.ONE_PROCESS
        return 1 if one_drives_all else self.workers.gpus or 1

    @property
    def world_size(self) -> int:
        """Return the number of ranks of all replicas of all roles."""
        return self.worker_ranks + self.servers

    @property
    def roles(self) -> dict[str, ReplicaSpec]:
        """Return the replica spec of each role that this job has."""
        roles = {names.WORKER: self.workers}
        if self.parameter_servers is not None:
            roles[names.PARAMETER_SERVER] = self.parameter_servers
        elif self.strategy.type == "ParameterServer":
            roles[names.PARAMETER_SERVER] = ServerSpec()
        return roles

    @property
    def servers(self) -> int:
        """Return the number of parameter servers; each is one rank."""
        return self.roles[names.PARAMETER_SERVER].replicas if names.PARAMETER_SERVER in self.roles else 0

    @property
    def spares(self) -> int:
        """Return the number of spares; 0 where members restart individually: they do not wait for a lost worker."""
        return self.scheduling.spares if self.scheduling and not self.independent else 0

    @property
    def independent(self) -> bool:
        """Return whether members restart individually: no process group spans replicas."""
        return self.strategy.type in frameworks.FRAMEWORKS[self.training.framework].independent_under

    @property
    def led(self) -> bool:
        """Return whether the first worker's end is the end of the job: the other replicas serve it."""
        return frameworks.is_led(self.training.framework, self.strategy.type)


class Metadata(Model):
    """The part of Kubernetes' own metadata that we read. The rest is kept out of sight."""

    model_config = ConfigDict(extra="ignore")

    name: str = ""
    """The job's name."""
    namespace: str = "default"
    """The job's namespace."""
    generate_name: str = ""
    """A prefix that the API server makes a name of."""
    uid: str = ""
    """It tells the job from all others that ever had this name."""
    generation: int = 0
    """It rises with every change of the spec."""
    resource_version: str = ""
    """It rises with every change of anything."""
    creation_timestamp: str | None = None
    """The job was created at this time (RFC 3339)."""
    deletion_timestamp: str | None = None
    """It is set when somebody deletes the job (RFC 3339)."""
    labels: dict[str, str] = Field(default_factory=dict)
    """The user's labels."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """The user's annotations."""


class TrainingJob(Model):
    """A TrainingJob says what to train, by which strategy, on what. Trainmaster keeps it going."""

    api_version: Literal["trainmaster.dev/v1"] = "trainmaster.dev/v1"
    kind: Literal["TrainingJob"] = "TrainingJob"
    metadata: Metadata = Field(default_factory=Metadata)
    spec: TrainingJobSpec
    """What is wanted."""
    status: Annotated[TrainingJobStatus, BeforeValidator(TrainingJobStatus.read)] = Field(
        default_factory=TrainingJobStatus
    )
    """It says what is, and is written by Trainmaster."""

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> TrainingJob:
        """Return the job in plain YAML or JSON data, with the storage of `.status.storage` if the spec names none.

        Raises:
            pydantic.ValidationError: it is none. (`api/document.py` says so with line numbers.)
        """
        job = cls.model_validate(document, by_alias=True, by_name=False)
        given, checkpoint = job.status.storage, job.spec.checkpoint
        if checkpoint.storage or not (given and (given.persistent_volume_claim or given.object_store)):
            return job
        kept = checkpoint.model_copy(update={"storage": given})
        return job.model_copy(update={"spec": job.spec.model_copy(update={"checkpoint": kept})})

    @property
    def name(self) -> str:
        """Return the job's name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Return the job's namespace."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """Return the uid, which tells this job from others that had the same name."""
        return self.metadata.uid
