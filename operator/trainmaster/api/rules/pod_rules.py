"""Hold the rules on spec.workers and spec.parameterServers: amounts, environment, volumes, and the template beneath."""

from __future__ import annotations

import re
from typing import Any

from trainmaster.api.rules.rule import SUBDOMAIN, Rule, named, shaped
from trainmaster.wire.names import GROUP, MAIN_CONTAINER, RESERVED_LABELS, USERS_OWN

ROLES = ("spec.workers", "spec.parameterServers")
_CPU = "[0-9]+([.][0-9]{1,3})?|[0-9]+m"
_MEMORY = "[0-9]+([.][0-9]+)?([kMGTP]|[KMGTP]i)|[0-9]{7,}"
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def below(path: str) -> tuple[str, ...]:
    """Return this path under both roles."""
    return tuple(f"{role}.{path}" for role in ROLES)


def _amount(value: Any, pattern: str, least: int) -> bool:
    if value is None:
        return True
    return value >= least if isinstance(value, int) else re.fullmatch(pattern, value) is not None


def _amount_cel(name: str, pattern: str, least: int) -> str:
    return (
        f"!has(self.{name}) || (type(self.{name}) == int ? self.{name} >= {least}"
        f" : self.{name}.matches('^(?:{pattern})$'))"
    )


def _names_volumes(replicas: Any) -> bool:
    spec = replicas.template.spec if replicas.template else None
    beneath = spec.volumes if spec and spec.volumes else ()
    known = {volume.name for volume in (*replicas.volumes, *beneath)}
    return all(mount.name in known for mount in replicas.volume_mounts)


_AMOUNTS = (
    Rule(
        name="cpu-form",
        where=ROLES,
        field="cpu",
        cel=_amount_cel("cpu", _CPU, 1),
        holds=lambda replicas: _amount(replicas.cpu, _CPU, 1),
        message="cpu is not an amount of CPU cores",
        cure='Write 4, "0.5" (in quotes) or 500m',
    ),
    Rule(
        name="memory-form",
        where=ROLES,
        field="memory",
        cel=_amount_cel("memory", _MEMORY, 1_000_000),
        holds=lambda replicas: _amount(replicas.memory, _MEMORY, 1_000_000),
        message="memory is not an amount of memory for training; without a unit it counts bytes",
        cure="Write for example 16Gi or 512Mi",
    ),
    shaped(
        "gpu-resource-form",
        ROLES,
        "gpuResource",
        f"{SUBDOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?",
        message="gpuResource is not the name of a device resource",
        cure="Write vendor/device, for example nvidia.com/gpu or amd.com/gpu",
    ),
    shaped(
        "image-form",
        ROLES,
        "image",
        "[^ \\t\\n]+",
        message="image has a blank in it",
        cure="Write registry/name:tag",
    ),
    *(named(f"{name}-form", ROLES, name) for name in ("priorityClassName", "serviceAccountName")),
)

_ENVIRONMENT = (
    shaped(
        "env-name-form",
        below("env[]"),
        "name",
        "[-._a-zA-Z][-._a-zA-Z0-9]*",
        message="name is not the name of an environment variable",
        cure="Use letters, digits and _, with no digit first",
    ),
    Rule(
        name="env-name-taken",
        where=below("env[]"),
        field="name",
        cel=f"self.name in {list(USERS_OWN)} || !self.name.startsWith('TRAINMASTER_')",
        holds=lambda variable: variable.name in USERS_OWN or not variable.name.startswith("TRAINMASTER_"),
        message="names that begin with TRAINMASTER_ are how the agent is told what to do",
        cure="Rename the variable",
    ),
    Rule(
        name="env-name-torchrun",
        where=below("env[]"),
        field="name",
        cel=f"!(self.name in {list(TORCHRUN)})",
        holds=lambda variable: variable.name not in TORCHRUN,
        message="this variable is set for each rank at each attempt, so a value of yours would be lost",
        cure="Remove it",
    ),
    Rule(
        name="env-one-source",
        where=below("env[]"),
        field="valueFrom",
        cel="!(has(self.value) && has(self.valueFrom))",
        holds=lambda variable: variable.value is None or variable.value_from is None,
        message="value and valueFrom are both set",
        cure="Remove one of them",
    ),
    Rule(
        name="env-from-one",
        where=below("envFrom[]"),
        cel="has(self.configMapRef) != has(self.secretRef)",
        holds=lambda source: (source.config_map_ref is None) != (source.secret_ref is None),
        message="an item of envFrom is one ConfigMap or one Secret",
        cure="Set exactly one of configMapRef and secretRef",
    ),
)

