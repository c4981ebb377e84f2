"""Refuse a new job where it asks for what is not supported yet, or its code does not come; else let it begin.

Nothing needs to be written for that: attempt 1 and incarnation 0 are what an empty status means (`Facts.status`), so an
operator that dies now begins in the same way again. What is written is the administrator's storage, of a job that names
none: it stays the job's own whatever the default is later (decision 0195).
"""

import dataclasses

from trainmaster.api.rules.template import mounts_checkpoints
from trainmaster.api.supported import not_yet_supported
from trainmaster.core import figures
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states import ending
from trainmaster.core.states.verdict import NOTHING, Verdict
from trainmaster.wire import names

# A job that asks for a queue must not jump it; other fields that are not supported yet are named in a condition.
_NEVER_LEFT_OUT = ("spec.scheduling.gang",)
# After this time `trainmaster submit` was cut off for good. The job is to vanish right after its end.
SUBMISSION_SECONDS = 600


def accept(facts: Facts) -> Verdict:
    """Fail a new job that asks for what is not supported yet, or was submitted in part; else change nothing."""
    refused = [] if facts.job.status.attempt else not_yet_supported(facts.job.spec)
    refusal = " ".join(f"{field}: {why}" for field, why in refused if field.startswith(_NEVER_LEFT_OUT))
    if refusal:
        return Verdict(status=ending.failed(facts.status, "NotYetSupported", refusal, facts.now))
    spec, default = facts.job.spec, facts.observed.default_storage
    has_begun = facts.job.status.attempt or facts.observed.replicas
    if default and not has_begun and not spec.checkpoint.storage:
        mounts_its_own = default.persistent_volume_claim and mounts_checkpoints(spec)
        if not mounts_its_own:  # written before a pod is made of it: another operator may have another default
            return Verdict(status=dataclasses.replace(facts.status, storage=default))
    created = figures.rfc3339(facts.job.metadata.creation_timestamp)
    if created is None or names.SUBMISSION not in facts.job.metadata.annotations or not spec.suspend:
        return NOTHING  # all of it is there
    given_up = figures.later(created, SUBMISSION_SECONDS)
    if facts.now < given_up:
        return Verdict(wake_at=given_up, final=True)  # it is pending: nobody has suspended it
    message = "trainmaster submit was cut off before all of the code was there. Submit the job again."
    return Verdict(status=ending.failed(facts.status, "SubmissionIncomplete", message, facts.now))
