"""Hold the rules on what spec and template both say: the same is accepted, anything else is refused.

Variables, mounts, volumes and affinity are compared by `api/roles.py` (decision 0152): each of one list with each
of the other costs more than an API server grants a rule.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api.roles import GPU_MODEL, TPU
from trainmaster.api.rules.pod_rules import ROLES, below
from trainmaster.api.rules.rule import Rule, member
from trainmaster.wire.names import MAIN_CONTAINER

_CURE = "Remove one of the two, or say the same in both"
_NO_SPEC = "!has(self.template) || !has(self.template.spec)"


def _of_the_pod(field: str) -> Rule:
    """Return the rule on one value of a role and the same field of the template's pod spec."""

    def holds(replicas: Any) -> bool:
        spec = replicas.template.spec if replicas.template else None
        return not spec or None in (said := (member(replicas, field), member(spec, field))) or said[0] == said[1]

    there = f"self.template.spec.{field}"
    return Rule(
        name=f"{field}-twice",
        where=ROLES,
        field=field,
        cel=f"!has(self.{field}) || {_NO_SPEC} || !has({there}) || {there} == self.{field}",
        holds=holds,
        message=f"{field} is set here and otherwise in the pod spec of the template",
        cure=_CURE,
    )


def _same_labels(replicas: Any) -> bool:
    spec = replicas.template.spec if replicas.template else None
    beneath = (spec.node_selector if spec else None) or {}
    return all(beneath.get(key, value) == value for key, value in (replicas.node_selector or {}).items())


def _same_model(replicas: Any) -> bool:
    if replicas.accelerator in (None, TPU):
        return True
    spec = replicas.template.spec if replicas.template else None
    selectors = (replicas.node_selector, spec.node_selector if spec else None)
    return all((one or {}).get(GPU_MODEL, replicas.accelerator) == replicas.accelerator for one in selectors)


def _model_in(selector: str) -> str:
    return f"!('{GPU_MODEL}' in {selector}) || {selector}['{GPU_MODEL}'] == self.accelerator"


def _same_policy(replicas: Any) -> bool:
    beneath = replicas.trainer.image_pull_policy if replicas.trainer else None
    return None in (beneath, replicas.image_pull_policy) or beneath == replicas.image_pull_policy


def _same_folder(spec: Any) -> bool:
    given = spec.training.working_directory
    if given is None or not given.startswith("/"):  # a relative one begins at workingDir
        return True
    roles = [role for role in (spec.workers, spec.parameter_servers) if role and role.trainer]
    return all(role.trainer.working_dir in (None, given) for role in roles)


def _folder_of(role: str) -> str:
    containers = f"self.{role}.template.spec.containers"
    return (
        f"(!has(self.{role}) || !has(self.{role}.template) || !has(self.{role}.template.spec) || !has({containers})"
        f" || {containers}.all(c, c.name != '{MAIN_CONTAINER}' || !has(c.workingDir)"
        " || c.workingDir == self.training.workingDirectory))"
    )


RULES = (
    _of_the_pod("priorityClassName"),
    _of_the_pod("serviceAccountName"),
    Rule(
        name="nodeSelector-twice",
        where=ROLES,
        field="nodeSelector",
        cel=f"!has(self.nodeSelector) || {_NO_SPEC} || !has(self.template.spec.nodeSelector)"
        " || self.nodeSelector.all(k, !(k in self.template.spec.nodeSelector)"
        " || self.template.spec.nodeSelector[k] == self.nodeSelector[k])",
        holds=_same_labels,
        message="nodeSelector here and nodeSelector of the template want different values of one label",
        cure=_CURE,
    ),
    Rule(
        name="accelerator-twice",
        where=ROLES,
        field="accelerator",
        cel=f"!has(self.accelerator) || self.accelerator == '{TPU}' || ("
        f"(!has(self.nodeSelector) || {_model_in('self.nodeSelector')}) && ({_NO_SPEC}"
        f" || !has(self.template.spec.nodeSelector) || {_model_in('self.template.spec.nodeSelector')}))",
        holds=_same_model,
        message=f"accelerator is one value of the node label {GPU_MODEL}, and nodeSelector wants another one",
        cure=_CURE,
    ),
    Rule(
        name="imagePullPolicy-twice",
        where=ROLES,
        field="imagePullPolicy",
        cel=f"!has(self.imagePullPolicy) || {_NO_SPEC} || !has(self.template.spec.containers)"
        f" || self.template.spec.containers.all(c, c.name != '{MAIN_CONTAINER}' || !has(c.imagePullPolicy)"
        " || c.imagePullPolicy == self.imagePullPolicy)",
        holds=_same_policy,
        message="imagePullPolicy is set here and otherwise for the container trainer of the template",
        cure=_CURE,
    ),
    Rule(
        name="workingDirectory-twice",
        where=("spec",),
        field="training.workingDirectory",
        cel="!has(self.training.workingDirectory) || !self.training.workingDirectory.startsWith('/')"
        f" || ({_folder_of('workers')} && {_folder_of('parameterServers')})",
        holds=_same_folder,
        message="training.workingDirectory is another folder than workingDir of the container trainer in the template",
        cure=_CURE,
    ),
    *(
        Rule(
            name=f"template-{field}",
            where=below("template.spec"),
            field=field,
            cel=f"!has(self.{field})",
            holds=lambda spec, field=field: member(spec, field) is None,
            message=f"{field} in a template would be lost: each replica has its own, below the name of the job",
            cure="Remove it",
        )
        for field in ("hostname", "subdomain")
    ),
)
