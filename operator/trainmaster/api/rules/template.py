"""Hold the rules on what a pod template repeats or takes from the agent: devices, amounts, variables, mounts, names.

The template lies beneath spec.workers. If both say the same thing differently, one of them would be dropped silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from trainmaster.api.rules.pod_rules import ROLES, TORCHRUN, below
from trainmaster.api.rules.rule import Rule
from trainmaster.wire.names import MAIN_CONTAINER, USERS_OWN

_OF_OURS = "trainmaster-"
_DEVICE = (
    "(.*[./])(v?gpu|tpu|gaudi|npu|neuron|neuroncore|neurondevice|i915|xe|mig-[-+.a-z0-9]+|Ascend[0-9A-Za-z]+)"
    "([.]shared)?"
)
# What no mount may hide: folders of ours, in any image, and the root of all.
_TAKEN = "/+((trainmaster|(var/+)?run/+trainmaster|var/+run/+secrets/+trainmaster)(/.*)?)?"
_STEPS = ".*/[.][.]?(/.*)?"
# Of the trainer image: where its Python and our code are.
_IN_IMAGE = "/+opt(/+(venv|trainmaster)(/.*)?)?/*"


def _about_trainer(condition: str) -> str:
    return (
        "!has(self.template) || !has(self.template.spec) || !has(self.template.spec.containers)"
        f" || self.template.spec.containers.all(c, c.name != '{MAIN_CONTAINER}' || ({condition}))"
    )


def _amounts(replicas: Any, *kinds: str) -> set[str]:
    """Return the names of the resources that the template asks for."""
    resources = replicas.trainer.resources if replicas.trainer else None
    return {name for kind in kinds for name in (getattr(resources, kind) or {} if resources else {})}


def _no_device(replicas: Any) -> bool:
    asked = _amounts(replicas, "requests", "limits")
    return not any(name == replicas.gpu_resource or re.fullmatch(_DEVICE, name) for name in asked)


_NO_DEVICE = " && ".join(
    f"(!has(c.resources.{kind}) || c.resources.{kind}.all(k, k != self.gpuResource && !k.matches('^(?:{_DEVICE})$')))"
    for kind in ("requests", "limits")
)


def _once(field: str, *kinds: str) -> Rule:
    said = " || ".join(f"(has(c.resources.{kind}) && '{field}' in c.resources.{kind})" for kind in kinds)
    return Rule(
        name=f"template-{field}-twice",
        where=ROLES,
        field=field,
        cel=f"!has(self.{field}) || " + _about_trainer(f"!has(c.resources) || !({said})"),
        holds=lambda replicas: getattr(replicas, field) is None or field not in _amounts(replicas, *kinds),
        message=f"{field} is set here and in resources of the template, and they may differ",
        cure="Remove one of the two",
    )


_RESOURCES = (
    Rule(
        name="template-devices",
        where=ROLES,
        field="template.spec.containers",
        cel=_about_trainer(f"!has(c.resources) || ({_NO_DEVICE})"),
        holds=_no_device,
        message="GPUs in resources of the template would be paid for and not used: gpus says how many ranks there are",
        cure="Remove them there and set gpus beside the template, with gpuResource where it is not nvidia.com/gpu",
    ),
    _once("cpu", "requests"),
    _once("memory", "requests", "limits"),
    Rule(
        name="template-image-twice",
        where=ROLES,
        field="image",
        cel="!has(self.image) || " + _about_trainer("!has(c.image)"),
        holds=lambda replicas: replicas.image is None or not (replicas.trainer and replicas.trainer.image),
        message="image is set here and for the container trainer of the template",
        cure="Remove one of the two",
    ),
)


def _variables(name: str, cel: str, holds: Callable[[str], bool], message: str, cure: str) -> Rule:
    """Return a rule on the names of the trainer's variables in the template."""
    return Rule(
        name=name,
        where=below("template.spec.containers[]"),
        field="env",
        cel=f"self.name != '{MAIN_CONTAINER}' || !has(self.env) || self.env.all(e, !has(e.name) || {cel})",
        holds=lambda one: one.name != MAIN_CONTAINER or all(holds(variable.name or "") for variable in one.env or ()),
        message=message,
        cure=cure,
    )


_ENVIRONMENT = (
    _variables(
        "template-env-taken",
        f"e.name in {list(USERS_OWN)} || !e.name.startsWith('TRAINMASTER_')",
        lambda name: name in USERS_OWN or not name.startswith("TRAINMASTER_"),
        "env of the template has a name that begins with TRAINMASTER_, by which the agent is told what to do",
        "Rename the variable",
    ),
    _variables(
        "template-env-torchrun",
        f"!(e.name in {list(TORCHRUN)})",
        lambda name: name not in TORCHRUN,
        f"env of the template has one of {', '.join(TORCHRUN)}, which are set for each rank at each attempt",
        "Remove it",
    ),
)


def _visible(path: str) -> bool:
    return re.fullmatch(f"({_TAKEN})|({_STEPS})", path) is None


