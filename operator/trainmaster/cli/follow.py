"""Follow a job on a cluster until its end: how it is goes to standard error, what rank 0 prints to standard output."""

import threading

from trainmaster.api.job_states import TERMINAL, Phase
from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli.cluster import EXIT_CLUSTER, EXIT_FAILED, EXIT_GOOD
from trainmaster.cli.job_logs import NoLogError, place_of_rank
from trainmaster.cli.terminal import complain, tell_of_a_log
from trainmaster.cluster.access import Access, AccessError, Document
from trainmaster.cluster.following import followed, states

_LAST_LINES_SECONDS = 10.0


def follow(access: Access, job: Document) -> int:
    """Follow the job, and return the exit code: 0 if it succeeded, 1 if it failed."""
    name = job["metadata"]["name"]
    reading = threading.Thread(target=_show_log, args=(access, job), daemon=True)
    reading.start()
    told = ""
    try:
        for now in states(access, name):
            status = TrainingJobStatus.read((now or job).get("status"))
            progress = status.progress
            step = f", step {progress.summary}" if progress else ""
            loss = f", loss {progress.loss:g}" if progress and progress.loss is not None else ""
            message = f": {status.message}" if status.message else ""
            if (line := f"{name}: {status.phase}{step}{loss}{message}") != told:
                complain(told := line)
            if status.phase in TERMINAL:
                reading.join(_LAST_LINES_SECONDS)
                return EXIT_GOOD if status.phase == Phase.SUCCEEDED else EXIT_FAILED
    except AccessError as error:
        complain(f"trainmaster: {error}")
    except KeyboardInterrupt:
        complain(f"{name} goes on; see it again: trainmaster logs {name} -f -n {access.namespace}")
        raise
    return EXIT_CLUSTER


def _show_log(access: Access, job: Document) -> None:
    try:
        for line in followed(access, job["metadata"]["name"], place_of_rank(job, 0)):
            tell_of_a_log(line.decode(errors="replace"))
    except (AccessError, NoLogError, OSError) as error:
        complain(f"the log of rank 0 has ended: {error}")
