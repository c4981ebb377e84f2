"""Define spec.workers and spec.parameterServers: how many pods, what is in them, and where they run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from trainmaster.api import overlay
from trainmaster.api.model import FreeObject, Int, Keyed, Model, Name, Place, Quantity, Weighs
from trainmaster.api.pods import (
    EnvFrom,
    EnvVar,
    LabelValue,
    LocalReference,
    PodTemplate,
    TemplateContainer,
    Toleration,
    Volume,
    VolumeMount,
)
from trainmaster.api.sizes import MOST_OF_ALL_VARIABLES, SAID_TWICE, fit_an_environment
from trainmaster.wire import names
from trainmaster.wire.strategies import WHOLE_MODELS

TPU = "tpu"
"""The accelerator that is no model of a GPU: XLA devices."""
_TPU_RESOURCE = "google.com/tpu"
NVIDIA_GPU = "nvidia.com/gpu"
GPU_MODEL = "nvidia.com/gpu.product"
"""The node label that NVIDIA's feature discovery sets: the model of GPU."""
# What is compared with the template by `_says_one_thing`; rules/twice.py and rules/template.py have the rest.
_IN_THE_POD, _IN_THE_CONTAINER = ("volumes", "affinity"), ("env", "volumeMounts")


class ReplicaSpec(Model):
    """The members of one role. Each replica is one pod on a cluster, one group of processes on a laptop."""

    replicas: Annotated[Int, Field(ge=0, le=10_000)] = 1
    """`replicas` is their number. It may be changed while the job runs, also with kubectl scale."""
    gpus: Annotated[Int, Field(ge=0, le=1024)] = 0
    """GPUs of each replica; each gets a process (rank) of its own. 0 trains on CPUs with one process. Where the \
container trainer of the template has resource claims (DRA), the devices that these hold: then no more are asked for \
unless gpuResource is another than its default."""
    gpu_resource: Annotated[str, Field(min_length=1, max_length=317)] = NVIDIA_GPU
    """The resource that the GPUs are asked for by, for example amd.com/gpu."""
    accelerator: LabelValue | None = Field(
        default=None,
        description="The model of GPU wanted, for example NVIDIA-H200: the value of the node label "
        "nvidia.com/gpu.product. Or tpu: gpus are then TPU chips (google.com/tpu), all driven by one process, in an "
        f"image with torch_xla. For {', '.join(WHOLE_MODELS)}.",
    )
    cpu: Quantity | None = None
    """CPU cores of each replica: 4 or 500m. Its ranks share them: OMP_NUM_THREADS is 1 without it."""
    memory: Quantity | None = None
    """Memory of each replica: 16Gi."""
    image: Place | None = None
    """The container image. Unset: the operator's own trainer image. Not used on a laptop."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """`imagePullPolicy` says when to pull the image, as in a pod."""
    image_pull_secrets: Annotated[tuple[LocalReference, ...], Field(strict=False, max_length=32), Keyed("name")] = ()
    """Secrets to pull the image with."""
    env: Annotated[
        tuple[EnvVar, ...],
        Field(strict=False, max_length=512),
        Keyed("name"),
        Weighs(MOST_OF_ALL_VARIABLES, "has(item.value) ? size(item.value) : 0"),
        AfterValidator(fit_an_environment),
    ] = ()
    """Environment variables, as in a pod. Names that begin with TRAINMASTER_ are taken, but for TRAINMASTER_PRELOAD: \
