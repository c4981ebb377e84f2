"""Run `trainmaster submit JOB.yaml`: send a job to a cluster, with the code that it needs and no image has."""

import argparse
import hashlib
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from trainmaster.api.document import load_data, read_file
from trainmaster.api.job import TrainingJob
from trainmaster.api.problem import Problem, reason
from trainmaster.api.supported import not_yet_supported
from trainmaster.cli import bundling
from trainmaster.cli.check import NOT_KEPT, report_problems
from trainmaster.cli.cluster import EXIT_CLUSTER, EXIT_GOOD, EXIT_INVALID
from trainmaster.cli.follow import follow
from trainmaster.cli.tables import now, shown
from trainmaster.cli.terminal import complain, tell
from trainmaster.cluster.access import Access, AccessError
from trainmaster.cluster.submission import PackedCode, submit
from trainmaster.wire.archives import MOST_PACKED
from trainmaster.wire.bundle import MOST_BYTES, BundleError
from trainmaster.wire.names import BEFORE_A_NAME
from trainmaster.wire.sources import SourceUnavailableError

_OF_OURS = "trainmaster_trainer."  # its tasks are in every trainer image

Document = dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    data = _read(options.job, options.set)
    if data is None:
        return EXIT_INVALID
    job = TrainingJob.parse(data)
    later = [f"{options.job}: {field}: {why}" for field, why in not_yet_supported(job.spec)]
    if later:
        complain(*later)
        return EXIT_INVALID
    try:
        code = packed_code(job, options)
        named = data["metadata"].get("namespace")
        if named and options.namespace and named != options.namespace:
            complain(f"{options.job}: metadata.namespace is {named}, and --namespace {options.namespace}: remove one")
            return EXIT_INVALID
        access = Access(options.context, options.namespace or named)
        made = _submitted(access, data, code)
    except BundleError as error:
        complain(*f"trainmaster submit: {error}".split("\n"))
        return EXIT_INVALID
    except (AccessError, SourceUnavailableError) as error:
        complain(*f"trainmaster submit: {_explained(error, job)}".split("\n"))
        return EXIT_CLUSTER
    created = [f"{BEFORE_A_NAME}{made['metadata']['name']} created in namespace {access.namespace}"]
    tell(shown([made], options.output, now(), single=True) if options.output else created)
    if job.spec.training.task and job.spec.checkpoint.storage is None:
        complain(f"{options.job}: note: spec.checkpoint.storage: {NOT_KEPT}")
    return follow(access, made) if options.follow else EXIT_GOOD


def _read(name: str, changes: list[str]) -> Document | None:
    """Return the job in a file, or in standard input for -; else print what is wrong."""
    try:
        read = load_data(read_file(Path(name)), changes)
    except OSError as error:
        read = [Problem(1, 1, "", f"the file cannot be read: {reason(error)}", "Check the path and its permissions")]
    if isinstance(read, list):
        report_problems(name, read)
        return None
    return read


def packed_code(job: TrainingJob, options: argparse.Namespace) -> PackedCode | None:
    """Return the code to send: of --code, else of the file's folder where the job may need it."""
    if options.no_code or (options.code is None and not _needs_code(job)):
        return None
    folder = Path(options.code) if options.code else Path() if options.job == "-" else Path(options.job).parent
    made = bundling.of_folder(folder, MOST_PACKED if options.code_url else MOST_BYTES)
    about: Document = {"sha256": made.sha256}
    if options.code_url:
        about = _in_a_bucket(made.packed, job, options)
    if made.commit:
        about |= {"commit": made.commit, "dirty": made.dirty}
    complain(f"code: {made.files} files of {folder.resolve()}, {len(made.packed):,} bytes, {about['sha256'][:12]}")
    return PackedCode(made.packed, about)


def _in_a_bucket(packed: bytes, job: TrainingJob, options: argparse.Namespace) -> Document:
    """Return what the spec says of an archive that is to lie in a bucket: of the job's own store, if not told."""
    if not options.code_url.startswith("s3://"):
        raise BundleError(f"--code-url {options.code_url}: write it like s3://bucket/folder")
    storage = job.spec.checkpoint.storage
    store = storage.object_store if storage else None
    sha256 = hashlib.sha256(packed).hexdigest()
    about = {
        "address": f"{options.code_url.rstrip('/')}/{sha256}.tar.gz",
        "sha256": sha256,
        "endpoint": (store.endpoint if store else None) or os.environ.get("AWS_ENDPOINT_URL"),
        "secretName": options.code_secret or (store.secret_name if store else None),
    }
    return {key: value for key, value in about.items() if value}


def _needs_code(job: TrainingJob) -> bool:
    training = job.spec.training
    elsewhere = training.code is not None or (training.working_directory or "").startswith("/")
    return not elsewhere and not (training.task or "").startswith(_OF_OURS)


def _submitted(access: Access, data: Document, code: PackedCode | None) -> Document:
    """Submit, and withdraw at SIGTERM as at Ctrl-C."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        return submit(access, data, code)
    finally:
        signal.signal(signal.SIGTERM, before)


def _explained(error: AccessError | SourceUnavailableError, job: TrainingJob) -> str:
    if isinstance(error, AccessError) and error.status == 409:  # noqa: PLR2004 as HTTP has it
        return (
            f"there is a job {job.name} in this namespace already. Give yours another metadata.name, or delete that "
            f"one: kubectl delete tj {job.name}"
        )
    return str(error)
