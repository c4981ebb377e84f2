"""Keep checkpoints in an object store, through fsspec: the same shards and manifests as in a folder, under keys.

    <url>/step-00000050.attempt-2-restart-1/shard-00000-of-00004.5ab1d2f0.safetensors
                                            lines.json        which segments have the lines up to this step
                                            manifest.json     put last, in one request: the commit
    <url>/lines/...                         segments of these, see `segments.py`
    <url>/attempt.json, lineage.json

There is no rename in an object store, so every try of the group has keys of its own and what has no manifest does not
exist. A late put of an older attempt can overwrite nothing; should it still commit, the lineage passes it over.
Reading brings a checkpoint into a folder and verifies it there, like any other; what a store may answer has bounds
(`object_reader.py`, `bounded_session.py`).
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster_trainer.checkpoint.layout import MANIFEST
from trainmaster_trainer.checkpoint.object_reader import ObjectReader, TooManyError, code_of
from trainmaster_trainer.errors import ConfigurationError, is_garbled
from trainmaster_trainer.settings import Settings

log = logging.getLogger(__name__)
FIELD = "spec.checkpoint.storage.objectStore"
SEGMENTS = "lines"
_FOLDER = re.compile(r"(step-([0-9]{8,15})\.attempt-([0-9]{1,15})-restart-([0-9]{1,15}))/([^/]+)")
_SEGMENT = re.compile(SEGMENTS + r"/([^/]+\.attempt-([0-9]{1,15})-restart-[0-9]{1,15}\.jsonl)")
_PATIENCE = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 3}}  # seconds
_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "InvalidAccessKeyId")
_PASSING = ("ExpiredToken", "RequestTimeTooSkewed")  # of the refusals: tokens are renewed, and clocks are set


class StorageError(OSError):
    """The object store does not answer, or not now. The operator's table of signatures knows this name."""


@dataclass(frozen=True, order=True)
class SavedCheckpoint:
    """SavedCheckpoint is a checkpoint: the newest is the largest."""

    step: int
    attempt: int
    restart: int
    name: str


@dataclass(frozen=True)
class StoreListing:
    """StoreListing holds what there is in the store."""

    saved: list[SavedCheckpoint]  # committed, the newest first
    unfinished: list[SavedCheckpoint]  # have no manifest
    segments: dict[str, int]  # name: attempt


