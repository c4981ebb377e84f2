"""Hold TrainingJobs as the API server sent them, and report those that cannot be parsed.

The CRD refuses most invalid jobs. One that gets past it (the CRD is older or newer than this operator, or was edited)
must harm no other job.
"""

import dataclasses
import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.api.status import Condition, TrainingJobStatus
from trainmaster.cluster import nesting
from trainmaster.core.report.conditions import INVALID_SPEC
from trainmaster.core.states.actions import PostEvent
from trainmaster.queueing import Key

Document = dict[str, Any]

_MOST_PROBLEMS = 5
_PHASES = frozenset(Phase)
_LONGEST_TIME = 40  # characters, as in 2026-11-25T22:30:00.123456Z
KEPT = 16 << 10  # characters of one job; an ordinary one has 3,000
MOST = 16 << 20  # more than an API server stores


@dataclass(frozen=True)
class JobRecord:
    """Hold one TrainingJob at one version, as text: there may be thousands of finished jobs.

    The text of a large job is not kept: it is read from the API server when the loop looks at the job. Otherwise a user
    could fill the operator's memory with large jobs.
    """

    key: Key
    uid: str
    text: str
    too_deep: bool = False  # the spec was nested too deeply, and is left out
    large: int = 0  # the hash of a text that is not kept, so that a change is noticed
    phase: str = Phase.PENDING.value
    completion_time: str = ""

    @property
    def finished(self) -> bool:
        """Return whether the job has succeeded or failed."""
        return self.phase in TERMINAL

    @property
    def document(self) -> Document:
        """Return the job as the API server sent it."""
        document: Document = json.loads(self.text)
        return document

    @property
    def parsed(self) -> TrainingJob | ValidationError:
        """Return the job, or what is wrong with it. The result is kept only for a job that is not finished."""
        return self._parse() if self.finished else self._parsed

    @cached_property
    def _parsed(self) -> TrainingJob | ValidationError:
        return self._parse()

    def _parse(self) -> TrainingJob | ValidationError:
        if self.too_deep:
            error = PydanticCustomError(
                "too_deep", "it is nested more than {levels} levels deep", {"levels": nesting.MOST_LEVELS}
            )
            return ValidationError.from_exception_data(
                "TrainingJob", [InitErrorDetails(type=error, loc=("spec",), input=None)]
            )
        try:
            return TrainingJob.parse(self.document)
        except ValidationError as error:
            return error.with_traceback(None)  # which would hold this record, and its text, in a cycle

    @cached_property
    def stand_in(self) -> TrainingJob:
        """Return a replacement for a job that cannot be parsed: its metadata and status, and a dummy spec."""
        kept = {key: value for key, value in self.document.items() if key in ("metadata", "status")}
        return TrainingJob.parse(
            {**kept, "spec": {"strategy": {"type": "OneDevice"}, "training": {"task": "none:None"}}}
        )


def read(document: Document, keep: int = KEPT) -> JobRecord:
    """Return the record of a job, without managedFields. Its text is left out if it has more than `keep` characters."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    status = document.get("status")
    told = status if isinstance(status, dict) else {}
    phase = str(told.get("phase") or Phase.PENDING)
    completion_time = str(told.get("completionTime") or "")[:_LONGEST_TIME]
    deep = nesting.is_deeper(document.get("spec"))
    kept = {**document, "metadata": metadata, **({"spec": None} if deep else {})}
    text = json.dumps(kept, separators=(",", ":"))
    large = hash(text) or 1 if len(text) > keep else 0
    key = Key(metadata.get("namespace", ""), metadata["name"])
    known = sys.intern(phase) if phase in _PHASES else "Unknown"
    return JobRecord(key, str(metadata["uid"]), "" if large else text, deep, large, known, completion_time)


def invalid(record: JobRecord, error: ValidationError) -> tuple[TrainingJobStatus, PostEvent] | None:
    """Return the status and the event for a job that cannot be parsed; None if this generation has them already.

    Nothing else changes: if the job is training, it goes on.
    """
    job = record.stand_in
    said = (c for c in job.status.conditions if c.type == INVALID_SPEC)
    if any(condition.observed_generation == job.metadata.generation for condition in said):
        return None
    message = (
        "This version of Trainmaster cannot follow the spec, so it leaves the job alone until that is corrected; what "
        f"trains goes on. {_problems(error)}"
    )
    condition = Condition(
        type=INVALID_SPEC,
        status="True",
        reason="UnknownOrWrongFields",
        message=message,
        last_transition_time=datetime.now(UTC),
        observed_generation=job.metadata.generation,
    )
    others = tuple(c for c in job.status.conditions if c.type != INVALID_SPEC)
    return dataclasses.replace(job.status, conditions=(*others, condition), message=message), PostEvent(
        "Warning", INVALID_SPEC, message
    )


def _problems(error: ValidationError) -> str:
    found = [
        f"{'.'.join(str(part) for part in detail['loc'])}: {detail['msg']}."
        for detail in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    more = f" And {len(found) - _MOST_PROBLEMS} more." if len(found) > _MOST_PROBLEMS else ""
    return " ".join(found[:_MOST_PROBLEMS]) + more
