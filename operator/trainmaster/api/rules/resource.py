"""Hold the rules on the resource as a whole: its name."""

from __future__ import annotations

import re
from typing import Any

from trainmaster.api.rules.rule import Rule

MAX_NAME = 40
"""Pods are called <job>-parameterserver-<index>-<incarnation>, and a pod's host name has 63 characters."""

_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUFFIX = "xxxxx"  # what the API server puts behind generateName


def _name(job: Any) -> str:
    return str(job.metadata.name or job.metadata.generate_name + _SUFFIX)


def _resumes_from_itself(job: Any) -> bool:
    source = job.spec.checkpoint.resume_from
    return source is not None and source.job is not None and source.job == job.metadata.name


RULES = (
    Rule(
        name="name-length",
        where=("",),
        field="metadata.name",
        cel=f"size(self.metadata.name) <= {MAX_NAME}",
        holds=lambda job: len(_name(job)) <= MAX_NAME,
        message=f"metadata.name is longer than {MAX_NAME} characters, and pods carry it in their own names",
        cure="Choose a shorter name",
    ),
    Rule(
        name="name-form",
        where=("",),
        field="metadata.name",
        cel=f"self.metadata.name.matches('^{_LABEL}$')",
        holds=lambda job: re.fullmatch(_LABEL, _name(job)) is not None,
        message="metadata.name becomes the name of a Service and of pods",
        cure="Use lower-case letters, digits and -, with a letter first and no - at the end",
    ),
    Rule(
        name="resume-from-another",
        where=("",),
        field="spec.checkpoint.resumeFrom.job",
        cel="!has(self.spec.checkpoint.resumeFrom) || !has(self.spec.checkpoint.resumeFrom.job)"
        " || self.spec.checkpoint.resumeFrom.job != self.metadata.name",
        holds=lambda job: not _resumes_from_itself(job),
        message="resumeFrom.job is this job itself, which resumes from its own checkpoints anyway",
        cure="Name another job, or remove resumeFrom",
    ),
)
