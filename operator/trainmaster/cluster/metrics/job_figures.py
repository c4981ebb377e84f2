"""Tell Prometheus how each job is doing: one table of figures, each read from the job's status.

A job has about 30 samples. Their labels are the job's namespace and name, and words of fixed lists: never a rank, a pod
or a text that a user may choose freely, except the strategy's type, which the CRD bounds.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from trainmaster.api.job import TrainingJob
from trainmaster.api.status import RestartRecord
from trainmaster.core import figures
from trainmaster.core.failures import classes
from trainmaster.core.report import stragglers

Values = Iterable[tuple[tuple[str, ...], float | None]]

OTHER = "Other"  # a failure class that this version does not know
_CLASSES = frozenset(row.name for row in classes.CLASSES)


class JobFigure(NamedTuple):
    """One metric of a job: `values` gives its samples, each with the values of `labels`; None is no sample."""

    name: str
    help: str
    labels: tuple[str, ...]
    values: Callable[[TrainingJob], Values]
    counts: bool = False  # a counter, whose name ends with _total, and not a gauge


def _status(path: str) -> Callable[[TrainingJob], Values]:
    """Return the function that reads the number at this path of the status; there is none where a part is missing."""

    def read(job: TrainingJob) -> Values:
        value: object = job.status
        for part in path.split("."):
            value = getattr(value, part) if value is not None else None
        return [((), value if isinstance(value, (int, float)) else None)]

    return read


def _info(job: TrainingJob) -> Values:
    return [((job.spec.strategy.type, "command" if job.spec.training.command else "task"), 1.0)]


def _phase(job: TrainingJob) -> Values:
    return [((job.status.phase.value,), 1.0)]


def _workers(job: TrainingJob) -> Values:
    if not (found := job.status.replicas):
        return []
    return [(("ready",), found.ready), (("desired",), found.desired), (("spare",), found.spares)]


def _goodput(job: TrainingJob) -> Values:
    if not (found := job.status.goodput):
        return []
    accounts = ("waiting", "starting", "training", "saving", "recovering")
    return [*(((name,), getattr(found, name)) for name in accounts), (("lost_work",), found.lost_work)]


def _by_class(job: TrainingJob, weight: Callable[[RestartRecord], float | None]) -> Values:
    found: dict[str, float] = {}
    for record in job.status.restarts:
        name = known_class(record.failure_class)
        found[name] = found.get(name, 0.0) + (weight(record) or 0.0)
    return [((name,), total) for name, total in sorted(found.items())]


def known_class(name: str) -> str:
    """Return a failure class of the table, or OTHER: a status can be edited, and labels must stay few."""
    return name if name in _CLASSES else OTHER


def _straggler(job: TrainingJob) -> Values:
    rank = stragglers.named(job.status.conditions)
    return [((), -1 if rank is None else rank)]


def _eta(job: TrainingJob) -> Values:
    return [((), figures.length(job.status.progress.eta) if job.status.progress else None)]


def _checkpoint_time(job: TrainingJob) -> Values:
    time = job.status.checkpoint.time if job.status.checkpoint else None
    return [((), time.timestamp() if time else None)]


FIGURES = (
    JobFigure(
        "trainmaster_job_info",
        "The strategy, and whether it trains a task or a command.",
        ("strategy", "program"),
        _info,
    ),
    JobFigure("trainmaster_job_phase", "1, with the phase that the job is in.", ("phase",), _phase),
    JobFigure("trainmaster_job_attempt", "Which attempt this is.", (), _status("attempt")),
    JobFigure(
        "trainmaster_job_workers", "Workers that are ready, wanted, or stand by as spares.", ("state",), _workers
    ),
    JobFigure("trainmaster_job_step", "The last step that ended.", (), _status("progress.step")),
    JobFigure("trainmaster_job_total_steps", "How many steps there will be.", (), _status("progress.total_steps")),
    JobFigure("trainmaster_job_loss", "The loss at the last step.", (), _status("progress.loss")),
    JobFigure("trainmaster_job_samples_per_second", "Over all workers.", (), _status("progress.samples_per_second")),
    JobFigure("trainmaster_job_eta_seconds", "How long training will still take.", (), _eta),
    JobFigure(
        "trainmaster_job_data_wait_ratio",
        "The share of its time that a rank waits for samples, of the rank that waits longest.",
        (),
        _status("progress.waiting.data"),
    ),
    JobFigure(
        "trainmaster_job_straggler_rank", "The rank that the others wait for; -1: there is none.", (), _straggler
    ),
    JobFigure(
        "trainmaster_job_checkpoint_step", "The step of the newest complete checkpoint.", (), _status("checkpoint.step")
    ),
    JobFigure("trainmaster_job_checkpoint_timestamp_seconds", "When it was complete.", (), _checkpoint_time),
    JobFigure(
        "trainmaster_job_checkpoint_duration_seconds",
        "How long it took from its step's end.",
        (),
        _status("checkpoint.seconds"),
    ),
    JobFigure(
        "trainmaster_job_restarts",
        "How many times training had to start again.",
        (),
        _status("restart_count"),
        counts=True,
    ),
    JobFigure(
        "trainmaster_job_failures",
        "Entries of the restart ledger, which keeps the newest 50.",
        ("class",),
        lambda job: _by_class(job, lambda _: 1),
    ),
    JobFigure(
        "trainmaster_job_lost_steps",
        "Steps that had to be trained again, of those entries.",
        ("class",),
        lambda job: _by_class(job, lambda record: record.steps_lost),
    ),
    JobFigure(
        "trainmaster_job_lost_seconds",
        "Seconds from a failure to the next step, of those entries.",
        ("class",),
        lambda job: _by_class(job, lambda record: record.seconds_lost),
    ),
    JobFigure(
        "trainmaster_job_goodput_seconds",
        "Where the time since the job's creation went; the accounts add up to it.",
        ("account",),
        _goodput,
    ),
)


def texts(jobs: Iterable[TrainingJob]) -> Iterator[bytes]:
    """Yield the page's part of these jobs, a piece for each row of the table.

    The client's own writer makes an object of each sample, checks it, and writes it: three times the work, and the
    garbage collector's full rounds hold up the event loop (decision 0196). These names and labels are the table's.
    """
    read = [(job, f'{{namespace="{_escaped(job.namespace)}",job="{_escaped(job.name)}"') for job in jobs]
    for figure in FIGURES:
        name = f"{figure.name}_total" if figure.counts else figure.name
        lines = [f"# HELP {name} {figure.help}", f"# TYPE {name} {'counter' if figure.counts else 'gauge'}"]
        for job, labelled in read:
            start = f"{name}{labelled}"
            for words, value in figure.values(job):
                if value is not None:
                    more = "".join(f',{key}="{_escaped(word)}"' for key, word in zip(figure.labels, words, strict=True))
                    lines.append(f"{start}{more}}} {float(value)!r}")
        yield "\n".join((*lines, "")).encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
