"""Choose the regime of a job, once per look."""

from datetime import datetime

from trainmaster.api.job import TrainingJob
from trainmaster.api.states import Phase
from trainmaster.core.regime.independent import Founding, Independent
from trainmaster.core.regime.together import Together
from trainmaster.core.situation.facts import Facts
from trainmaster.core.situation.regime import Regime
from trainmaster.core.states.observed import Observed


def look(job: TrainingJob, observed: Observed, now: datetime) -> Facts:
    """Return the facts of one look at a job."""
    return Facts(job, observed, now, choose)


def choose(facts: Facts) -> Regime:
    """Return the regime: by the strategy, and by whether the members of the attempt have begun."""
    if not facts.job.spec.independent:
        return Together(facts)
    return Independent(facts) if facts.status.phase == Phase.RUNNING else Founding(facts)
