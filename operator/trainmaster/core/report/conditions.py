"""State the conditions of a job: what holds now, each with its reason and a sentence, as Kubernetes does."""

from typing import Literal

from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.api.status import Condition, TrainingJobStatus
from trainmaster.api.supported import not_yet_supported
from trainmaster.core import figures
from trainmaster.core.report import saving, stragglers, tracking, waits
from trainmaster.core.situation import edits, lost_with_pods, measures, obstacles, sidecars
from trainmaster.core.situation.facts import Facts, Statement
from trainmaster.core.states import phases

REPLICAS_READY = phases.REPLICAS_READY
SPARES_READY = "SparesReady"
TRAINING = "Training"
SUSPENDED = "Suspended"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
FINISHED = "Finished"  # at either end, for those who wait for one
NOT_YET_SUPPORTED = "NotYetSupported"
LOADING = "Loading"
INVALID_SPEC = "InvalidSpec"  # of a spec that cannot be parsed, which no rule sees (cluster/jobs.py)

WAITING = "WaitingForReplicas"

# Types of which True tells of something that is not well; of all others it is False that does.
_ALARMS = frozenset({stragglers.STRAGGLING, waits.WAITING, edits.SPEC_CHANGED, NOT_YET_SUPPORTED, INVALID_SPEC})
_EXACT = (tracking.TRACKERS_REACHED,)  # its message names all that is wrong, and changes seldom
_NAMED = 4  # at most so many missing spares are named


def current_conditions(facts: Facts, status: TrainingJobStatus, phase: Phase) -> tuple[Condition, ...]:
    """Return all conditions; those whose status did not change keep their time."""
    training: Statement = (TRAINING, False, phase, f"The job is {phase}.")
    if phase == Phase.RUNNING:
        training = TRAINING, True, phase, f"Attempt {status.attempt} trains."
        if not trains(facts.status) and not facts.regime.takes_steps():
            training = TRAINING, False, LOADING, f"Attempt {status.attempt} has begun; no worker trains yet."
    stated = [_replicas_ready(facts, phase), training]
    if facts.spares and phase not in TERMINAL:
        stated.append(_spares_ready(facts))
    if phase == Phase.SUSPENDED or any(one.type == SUSPENDED for one in facts.status.conditions):
        resumed: Statement = (SUSPENDED, False, "Resumed", "spec.suspend is false again.")
        suspended: Statement = (SUSPENDED, True, "SpecSuspend", "spec.suspend is true.")
        stated.append(suspended if phase == Phase.SUSPENDED else resumed)
    told = (
        stragglers.statement(facts, phase),
        waits.statement(facts, phase),
        saving.statement(facts),
        edits.statement(facts, status.attempt, phase),
        lost_with_pods.statement(facts, status),
        sidecars.statement(facts, phase),
        measures.statement(facts),
        measures.reported(facts),
        tracking.statement(facts),
    )
    stated += [said for said in told if said]
    if phase in TERMINAL:
        ended = status.reason or phase, status.message or ""
        stated += [(phase, True, *ended), (FINISHED, True, *ended)]
    later = not_yet_supported(facts.job.spec)
    if later:
        refused = status.reason == NOT_YET_SUPPORTED  # else the field was added after the job had begun
        reason = NOT_YET_SUPPORTED if refused else "FieldsIgnored"
        stated.append((NOT_YET_SUPPORTED, True, reason, " ".join(f"{f}: {why}." for f, why in later)))
    return tuple(_condition(facts, *statement) for statement in stated)


def in_the_way(status: TrainingJobStatus) -> tuple[Condition, ...]:
    """Return the conditions that say what is not well, for people: without what phase and message say already."""
    if status.finished:
        return ()
    told = (one for one in status.conditions if one.reason != status.phase and one.message != status.message)
    return tuple(one for one in told if one.type != SUSPENDED and (one.status == "True") == (one.type in _ALARMS))


def _replicas_ready(facts: Facts, phase: Phase) -> Statement:
    if phase in TERMINAL:
        return REPLICAS_READY, False, "JobEnded", "The replicas went home."
    if all(slot.key in facts.written_done for slot in facts.missing):
        return REPLICAS_READY, True, "AllReplicasReady", f"All {len(facts.slots)} replicas report."
    found = obstacles.obstacles(facts)
    if phase == Phase.SUSPENDED and not found:
        return REPLICAS_READY, False, phase, "There are none while the job is suspended."
    reason = found[0][0].reason if found else WAITING
    return REPLICAS_READY, False, reason, obstacles.waiting_for(facts)


def _spares_ready(facts: Facts) -> Statement:
    """Return the condition of the spares. It only informs: nothing waits for spares."""
    missing = [slot for slot in facts.spares if not slot.ready]
    if not missing:
        return SPARES_READY, True, "AllSparesReady", "All spares stand by."
    found = [one for slot in missing if (one := obstacles.obstacle_of(facts, slot))]
    patience = obstacles.PATIENCE  # for what often passes by itself
    lasting = (one for one, since in found if facts.now >= figures.later(since, patience.get(one.reason, 0)))
    obstacle = next(lasting, None)
    told = f" {obstacle.message.rstrip('.')}." if obstacle else ""
    message = f"{', '.join(slot.key for slot in missing[:_NAMED])} cannot stand in yet; training does not wait.{told}"
    return SPARES_READY, False, obstacle.reason if obstacle else "WaitingForSpares", message


def trains(status: TrainingJobStatus) -> bool:
    """Return whether steps are made, by the written status: members that begin one by one load in phase Running."""
    stated = next((condition.status for condition in status.conditions if condition.type == TRAINING), "True")
    return status.phase == Phase.RUNNING and stated == "True"


def _condition(facts: Facts, kind: str, holds: bool, reason: str, message: str) -> Condition:
    value: Literal["True", "False"] = "True" if holds else "False"
    before = next((c for c in facts.status.conditions if c.type == kind), None)
    generation = facts.job.metadata.generation
    known = before and (before.status, before.reason, before.observed_generation)
    if before and kind not in _EXACT and known == (value, reason, generation):
        return before  # a message that counts replicas must not cost a write each time
    since = before.last_transition_time if before and before.status == value else facts.now
    return Condition(
        type=kind,
        status=value,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