modules to import once before the first attempt, comma separated (on a laptop the shell's count); empty, what the \
task imports is not learned either. The agent does not live by them: PATH, PYTHONPATH, LD_PRELOAD and the like are for \
the program that trains, and the code of Trainmaster is added to PYTHONPATH."""
    env_from: Annotated[tuple[EnvFrom, ...], Field(strict=False, max_length=64)] = ()
    """Environment variables from Secrets and ConfigMaps, as in a pod."""
    volumes: Annotated[tuple[Volume, ...], Field(strict=False, max_length=128), Keyed("name")] = ()
    """Volumes of the pods, as in a pod."""
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(strict=False, max_length=128), Keyed("mountPath")] = ()
    """`volumeMounts` says where the volumes appear in the container that trains."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=64)] | None = None
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(strict=False, max_length=64)] = ()
    """Taints of nodes that these pods put up with, as in a pod."""
    affinity: FreeObject | None = None
    """Rules on which nodes or beside which pods, as in a pod."""
    priority_class_name: Name | None = None
    """`priorityClassName` says who goes first, and who may be evicted, when the cluster is full."""
    service_account_name: Name | None = None
    """The service account of the pods. Trainmaster needs no right of it."""
    template: PodTemplate | None = None
    """A pod template laid under all of the above, for whatever is not named here."""
    resources: FreeObject | None = None
    """Must stay unset: write cpu, memory and gpus, and what else there is into the template."""
    security_context: FreeObject | None = None
    """Must stay unset: write it into the template."""
    ports: Annotated[tuple[FreeObject, ...], Field(strict=False, max_length=64)] = ()
    """Must stay unset: replicas reach each other at any port; others are declared in the template."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        """Refuse what stands in the template too, and otherwise: one of the two would be lost without a word."""
        if self.template is None or self.template.spec is None:
            return self
        own, beneath = self.to_dict(), self.template.spec.to_dict()
        trainer = {"name": names.MAIN_CONTAINER, **{key: own[key] for key in _IN_THE_CONTAINER if key in own}}
        above = {**{key: own[key] for key in _IN_THE_POD if key in own}, "containers": [trainer]}
        place = next(overlay.lost(beneath, above), None)
        if place is not None:
            context = {"what": _what(beneath, place), "place": ("template", "spec", *place)}
            raise PydanticCustomError(SAID_TWICE, "{what}. Remove one of the two, or say the same in both", context)
        return self

    @property
    def trainer(self) -> TemplateContainer | None:
        """Return what the template says about the container that trains; None if it says nothing."""
        containers = self.template.spec.containers if self.template and self.template.spec else None
        return next((one for one in containers or () if one.name == names.MAIN_CONTAINER), None)

    @property
    def cores(self) -> int | str | None:
        """Return the CPU cores that are requested, or limited, here or in the template; None if neither is set."""
        resources = self.trainer.resources if self.trainer else None
        asked = (kind.get("cpu") for kind in (resources.requests, resources.limits) if kind) if resources else ()
        return self.cpu or next((amount for amount in asked if amount), None)

    @property
    def claims_devices(self) -> bool:
        """Return whether the devices come by resource claims, and not by a counted resource."""
        resources = self.trainer.resources if self.trainer else None
        return bool(resources and resources.claims) and self.gpu_resource == NVIDIA_GPU

    @property
    def device_resource(self) -> str:
        """Return the resource by which GPUs or TPU chips are requested."""
        # The API server fills the default in, so that alone does not tell whether the user wrote it.
        own = self.gpu_resource != NVIDIA_GPU
        return _TPU_RESOURCE if self.accelerator == TPU and not own else self.gpu_resource


def _what(template: Any, place: tuple[str | int, ...]) -> str:
    """Return what is said twice: a variable, a mount or a volume by its name, or a member of affinity."""
    if place[0] == "affinity":
        where = ".".join(str(part) for part in place)
        return f"{where} stands beside the template and, with other content, in its pod spec"
    held = template
    for part in place:
        held = held[part]
    field, name = place[-2], held.get("mountPath") or held["name"]
    there = "its pod spec" if place[0] == "volumes" else f"its container {names.MAIN_CONTAINER}"
    return f"{name} stands in {field} beside the template and, with other content, in {field} of {there}"


class ServerSpec(ReplicaSpec):
    """The parameter servers. Each is one pod on a cluster, one process on a laptop, whatever its gpus."""

    replicas: Annotated[Int, Field(ge=0, le=10_000)] = 1
    """`replicas` is their number. It may be changed while the job runs: the model is then laid out anew."""
    gpus: Annotated[Int, Field(ge=0, le=1024)] = 0
    """GPUs of each server, which is one process all the same."""
    accelerator: LabelValue | None = None
    """The model of GPU wanted, for example NVIDIA-H200: the value of the node label nvidia.com/gpu.product."""
