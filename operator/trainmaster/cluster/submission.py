"""Create a job with its code so that whatever is cut off leaves nothing behind.

1. The job is created, suspended, marked as incomplete, and to vanish right after its end.
2. The ConfigMaps with its code are created, owned by it: they go when it goes.
3. One patch takes the mark away and sets suspend and ttlSecondsAfterFinished as the user wants them.
What fails in between has the job deleted. If this process is killed instead, the operator ends the job after ten
minutes (core/rules/acceptance.py), and another submission of the same name takes its place at once.
"""

import base64
import os
import secrets as random
from dataclasses import dataclass
from typing import Any

from trainmaster.cluster.access import MERGE_PATCH, Access, AccessError, Document
from trainmaster.wire import archives, aws, bundle, git_fetch, names
from trainmaster.wire.sources import GitSource, Secrets, UrlSource

_CONFLICT = 409
_GONE = 404


@dataclass(frozen=True)
class PackedCode:
    """Hold the packed code, and what the spec says of it: of a bundle, or of a URL where it has an address."""

    packed: bytes
    about: Document


def submit(access: Access, wanted: Document, code: PackedCode | None) -> Document:
    """Create the job, and return it as the cluster has it.

    Raises:
        AccessError: the cluster refuses, or cannot be reached. Nothing is left then, or the text says what.
    """
    if code is None:
        return _post(access, wanted)
    if "address" in code.about:
        return _by_store(access, wanted, code)
    tag = random.token_hex(3)
    parts = bundle.split(code.packed)
    metadata = wanted["metadata"]
    base = metadata.get("name") or metadata["generateName"].rstrip("-")
    maps = [f"{base}-code-{code.about['sha256'][:8]}-{tag}-{number}" for number in range(len(parts))]
    made = _create(access, _incomplete(wanted, {**code.about, "configMaps": maps}, tag), tag)
    try:
        for name, part in zip(maps, parts, strict=True):
            _create_part(access, made, name, part)
        return _release(access, made, wanted["spec"])
    except BaseException as error:
        _withdraw(access, made, error)
        raise


def _by_store(access: Access, wanted: Document, code: PackedCode) -> Document:
    """Put the code into its bucket, then create the job in one call: no job waits for code that may never come.

    The object is named by its hash. One that is there already is another job's as well, and is never deleted.
    """
    address, endpoint = code.about["address"], code.about.get("endpoint")
    secrets = Secrets.taken_from(dict(os.environ))
    is_new = not aws.exists(address, endpoint, secrets)
    if is_new:
        aws.request("PUT", address, endpoint, secrets, body=code.packed)
    spec = {**wanted["spec"], "training": {**wanted["spec"]["training"], "code": {"url": code.about}}}
    try:
        return _post(access, {**wanted, "spec": spec})
    except AccessError as error:
        if is_new and error.status:  # refused; without an answer the job may be there
            aws.request("DELETE", address, endpoint, secrets)
        raise


def _incomplete(wanted: Document, about: Document, tag: str) -> Document:
    metadata, spec = wanted["metadata"], wanted["spec"]
    return {
        **wanted,
        "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), names.SUBMISSION: tag}},
        "spec": {
            **spec,
            "training": {**spec["training"], "code": {"bundle": about}},
            "suspend": True,
            "ttlSecondsAfterFinished": 0,
        },
    }


def _create(access: Access, job: Document, tag: str) -> Document:
    """Create the job. One of the same name whose submission was cut off is replaced."""
    try:
        return _post(access, job)
    except AccessError as error:
        if error.status not in (0, _CONFLICT) or "name" not in job["metadata"]:
            raise
        there = _existing_job(access, job["metadata"]["name"])
        mark = _mark(there)
        if there is not None and mark == tag:
            return there  # the answer was lost, not the request
        if there is None or mark is None or error.status != _CONFLICT:
            raise
        _delete(access, there)
        return _post(access, job)


def _post(access: Access, job: Document) -> Document:
    """Create a job. A field that the cluster's CRD does not know is refused; else it would be dropped in silence."""
    return access.call("POST", access.jobs, job, {"fieldValidation": "Strict"})