_VISIBLE = f"!%s.matches('^(?:({_TAKEN})|({_STEPS}))$')"
_HIDES = "a mount at mountPath would hide what the agent needs: /, /trainmaster, /run/trainmaster and its token"


def _mounts(replicas: Any) -> list[str]:
    beneath = replicas.trainer.volume_mounts or () if replicas.trainer else ()
    return [mount.mount_path or "" for mount in (*replicas.volume_mounts, *beneath)]


def _spares_python(replicas: Any) -> bool:
    own = replicas.image or (replicas.trainer and replicas.trainer.image)
    return bool(own) or not any(re.fullmatch(_IN_IMAGE, path) for path in _mounts(replicas))


def _two_checkpoints(spec: Any) -> bool:
    storage = spec.checkpoint.storage
    return bool(storage and storage.persistent_volume_claim) and mounts_checkpoints(spec)


def mounts_checkpoints(spec: Any) -> bool:
    """Return whether the spec mounts a volume where a claim for checkpoints is mounted."""
    roles = [role for role in (spec.workers, spec.parameter_servers) if role]
    return any(re.fullmatch("/+checkpoints/*", path) for role in roles for path in _mounts(role))


def _mounts_elsewhere(role: str) -> str:
    """Return the CEL condition that no mount of this role is at /checkpoints."""
    free = "!m.mountPath.matches('^/+checkpoints/*$')"
    return (
        f"(!has(self.{role}) || ((!has(self.{role}.volumeMounts) || self.{role}.volumeMounts.all(m, {free})) && ("
        + _about_trainer(f"!has(c.volumeMounts) || c.volumeMounts.all(m, !has(m.mountPath) || {free})").replace(
            "self.template", f"self.{role}.template"
        )
        + ")))"
    )


_MOUNTS = (
    Rule(
        name="mount-hides",
        where=below("volumeMounts[]"),
        field="mountPath",
        cel=_VISIBLE % "self.mountPath",
        holds=lambda mount: _visible(mount.mount_path),
        message=_HIDES,
        cure="Mount it at another path, with no . or .. among its parts",
    ),
    Rule(
        name="template-mount-hides",
        where=below("template.spec.containers[]"),
        field="volumeMounts",
        cel=f"self.name != '{MAIN_CONTAINER}' || !has(self.volumeMounts)"
        f" || self.volumeMounts.all(m, !has(m.mountPath) || {_VISIBLE % 'm.mountPath'})",
        holds=lambda one: (
            one.name != MAIN_CONTAINER or all(_visible(mount.mount_path or "") for mount in one.volume_mounts or ())
        ),
        message=_HIDES,
        cure="Mount it at another path, with no . or .. among its parts",
    ),
    Rule(
        name="mount-hides-python",
        where=ROLES,
        field="volumeMounts",
        cel="has(self.image) || ("
        f"(!has(self.volumeMounts) || self.volumeMounts.all(m, !m.mountPath.matches('^(?:{_IN_IMAGE})$'))) && ("
        + _about_trainer(
            "has(c.image) || !has(c.volumeMounts) || c.volumeMounts.all(m, !has(m.mountPath)"
            f" || !m.mountPath.matches('^(?:{_IN_IMAGE})$'))"
        )
        + "))",
        holds=_spares_python,
        message="a mount at /opt, /opt/venv or /opt/trainmaster would hide Python and the agent of the trainer image",
        cure="Mount it at another path, or set image to one of your own",
    ),
    Rule(
        name="checkpoints-twice",
        where=("spec",),
        field="checkpoint.storage",
        cel="!has(self.checkpoint.storage) || !has(self.checkpoint.storage.persistentVolumeClaim)"
        f" || ({_mounts_elsewhere('workers')} && {_mounts_elsewhere('parameterServers')})",
        holds=lambda spec: not _two_checkpoints(spec),
        message="the claim of checkpoint.storage is mounted at /checkpoints, and so is another volume",
        cure="Mount that volume elsewhere, or remove checkpoint.storage",
    ),
)

_NAMES = (
    Rule(
        name="volume-name-taken",
        where=(*below("volumes[]"), *below("template.spec.volumes[]")),
        field="name",
        cel=f"!self.name.startsWith('{_OF_OURS}')",
        holds=lambda volume: not volume.name.startswith(_OF_OURS),
        message=f"names of volumes that begin with {_OF_OURS} are those that each pod has anyway",
        cure="Rename the volume, and what mounts it",
    ),
    Rule(
        name="container-name-taken",
        where=below("template.spec.initContainers[]"),
        field="name",
        cel=f"!has(self.name) || (self.name != '{MAIN_CONTAINER}' && !self.name.startsWith('{_OF_OURS}'))",
        holds=lambda one: one.name is None or (one.name != MAIN_CONTAINER and not one.name.startswith(_OF_OURS)),
        message=f"this init container has a name that is taken: {MAIN_CONTAINER}, or one that begins with {_OF_OURS}",
        cure="Rename it",
    ),
)

RULES = (*_RESOURCES, *_ENVIRONMENT, *_MOUNTS, *_NAMES)
