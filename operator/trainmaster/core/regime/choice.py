"""Choose the regime of a job, once per look."""

from datetime import datetime

from trainmaster.api.job import TrainingJob
from trainmaster.api.job_states import Phase
from trainmaster.core.regime.independent import Founding, Independent
from trainmaster.core.regime.together import Together
from trainmaster.core.situation.facts import Facts
from trainmaster.core.states.observed import Observed


def look(job: TrainingJob, observed: Observed, now: datetime) -> Facts:
    """Return the facts of one look at a job: with the regime that strategy and status choose."""
    if not job.spec.independent:
        return Facts(job, observed, now, Together)
    # Members live for themselves once all have begun the attempt; a status without an attempt has begun none.
    has_begun = job.status.attempt and job.status.phase == Phase.RUNNING
    return Facts(job, observed, now, Independent if has_begun else Founding)
