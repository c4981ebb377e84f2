"""Keep the last lines of pods that are deleted while they run: their logs go with them.

The kubelet tells them when a container has ended with an error, as an agent does that is told to end. That way needs no
right to read logs, which the operator has not.
"""

from trainmaster.api.status import TrainingJobStatus
from trainmaster.api.status_of_pods import LastLines
from trainmaster.core import figures
from trainmaster.core.situation.facts import Facts
from trainmaster.wire import names

MOST = 4  # replicas of which they are kept
LONGEST = 1000  # characters of each


def kept_lines(facts: Facts, status: TrainingJobStatus) -> tuple[LastLines, ...]:
    """Return those that are kept, with those of the pods that have just ended: of the first replicas, workers first."""
    ended = [(one, one.ending) for one in facts.observed.replicas if one.deleting and one.index >= 0 and one.ending]
    # Without an exit code, or of another container, the message is not the log's.
    said = [(one, end.message) for one, end in ended if end.message and end.exit_code and not end.container]
    if not said or status.finished or facts.job.metadata.deletion_timestamp:
        return status.last_lines
    kept = {one.replica: one for one in status.last_lines}
    for replica, text in said:
        key = names.replica_key(replica.role, replica.index)
        if key not in kept or kept[key].incarnation <= replica.incarnation:
            told = figures.legible(text[-LONGEST:])
            kept[key] = LastLines(replica=key, incarnation=replica.incarnation, text=told)
    first = sorted(kept, key=lambda key: (not key.startswith(names.WORKER), len(key), key))[:MOST]
    return tuple(kept[key] for key in first)