class Remote:
    """Remote gives access to the objects below one URL.

    Raises:
        ConfigurationError: no retry could make writing there possible.
        StorageError: the store does not answer, or not now.
    """

    def __init__(self, url: str, endpoint: str | None, field: str = FIELD) -> None:
        self._url = url
        self._field = field  # of the spec, for messages
        self._url_field = f"{field}.url" if field == FIELD else field
        with self._errors():
            import fsspec.core  # noqa: PLC0415 (half a second with its S3 driver: for those who use it)

            options: dict[str, Any] = {"auto_mkdir": True}
            if url.startswith("s3://"):
                from trainmaster_trainer.checkpoint.bounded_session import BoundedSession  # noqa: PLC0415 (likewise)

                config = {**_PATIENCE, "http_session_cls": BoundedSession}
                options = {"config_kwargs": config, "use_listings_cache": False, "skip_instance_cache": True}
            if endpoint:
                options["endpoint_url"] = endpoint
            self._files, self._root = fsspec.core.url_to_fs(url, **options)
            self._reader = ObjectReader(self._files, str(self._root))

    def put(self, name: str, data: bytes) -> None:
        """Write an object, in one request."""
        with self._errors():
            self._files.pipe_file(f"{self._root}/{name}", data)

    def get(self, name: str, most: int) -> bytes | None:
        """Return an object's content; None where there is none.

        Raises:
            OSError: it has more than `most` bytes (EFBIG).
        """
        with self._errors():
            try:
                data = self._reader.read(name, 0, most + 1)
            except FileNotFoundError:
                return None
        if len(data) > most:
            raise OSError(errno.EFBIG, f"the object has more than {most} bytes", name)
        return data

    def put_file(self, path: Path, name: str) -> None:
        """Write an object from a file."""
        with self._errors():
            self._files.put_file(str(path), f"{self._root}/{name}")

    def saved(self) -> list[SavedCheckpoint]:
        """Return the committed checkpoints, newest first."""
        return self.listing().saved

    def listing(self) -> StoreListing:
        """Return all that is in the store, listed once."""
        names = self._names()
        found = [match for match in map(_FOLDER.fullmatch, names) if match]
        committed = {match[1] for match in found if match[5] == MANIFEST}
        every = sorted({SavedCheckpoint(int(m[2]), int(m[3]), int(m[4]), m[1]) for m in found}, reverse=True)
        return StoreListing(
            [one for one in every if one.name in committed],
            [one for one in every if one.name not in committed],
            {match[1]: int(match[2]) for match in map(_SEGMENT.fullmatch, names) if match},
        )

    def folders(self) -> list[str]:
        """Return the names of the folders directly below."""
        with self._errors():
            try:
                return list(self._reader.folders())
            except FileNotFoundError:
                return []

    def last_saved(self) -> float:
        """Return when the newest commit was put, in seconds since 1970; 0: there is none, 1: the store does not say."""
        with self._errors(), suppress(FileNotFoundError):
            found = [(_FOLDER.fullmatch(entry.name), entry.time) for entry in self._reader.entries()]
            return max((time or 1.0 for match, time in found if match and match[5] == MANIFEST), default=0.0)
        return 0.0

    def fetch(self, name: str, path: Path, length: int) -> None:
        """Copy the first bytes of an object into a new file.

        What is deleted meanwhile, or is not what was put, is no error: who reads the file finds it bad.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            if not self.copy(name, descriptor, 0, length) and not os.fstat(descriptor).st_size:
                path.unlink()  # there is no such object
        finally:
            os.close(descriptor)

    def copy(self, name: str, descriptor: int, position: int, length: int) -> bool:
        """Write the first bytes of an object into a file. Return whether it has so many, and they are what was put."""
        with self._errors():
            try:
                return self._reader.copy(name, descriptor, position, length)
            except FileNotFoundError:
                return False
            except Exception as error:
                if "Checksum" not in type(error).__name__:
                    raise
                return False

    def remove(self, name: str) -> None:
        """Delete a checkpoint: the manifest first, so that no part of it is ever taken for a checkpoint."""
        found = (match for match in map(_FOLDER.fullmatch, self._names()) if match)
        for one in sorted((m[0] for m in found if m[1] == name), key=lambda one: not one.endswith(MANIFEST)):
            self.delete(one)

    def delete(self, name: str) -> None:
        """Delete an object."""
        with self._errors(), suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")

    def clean(self) -> None:
        """Delete what dead attempts left unfinished."""
        for one in self.listing().unfinished:
            self.remove(one.name)
        if "s3" not in self._files.protocol:
            return
        # The parts of large objects that a killed process has left are in no listing, but cost money.
        bucket, _, prefix = str(self._root).partition("/")
        try:
            found = self._files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/")
            for upload in found.get("Uploads", []):
                self._files.abort_mpu(bucket, upload["Key"], upload["UploadId"])
        except Exception as error:  # noqa: BLE001 (not all stores know of it, and not all keys may)
            log.info("What unfinished uploads left in %s could not be looked for: %s", self._url, error)

    def _names(self) -> list[str]:
        with self._errors():
            try:
                return [entry.name for entry in self._reader.entries()]
            except FileNotFoundError:
                return []

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of the client as the trainer's own; those that a retry cannot mend as configuration errors."""
        try:
            yield
        except ImportError as error:
            raise ConfigurationError(f"{self._field}: {error}. Install its fsspec driver (for S3: s3fs).") from None
        except ConfigurationError:
            raise
        except TooManyError as error:
            raise ConfigurationError(
                f"{self._url_field}: {self._url}: {error}. Take away what is not the job's."
            ) from None
        except Exception as error:  # noqa: BLE001 (an S3 client has dozens of kinds)
            kind, code = type(error).__name__, code_of(error)
            # Its client has an OSError of its own for many codes, with a number that means nothing here.
            own: Exception = StorageError(f"{self._url}: {code or kind}: {error}")
            if isinstance(error, PermissionError) and code not in _PASSING:
                own = ConfigurationError(f"{self._field}: {self._url}: {error}. Correct the Secret's credentials.")
            elif isinstance(error, FileNotFoundError):
                cure = "Make the bucket, or correct the URL."
                own = ConfigurationError(f"{self._url_field}: {self._url}: {error}. {cure}")
            elif isinstance(error, OSError) and "access key" in str(error).lower():
                own = ConfigurationError(f"{self._field}: {error}. Correct the Secret's credentials.")
            elif kind in _CREDENTIALS:
                cure = "Name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY as secretName."
                own = ConfigurationError(f"{self._field}: {error}. {cure}")
            elif isinstance(error, ValueError) and not isinstance(error, OSError) and not is_garbled(error):
                own = ConfigurationError(f"{self._url_field}: {self._url}: {error}.")
            raise own from None


def open_remote(settings: Settings) -> Remote | None:
    """Return the job's object store; None if it has none."""
    plan = settings.plan
    return Remote(plan.checkpoint_url, plan.checkpoint_endpoint) if plan.checkpoint_url else None