_VOLUMES = (
    shaped(
        "volume-name-form",
        below("volumes[]"),
        "name",
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        message="the name of this volume is not one that Kubernetes allows",
        cure="Use lower-case letters, digits and -",
    ),
    Rule(
        name="mounts-have-volumes",
        where=ROLES,
        field="volumeMounts",
        cel="!has(self.volumeMounts) || self.volumeMounts.all(m,"
        " (has(self.volumes) && self.volumes.exists(v, v.name == m.name))"
        " || (has(self.template) && has(self.template.spec) && has(self.template.spec.volumes)"
        " && self.template.spec.volumes.exists(v, v.name == m.name)))",
        holds=_names_volumes,
        message="one of volumeMounts names a volume that is not there",
        cure="Add it to volumes beside it, or correct the name",
    ),
    Rule(
        name="mount-path-absolute",
        where=below("volumeMounts[]"),
        field="mountPath",
        cel="self.mountPath.startsWith('/') && !self.mountPath.contains(':')",
        holds=lambda mount: mount.mount_path.startswith("/") and ":" not in mount.mount_path,
        message="mountPath is not an absolute path",
        cure="Begin it with / and use no colon",
    ),
    Rule(
        name="toleration-value",
        where=below("tolerations[]"),
        field="value",
        cel="!has(self.value) || !has(self.operator) || self.operator != 'Exists' || self.value == ''",
        holds=lambda toleration: not toleration.value or toleration.operator != "Exists",
        message="operator Exists fits any value, and a value is given",
        cure="Remove value, or set operator to Equal",
    ),
    Rule(
        name="toleration-key",
        where=below("tolerations[]"),
        field="operator",
        cel="(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
        holds=lambda toleration: bool(toleration.key) or toleration.operator == "Exists",
        message="without a key a toleration is for every taint, and must say so",
        cure="Set key, or set operator to Exists",
    ),
)


def _not_here(alias: str, attribute: str, why: str, cure: str) -> Rule:
    """Return a rule that refuses a field of a pod's container that users write under a role."""
    return Rule(
        name=f"{alias}-elsewhere",
        where=ROLES,
        field=alias,
        cel=f"!has(self.{alias})",
        holds=lambda replicas: getattr(replicas, attribute) in (None, ()),
        message=f"{alias} has no meaning here{why}",
        cure=cure,
    )


_IN_TEMPLATE = f"template: {{spec: {{containers: [{{name: {MAIN_CONTAINER}, %s}}]}}}}"
_ELSEWHERE = (
    Rule(
        name="replicas-zero",
        where=ROLES,
        field="replicas",
        cel="self.replicas >= 1",
        holds=lambda replicas: replicas.replicas >= 1,
        message="replicas is 0, and a job needs at least 1 of each role",
        cure="Set spec.suspend to true, which ends all pods and keeps the job, or set replicas to 1 or more",
    ),
    _not_here(
        "resources",
        "resources",
        ": cpu, memory and gpus say what a replica needs",
        f"Set cpu, memory and gpus beside it, and anything else in {_IN_TEMPLATE % 'resources: ...'}",
    ),
    _not_here(
        "securityContext",
        "security_context",
        ", as the pod has one and its container another",
        f"Write {_IN_TEMPLATE % 'securityContext: ...'}, or template: {{spec: {{securityContext: ...}}}}",
    ),
    _not_here(
        "ports",
        "ports",
        ", as replicas reach each other at any port",
        f"Remove it, or declare other ports in {_IN_TEMPLATE % 'ports: ...'}",
    ),
)


def _must_stay_unset(alias: str, attribute: str, why: str, cure: str) -> Rule:
    return Rule(
        name=f"template-{alias}",
        where=below("template.spec"),
        field=alias,
        cel=f"!has(self.{alias}) || self.{alias} == false",
        holds=lambda spec: not getattr(spec, attribute),
        message=f"{alias} in a template {why}",
        cure=cure,
    )


