"""Define the parts of a pod that a TrainingJob names: environment, volumes, tolerations, and the template beneath.

What Kubernetes may extend at any time (volumes, affinity, valueFrom) is passed on unchanged.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from trainmaster.api.model import FreeObject, Int, Keyed, Model, Name, Place, Quantity, Text, Weighs
from trainmaster.api.sizes import MOST_OF_A_PLAN, TOKEN_LASTS, fit_a_variable
from trainmaster.wire import names

LabelValue = Annotated[str, Field(max_length=63)]


class EnvVar(Model):
    """One environment variable."""

    name: Name
    """The variable's name."""
    value: Annotated[str, Field(max_length=32768), AfterValidator(fit_a_variable)] | None = None
    """Its value; put numbers in quotes."""
    value_from: FreeObject | None = None
    """`valueFrom` is where the value comes from instead: secretKeyRef, configMapKeyRef, fieldRef, ... as in a pod."""


class ObjectReference(Model):
    """The reference names a Secret or ConfigMap in the job's namespace."""

    name: Name
    """Its name."""
    optional: bool | None = None
    """Start even where it does not exist."""


class EnvFrom(Model):
    """Variables from all the keys of a Secret or ConfigMap."""

    prefix: Annotated[str, Field(max_length=253)] | None = None
    """`prefix` is put before every key."""
    config_map_ref: ObjectReference | None = None
    """The ConfigMap to take."""
    secret_ref: ObjectReference | None = None
    """The Secret to take."""


class LocalReference(Model):
    """The reference names a Secret in the job's namespace."""

    name: Name
    """Its name."""


class Volume(Model):
    """A volume of the pod, as in a pod: a name, and one source."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """What volumeMounts refer to. Beside it stands the source: persistentVolumeClaim, configMap, emptyDir, ..."""

    @model_validator(mode="after")
    def _token_is_short(self) -> Self:
        """Refuse a projected token with Trainmaster's audience that is valid for more than an hour."""
        projected = (self.model_extra or {}).get("projected")
        sources = projected.get("sources") if isinstance(projected, dict) else None
        for source in sources if isinstance(sources, list) else ():
            token = source.get("serviceAccountToken") if isinstance(source, dict) else None
            if isinstance(token, dict) and token.get("audience") == names.TOKEN_AUDIENCE:
                seconds = token.get("expirationSeconds")
                if isinstance(seconds, int | float) and seconds > names.TOKEN_SECONDS:
                    context = {"audience": names.TOKEN_AUDIENCE, "most": names.TOKEN_SECONDS}
                    message = "a token with the audience {audience} lasts for more than {most} seconds"
                    raise PydanticCustomError(TOKEN_LASTS, message, context)
        return self


class VolumeMount(Model):
    """A mount says where a volume appears in the container."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Which volume."""
    mount_path: Place
    """The path in the container."""
    sub_path: Place | None = None
    """Mount only this folder of the volume."""
    sub_path_expr: Place | None = None
    """Like subPath, with $(VARIABLES) filled in."""
    read_only: bool | None = None
    """Mount it so that nothing can be written."""
    recursive_read_only: Literal["Disabled", "IfPossible", "Enabled"] | None = None
    """`recursiveReadOnly` says whether readOnly also holds for mounts inside of it."""
    mount_propagation: Literal["None", "HostToContainer", "Bidirectional"] | None = None
    """`mountPropagation` says whether later mounts are seen on the other side."""


class Toleration(Model):
    """A node taint that the pods put up with."""

    key: Annotated[str, Field(max_length=317)] | None = None
    """The taint's key; unset with operator Exists means every taint."""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = None
    """`operator` says how the value is compared. Unset means Equal."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; unset means every effect."""
    toleration_seconds: Int | None = None
    """`tolerationSeconds` is how long the pod may stay, with NoExecute."""


class TemplateVariable(Model):
    """One environment variable of a container of the template, as in a pod."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(max_length=253)] | None = None
    """The variable's name."""


class TemplateMount(Model):
    """A mount says where a volume appears in a container of the template, as in a pod."""

    model_config = ConfigDict(extra="allow")

    mount_path: Annotated[str, Field(max_length=512)] | None = None
    """The path in the container."""


class TemplateResources(Model):
    """The resources of a container of the template, as in a pod."""

    model_config = ConfigDict(extra="allow")

    requests: Annotated[dict[str, Quantity], Field(max_length=32)] | None = None
    """`requests` is what the node must have free. For the container trainer not the GPUs: these are workers.gpus."""
    limits: Annotated[dict[str, Quantity], Field(max_length=32)] | None = None
    """`limits` is what the container may use at most. For the container trainer not the GPUs: these are \
workers.gpus."""
    claims: Annotated[tuple[FreeObject, ...], Field(strict=False, max_length=32)] | None = None
    """Devices from resourceClaims of the pod. For the container trainer gpus then says how many they hold."""


