"""Run the part of `trainmaster explain` that says what will happen when a job runs."""

from pathlib import Path

from trainmaster.advice.explanation import explain
from trainmaster.cli.check import EXIT_BAD, EXIT_GOOD, load_or_report
from trainmaster.cli.measuring import MeasureError, measure
from trainmaster.cli.terminal import complain, tell


def explain_job(path: str, content: bytes) -> int:
    """Print the sections for a file, and return the exit code: 2 if it is no job or its task cannot be used."""
    job = load_or_report(Path(path), content)
    if job is None:
        return EXIT_BAD
    try:
        model = measure(job, Path(path).resolve().parent, machine=False).model if job.spec.training.task else None
    except MeasureError as error:
        complain(f"{path}: {error}")
        return EXIT_BAD
    sections = [[title, *(f"  {line}" for line in lines)] for title, lines in explain(job, model)]
    tell(line for number, section in enumerate(sections) for line in (*([""] if number else []), *section))
    return EXIT_GOOD