_TEMPLATE = (
    Rule(
        name="template-restartPolicy",
        where=below("template.spec"),
        field="restartPolicy",
        cel="!has(self.restartPolicy) || self.restartPolicy == 'Never'",
        holds=lambda spec: spec.restart_policy in (None, "Never"),
        message="restartPolicy in a template would let Kubernetes restart pods behind Trainmaster's back",
        cure="Remove it; spec.failurePolicy says what happens when something dies",
    ),
    Rule(
        name="template-activeDeadlineSeconds",
        where=below("template.spec"),
        field="activeDeadlineSeconds",
        cel="!has(self.activeDeadlineSeconds)",
        holds=lambda spec: spec.active_deadline_seconds is None,
        message="activeDeadlineSeconds in a template would kill single pods, and Trainmaster would replace them",
        cure="Remove it and set spec.activeDeadlineSeconds",
    ),
    _must_stay_unset(
        "hostNetwork",
        "host_network",
        "gives all replicas of a node one address and one set of ports",
        "Remove it; give pods a fast network by a device plugin or a second interface",
    ),
    _must_stay_unset(
        "hostPID",
        "host_pid",
        "takes the place of process 1 from the agent, which then cannot clean up after the training",
        "Remove it",
    ),
    _must_stay_unset(
        "hostIPC",
        "host_ipc",
        "mixes the shared memory of all replicas of a node",
        "Remove it; /dev/shm is set up anyway",
    ),
    _must_stay_unset(
        "shareProcessNamespace",
        "share_process_namespace",
        "takes the place of process 1 from the agent, which then cannot clean up after the training",
        "Remove it",
    ),
    *(
        Rule(
            name=f"template-{member}",
            where=below("template.spec.containers[]"),
            field=member,
            cel=f"self.name != '{MAIN_CONTAINER}' || !has(self.{member}) || size(self.{member}) == 0",
            holds=lambda container, name=member: container.name != MAIN_CONTAINER or not getattr(container, name),
            message=f"{member} of container {MAIN_CONTAINER} in a template would take the place of the agent",
            cure="Remove it and write spec.training.command",
        )
        for member in ("command", "args")
    ),
)

_LONGEST_KEY = 317  # of a label or an annotation: a domain of 253, a slash, and a name of 63


def _names(metadata: Any) -> tuple[str, ...]:
    return (*(metadata.labels or ()), *(metadata.annotations or ()))


_TEMPLATE_METADATA = (
    Rule(
        name="template-label-taken",
        where=below("template.metadata"),
        field="labels",
        cel="!has(self.labels) || self.labels.all(k, "
        + " && ".join(f"!k.startsWith('{prefix}')" for prefix in RESERVED_LABELS)
        + ")",
        holds=lambda metadata: not any(label.startswith(RESERVED_LABELS) for label in metadata.labels or ()),
        message="labels that begin with trainmaster.dev/ or app.kubernetes.io/ say which pods are Trainmaster's own",
        cure="Use a prefix of your own",
    ),
    Rule(
        name="template-annotation-taken",
        where=below("template.metadata"),
        field="annotations",
        cel=f"!has(self.annotations) || self.annotations.all(k, !k.startsWith('{GROUP}/'))",
        holds=lambda metadata: not any(name.startswith(f"{GROUP}/") for name in metadata.annotations or ()),
        message="annotations that begin with trainmaster.dev/ are Trainmaster's own",
        cure="Use a prefix of your own",
    ),
    Rule(
        name="template-key-length",
        where=below("template.metadata"),
        cel=f"(!has(self.labels) || self.labels.all(k, size(k) <= {_LONGEST_KEY}))"
        f" && (!has(self.annotations) || self.annotations.all(k, size(k) <= {_LONGEST_KEY}))",
        holds=lambda metadata: all(len(name) <= _LONGEST_KEY for name in _names(metadata)),
        message=f"the name of a label or annotation has more than {_LONGEST_KEY} characters",
        cure="Shorten it",
    ),
)

RULES = (*_AMOUNTS, *_ELSEWHERE, *_ENVIRONMENT, *_VOLUMES, *_TEMPLATE, *_TEMPLATE_METADATA)
