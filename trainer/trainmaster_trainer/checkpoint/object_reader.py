"""Read what an object store holds, within bounds of bytes and time: who can write there is not always a friend.

Whatever is read, the reader says how much at most; nothing goes by what the store says of a length.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

SECONDS = 25.0  # for one part of an object, or for a whole list
MOST_LISTED = 200_000  # objects of a job: the shards of ten checkpoints of ten thousand ranks are half of it
_PART = 4 << 20  # bytes
_THREADS = 8
_LATE = "it has not answered in full in the time that it has for that"


class TooManyError(Exception):
    """There are more objects than those of any job."""


class ObjectEntry(NamedTuple):
    """An entry is an object, or a folder, in a list."""

    name: str
    time: float | None  # when it was put, in seconds since 1970, where the list says it


class ObjectReader:
    """ObjectReader reads below one place of a file system of fsspec.

    Errors are those of the file system; TimeoutError where it takes longer than anything should.
    """

    def __init__(self, files: Any, root: str) -> None:
        self._files, self._root = files, root
        self._is_s3 = "s3" in files.protocol
        _, slash, prefix = root.partition("/")
        self._prefix = f"{prefix}{slash}" if prefix else ""

    def read(self, name: str, begin: int, end: int) -> bytes:
        """Return the bytes of an object from `begin` to `end`, or to its own end if that comes before.

        Raises:
            FileNotFoundError: there is no such object.
        """
        path = f"{self._root}/{name}"
        try:
            data: bytes = self._within(SECONDS, "cat_file", path, start=begin, end=end)
        except Exception as error:
            if code_of(error) == "InvalidRange":  # it has no byte there
                return b""
            raise
        return data

    def copy(self, name: str, descriptor: int, position: int, length: int) -> bool:
        """Write the first bytes of an object into a file. Return whether it has so many.

        Raises:
            FileNotFoundError: there is no such object.
        """

        def part(begin: int) -> bool:
            data = self.read(name, begin, min(begin + _PART, length))
            os.pwrite(descriptor, data, position + begin)
            return len(data) == min(_PART, length - begin)

        if length <= _PART:
            return part(0)
        with ThreadPoolExecutor(_THREADS) as threads:
            results = threads.map(part, range(0, length, _PART))
            try:
                return all(results)
            finally:
                threads.shutdown(cancel_futures=True)

    def entries(self) -> Iterator[ObjectEntry]:
        """List all objects below.

        Raises:
            TooManyError: there are too many.
        """
        if self._is_s3:
            for page in self._pages(Delimiter=""):
                for one in page.get("Contents", []):
                    yield ObjectEntry(one["Key"][len(self._prefix) :], one["LastModified"].timestamp())
        else:
            found = self._files.find(self._root)
            yield from (ObjectEntry(str(path)[len(self._root) + 1 :], None) for path in found)

    def folders(self) -> Iterator[str]:
        """List the folders directly below."""
        if self._is_s3:
            for page in self._pages(Delimiter="/"):
                yield from (one["Prefix"].rstrip("/").rpartition("/")[2] for one in page.get("CommonPrefixes", []))
        else:
            entries = self._files.ls(self._root, detail=True)
            yield from (entry["name"].rpartition("/")[2] for entry in entries if entry["type"] == "directory")

    def _pages(self, **options: str) -> Iterator[dict[str, Any]]:
        bucket, listed, deadline = self._root.partition("/")[0], 0, time.monotonic() + SECONDS
        for number in itertools.count():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(_LATE)
            where = {"Bucket": bucket, "Prefix": self._prefix, **options}
            page = self._within(left, "call_s3", "list_objects_v2", **where)
            listed += len(page.get("Contents", [])) + len(page.get("CommonPrefixes", []))
            if listed > MOST_LISTED or number > MOST_LISTED:
                raise TooManyError(f"there are more than {MOST_LISTED} objects, and those of a job are fewer")
            yield page
            token = page.get("NextContinuationToken")
            if not page.get("IsTruncated") or not token:
                return
            options["ContinuationToken"] = token

    def _within(self, seconds: float, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the file system, and stop it after some time if it can be stopped."""
        if not getattr(self._files, "async_impl", False):
            return getattr(self._files, method)(*arguments, **options)
        from fsspec.asyn import FSTimeoutError, sync  # noqa: PLC0415 (see `remote.py`)

        try:
            return sync(self._files.loop, getattr(self._files, f"_{method}"), *arguments, timeout=seconds, **options)
        except FSTimeoutError:
            raise TimeoutError(_LATE) from None


def code_of(error: BaseException) -> str:
    """Return the store's own error code, such as SlowDown; "" where it gave none."""
    response = getattr(error.__cause__, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