class TemplateContainer(Model):
    """The template has this container. The one named trainer is merged with the one that trains."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The container's name; trainer is the one that trains."""
    command: Annotated[tuple[Text, ...], Field(strict=False, max_length=256), Weighs(MOST_OF_A_PLAN)] | None = None
    """`command` is not for the container trainer: write spec.training.command."""
    args: Annotated[tuple[Text, ...], Field(strict=False, max_length=256), Weighs(MOST_OF_A_PLAN)] | None = None
    """`args` is not for the container trainer: write spec.training.command."""
    image: Annotated[str, Field(max_length=1024)] | None = None
    """Its image; of the container trainer, where workers.image is unset."""
    image_pull_policy: Annotated[str, Field(max_length=32)] | None = None
    """`imagePullPolicy` says when to pull the image; of the container trainer, where workers.imagePullPolicy is unset \
or says the same."""
    working_dir: Annotated[str, Field(max_length=4096)] | None = None
    """`workingDir` is where the container starts; of the container trainer, where a relative \
spec.training.workingDirectory begins."""
    env: Annotated[tuple[TemplateVariable, ...], Field(strict=False, max_length=128)] | None = None
    """Its environment variables. Those of workers.env are added; the same one with another value is refused."""
    volume_mounts: Annotated[tuple[TemplateMount, ...], Field(strict=False, max_length=48)] | None = None
    """`volumeMounts` says where volumes appear in it. workers.volumeMounts is added; another mount at the same path \
is refused."""
    resources: TemplateResources | None = None
    """`resources` is what it needs beside cpu, memory and gpus."""


class TemplateInitContainer(Model):
    """An init container of the template."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(max_length=63)] | None = None
    """Its name."""


class TemplateVolume(Volume):
    """A volume of the template."""


class PodTemplateSpec(Model):
    """The pod spec that lies beneath. Anything that a pod may have may stand here."""

    model_config = ConfigDict(extra="allow")

    containers: Annotated[tuple[TemplateContainer, ...], Field(strict=False, max_length=32), Keyed("name")] | None = (
        None
    )
    """`containers` are merged by name: trainer is the container that trains, others run beside it."""
    init_containers: Annotated[tuple[TemplateInitContainer, ...], Field(strict=False, max_length=32)] | None = None
    """`initContainers` run before it, one after the other."""
    volumes: Annotated[tuple[TemplateVolume, ...], Field(strict=False, max_length=128), Keyed("name")] | None = None
    """More volumes. One of the same name as in workers.volumes, with other content, is refused."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=64)] | None = None
    """More labels that a node must have. One that workers.nodeSelector wants otherwise is refused."""
    priority_class_name: Annotated[str, Field(max_length=253)] | None = None
    """`priorityClassName` is used where workers.priorityClassName is unset or says the same."""
    service_account_name: Annotated[str, Field(max_length=253)] | None = None
    """`serviceAccountName` is used where workers.serviceAccountName is unset or says the same."""
    hostname: Annotated[str, Field(max_length=253)] | None = None
    """It must stay unset: each replica has a name of its own."""
    subdomain: Annotated[str, Field(max_length=253)] | None = None
    """It must stay unset: the replicas of a job find each other below its name."""
    restart_policy: Annotated[str, Field(max_length=32)] | None = None
    """It must stay unset: Trainmaster restarts training itself."""
    host_network: bool | None = None
    """It must stay unset: replicas on one node would share one address."""
    host_pid: bool | None = Field(default=None, alias="hostPID")
    """It must stay unset: the agent must be process 1 of its pod."""
    host_ipc: bool | None = Field(default=None, alias="hostIPC")
    """It must stay unset: replicas on one node would share their shared memory."""
    share_process_namespace: bool | None = None
    """It must stay unset: the agent must be process 1 of its pod."""
    active_deadline_seconds: Int | None = None
    """It must stay unset: write spec.activeDeadlineSeconds."""


class PodTemplateMetadata(Model):
    """The metadata says what the pods are labelled with."""

    labels: Annotated[dict[str, LabelValue], Field(max_length=64)] | None = None
    """Labels for the pods. Those that begin with trainmaster.dev/ or app.kubernetes.io/ are Trainmaster's own."""
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=2048)]], Field(max_length=64)] | None = None
    """Annotations for the pods."""


class PodTemplate(Model):
    """A pod template laid under everything else, for what a TrainingJob has no field for."""

    metadata: PodTemplateMetadata | None = None
    """Labels and annotations for the pods."""
    spec: PodTemplateSpec | None = None
    """A pod spec, or a part of one."""