def _mark(job: Document | None) -> str | None:
    annotations = job["metadata"].get("annotations") if job else None
    return annotations.get(names.SUBMISSION) if annotations else None


def _existing_job(access: Access, name: str) -> Document | None:
    try:
        return access.job(name)
    except AccessError as error:
        if error.status == _GONE:
            return None
        raise


def _create_part(access: Access, job: Document, name: str, part: bytes) -> None:
    metadata = job["metadata"]
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": metadata["name"], "uid": metadata["uid"]}
    labels = {"app.kubernetes.io/managed-by": "trainmaster", names.LABEL_JOB: metadata["name"]}
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "immutable": True,
        "binaryData": {bundle.PART_KEY: base64.b64encode(part).decode()},
    }
    try:
        access.call("POST", f"{access.core}/configmaps", made)
    except AccessError as error:
        if error.status:
            raise
        access.call("GET", f"{access.core}/configmaps/{name}")  # it is there if only the answer was lost


def _release(access: Access, job: Document, spec: Document) -> Document:
    """Let the job begin. Where no answer comes, it is asked whether it has."""
    wanted: dict[str, Any] = {key: spec.get(key) for key in ("suspend", "ttlSecondsAfterFinished")}
    metadata = {"uid": job["metadata"]["uid"], "annotations": {names.SUBMISSION: None}}
    path = f"{access.jobs}/{job['metadata']['name']}"
    try:
        return access.call("PATCH", path, {"metadata": metadata, "spec": wanted}, kind=MERGE_PATCH)
    except AccessError as error:
        there = _existing_job(access, job["metadata"]["name"])
        if there is not None and there["metadata"]["uid"] != job["metadata"]["uid"]:
            what = f"another submission of {job['metadata']['name']} has taken the place of this one"
            raise AccessError(what, _CONFLICT) from None
        if error.status or there is None or _mark(there) is not None:
            raise
        return there


def _withdraw(access: Access, job: Document, cause: BaseException) -> None:
    try:
        _delete(access, job)
    except AccessError as error:
        if isinstance(cause, AccessError) and error.status not in (_GONE, _CONFLICT):  # another job has its name
            left = f"The job {job['metadata']['name']} could not be withdrawn ({error}). It is suspended,"
            cause.args = (f"{cause}\n{left} and goes by itself ten minutes after it was made",)


def _delete(access: Access, job: Document) -> None:
    preconditions = {"preconditions": {"uid": job["metadata"]["uid"]}, "propagationPolicy": "Background"}
    access.call("DELETE", f"{access.jobs}/{job['metadata']['name']}", preconditions)


def code_of(access: Access, job: Document) -> list[bundle.BundleEntry]:
    """Return the code that a job runs. What lies elsewhere is asked for as who calls this.

    Raises:
        AccessError: its ConfigMaps cannot be read.
        UnavailableError: where it lies does not answer.
        bundle.BundleError: it is not what was sent, or the job has no code of its own.
    """
    code = job.get("spec", {}).get("training", {}).get("code") or {}
    secrets = Secrets.taken_from(dict(os.environ))
    match code:
        case {"bundle": about}:
            return _of_bundle(access, about)
        case {"url": about}:
            return archives.fetch(UrlSource(about["address"], about["sha256"], about.get("endpoint")), secrets)
        case {"git": about}:
            return git_fetch.fetch(GitSource(about["repository"], about["commit"]), secrets)
        case {"image": about}:
            raise bundle.BundleError(f"its code is an image: crane export {about['reference']} code.tar brings it")
    raise bundle.BundleError("the job was not submitted with code: it runs what is in its image")


def _of_bundle(access: Access, about: Document) -> list[bundle.BundleEntry]:
    packed = b""
    for name in about["configMaps"]:
        found = access.call("GET", f"{access.core}/configmaps/{name}")
        packed += base64.b64decode(found.get("binaryData", {}).get(bundle.PART_KEY, ""))
        if len(packed) > bundle.MOST_BYTES:
            raise bundle.BundleError(f"the code has more than {bundle.MOST_BYTES >> 20} MiB")
    return bundle.read(packed, about["sha256"])
