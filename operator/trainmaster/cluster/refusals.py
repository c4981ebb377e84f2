"""Remember what the API server refused, per job and wish, until the wish is granted.

So users see why, and the API server is not asked too often. Errors in the API server or behind it (5xx) are remembered
too, but shown only if they come again. A wish that is not made any more (fewer workers, another incarnation) is
forgotten STALE_SECONDS after its pause.

All is kept in memory: after a restart of the operator the wish is simply tried again.
"""

import dataclasses
import re
import time
from dataclasses import dataclass
from http import HTTPStatus

from trainmaster.cluster.client import AnswerError
from trainmaster.core.situation.obstacles import AMOUNTS_MISSING, BROKEN
from trainmaster.core.states.observed import Obstacle

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
# A wish that was not repeated for so long after its pause is not made any more.
STALE_SECONDS = 60.0

INVALID, DENIED_BY_POLICY = "Invalid", "DeniedByPolicy"
QUOTA_EXCEEDED, NAMESPACE_TERMINATING = "QuotaExceeded", "NamespaceTerminating"
DELETION_REFUSED = "DeletionRefused"
# 403: Pod Security, a limit, or a right that we lack. 422 and 400: the object itself is wrong.
_REASONS = {400: INVALID, 403: "Forbidden", 422: INVALID}

# The wish to write the status. Its refusal is no obstacle of a replica, and could be shown in the status only.
STATUS = "the status"

# Refusals that only the message tells apart, not the HTTP status. Admission control comes first, because its messages
# may hold any text. A webhook that does not answer at all counts as a broken API server, not as a policy.
_WORDS = (
    (re.compile(r"admission webhook |.*\bValidatingAdmissionPolicy '"), DENIED_BY_POLICY),
    (re.compile(r".*\bexceeded quota\b"), QUOTA_EXCEEDED),
    (re.compile(r".*\bfailed quota: .*\bmust specify\b"), AMOUNTS_MISSING),
    (re.compile(r".*\bnamespace \S+ because it is being terminated"), NAMESPACE_TERMINATING),
)


@dataclass(frozen=True)
class _Refusal:
    obstacle: Obstacle
    pause: float
    until: float
    told: bool
    revision: str


class Refusals:
    """Keep all refusals that stand."""

    def __init__(self) -> None:
        self._by_job: dict[str, dict[str, _Refusal]] = {}

    def obstacles(self, job_uid: str) -> tuple[Obstacle, ...]:
        """Return the obstacles of a job, each message once per replica that it is about."""
        soon = time.monotonic() - STALE_SECONDS
        self._keep(job_uid, {wish: one for wish, one in self._by_job.get(job_uid, {}).items() if one.until >= soon})
        wishes = self._by_job.get(job_uid, {})
        all_of_it = (refusal.obstacle for wish, refusal in wishes.items() if refusal.told and wish != STATUS)
        return tuple({(obstacle.message, obstacle.name): obstacle for obstacle in all_of_it}.values())

    def remember(
        self, job_uid: str, wish: str, obstacle: Obstacle, *, revision: str = "", hiccup: bool = False
    ) -> float:
        """Note a refusal, and return in how many seconds to ask again. A `hiccup` is shown only if it comes again.

        `revision` is the revision of the spec that the wish was made of.
        """
        wishes = self._by_job.setdefault(job_uid, {})
        before = wishes.get(wish)
        pause = min(LONGEST_PAUSE_SECONDS, before.pause * 2) if before else FIRST_PAUSE_SECONDS
        since = before.obstacle.since if before else time.time()
        told = before is not None or not hiccup
        dated, until = dataclasses.replace(obstacle, since=since), time.monotonic() + pause
        wishes[wish] = _Refusal(dated, pause, until, told, revision)
        return pause

    def rests(self, job_uid: str, wish: str) -> bool:
        """Return whether it is too early to ask again."""
        refusal = self._by_job.get(job_uid, {}).get(wish)
        return refusal is not None and time.monotonic() < refusal.until

    def granted(self, job_uid: str, wish: str) -> None:
        """Forget the refusal of a wish that succeeded."""
        wishes = self._by_job.get(job_uid)
        if wishes and wishes.pop(wish, None) and not wishes:
            del self._by_job[job_uid]

    def withdraw(self, job_uid: str, prefix: str) -> None:
        """Forget the refusals of all wishes with this prefix. If such a wish is made again, it counts as a new one."""
        wishes = self._by_job.get(job_uid, {})
        self._keep(job_uid, {wish: one for wish, one in wishes.items() if not wish.startswith(prefix)})

    def __contains__(self, job_uid: str) -> bool:
        """Return whether anything was refused to this job."""
        return job_uid in self._by_job

    def withdraw_older(self, job_uid: str, prefix: str, revision: str) -> None:
        """Forget the refusals of wishes with this prefix that were made of another revision of the spec."""
        wishes = self._by_job.get(job_uid, {})
        stays = {wish: one for wish, one in wishes.items() if one.revision == revision or not wish.startswith(prefix)}
        self._keep(job_uid, stays)

    def forget(self, job_uid: str) -> None:
        """Forget all refusals of a job that is deleted."""
        self._by_job.pop(job_uid, None)

    def _keep(self, job_uid: str, wishes: dict[str, _Refusal]) -> None:
        if wishes:
            self._by_job[job_uid] = wishes
        else:
            self._by_job.pop(job_uid, None)


def obstacle_of(error: AnswerError) -> Obstacle:
    """Return an answer of the API server as an obstacle. A policy's refusal is no final one: it may change."""
    told = next((reason for words, reason in _WORDS if words.match(error.message)), None)
    usual = BROKEN if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else error.reason or "Refused"
    return Obstacle(told or _REASONS.get(error.status, usual), error.message)
