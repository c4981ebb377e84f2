"""What only cannot be read now is no bad checkpoint: nothing older is gone on from, and no step is lost."""

import contextlib
import errno
import http.server
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.checkpoint import layout
from trainmaster_trainer.checkpoint.lineage import Lineage
from trainmaster_trainer.checkpoint.load import newest, newest_step, read
from trainmaster_trainer.checkpoint.manifest_check import read_manifest
from trainmaster_trainer.checkpoint.reading import CorruptCheckpointError
from trainmaster_trainer.checkpoint.remote import Remote, StorageError
from trainmaster_trainer.checkpoint.save import Saver
from trainmaster_trainer.checkpoint.shard import read_shard
from trainmaster_trainer.checkpoint.state import State
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.task import load_task
from typing_extensions import override

from tests.trainer.checkpoint.test_checkpoint_faults import SHAPES
from tests.trainer.finding import find_remote
from tests.trainer.ranks import HERE, STATELESS, alone
from tests.trainer.s3 import BUCKET, KEYS, Proxy, server

NEWEST = "step-00000006"


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """The process may open so many files more, and no further one."""
    taken: list[int] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 (names are what is asked for)
    while not taken or taken[-1] < highest:
        taken.append(os.dup(0))  # the holes below
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


class Storm:
    """Calls that concern the newest checkpoint's files fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, suffix: str, number: int) -> None:
        self._suffix, self._number, self._open = suffix, number, os.open
        monkeypatch.setattr(os, "open", self._opened)

    def _opened(self, path: Any, *arguments: Any, **keywords: Any) -> int:
        if NEWEST in str(path) and str(path).endswith(self._suffix):
            raise OSError(self._number, os.strerror(self._number), str(path))
        return self._open(path, *arguments, **keywords)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("number", [errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM, errno.EACCES])
def test_a_newest_one_that_cannot_be_read_now_is_not_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, number: int
) -> None:
    with monkeypatch.context() as patch:
        Storm(patch, suffix, number)
        with pytest.raises(OSError, match=f"{os.strerror(number)}.*{NEWEST}.*{suffix}") as caught:
            newest(folder, SHAPES)
        assert caught.value.errno == number
        if suffix == ".json":
            with pytest.raises(OSError, match=NEWEST):
                newest_step(folder)
    loaded = newest(folder, SHAPES)
    assert loaded is not None
    assert loaded.manifest.step == 6


def test_what_the_disk_has_lost_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Storm(monkeypatch, ".safetensors", errno.EIO)
    loaded = newest(folder, SHAPES)
    assert loaded is not None
    assert loaded.manifest.step == 4


def test_no_descriptor_left_is_said_as_such(folder: Path) -> None:
    path = folder / NEWEST
    shard = read_manifest(path, 6).shards[0]
    with descriptors_left(0), pytest.raises(OSError, match="Too many open files") as caught:
        read_shard(path, shard)
    assert caught.value.errno == errno.EMFILE
    with descriptors_left(0), pytest.raises(OSError, match="Too many open files"):
        newest_step(folder)
    assert read(folder, 6).manifest.step == 6


def test_a_shard_that_shrinks_while_it_is_read_is_bad(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mapped page of it, whose loss would kill the process."""
    preadv = os.preadv

    def shrinking(descriptor: int, *arguments: Any) -> int:
        os.truncate(f"/proc/self/fd/{descriptor}", 100)
        return preadv(descriptor, *arguments)

    monkeypatch.setattr(os, "preadv", shrinking)
    with pytest.raises(CorruptCheckpointError, match="does not have the SHA-256"):
        read(folder, 6)


def test_a_folder_that_is_not_there_has_no_steps_and_one_that_cannot_be_listed_says_so(tmp_path: Path) -> None:
    assert layout.saved_steps(tmp_path / "nowhere") == []
    with descriptors_left(0), pytest.raises(OSError, match="Too many open files"):
        layout.saved_steps(tmp_path)


# --- In an object store ------------------------------------------------------------------------------------------


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def proxy(tmp_path: Path, keys: None) -> Iterator[Proxy]:
    """Before a running S3 server."""
    folder = tmp_path / "s3"
    folder.mkdir()
    with server(folder) as port, Proxy(port) as running:
        yield running


def in_store(tmp_path: Path, port: int) -> tuple[Settings, Remote]:
    url, endpoint = f"s3://{BUCKET}/job", f"http://127.0.0.1:{port}"
    plan = TrainingPlan("OneDevice", steps=100, global_batch_size=4, checkpoint_url=url, checkpoint_endpoint=endpoint)
    return Settings(plan, tmp_path / "here", job_uid="uid", attempt=1), Remote(url, endpoint)


def save_two(settings: Settings) -> None:
    saver = Saver(settings, alone())
    saver.prepare()
    for step in (10, 20):
        saver.save(step, State({"model/w": torch.full((8,), float(step))}, STATELESS), before_commit=lambda: None)
        saver.wait()


def found_step(settings: Settings, remote: Remote) -> int | None:
    loaded = find_remote(remote, settings, {"model/w": ("float32", (8,))}, Lineage())
    return loaded.manifest.step if loaded else None


def test_a_newest_one_that_cannot_be_fetched_is_not_passed_over(
    tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, remote = in_store(tmp_path, proxy.port)
    save_two(settings)
    fetch = Remote.fetch

    def fetched(remote: Remote, name: str, path: Path, length: int) -> None:
        proxy.cut_after = 0 if "step-00000020" in name else None
        fetch(remote, name, path, length)

    with monkeypatch.context() as patch:
        patch.setattr(Remote, "fetch", fetched)
        with pytest.raises(StorageError):
            found_step(settings, remote)
    proxy.cut_after = None
    assert found_step(settings, remote) == 20


@pytest.mark.parametrize("kept", ["", "manifest.json"])
def test_one_that_is_deleted_while_it_is_fetched_is_passed_over(
    tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """Before its manifest is fetched, and after that."""
    settings, remote = in_store(tmp_path, proxy.port)
    save_two(settings)
    fetch = Remote.fetch

    def pruned(remote: Remote, name: str, path: Path, length: int) -> None:
        if "step-00000020" in name and path.name != kept:
            other.remove("step-00000020.attempt-1-restart-0")
        fetch(remote, name, path, length)

    _, other = in_store(tmp_path, proxy.port)
    monkeypatch.setattr(Remote, "fetch", pruned)
    assert found_step(settings, remote) == 10


class Refusing(http.server.BaseHTTPRequestHandler):
    """An S3 server with one answer to everything."""

    protocol_version = "HTTP/1.1"
    status, code, text = 409, "OperationAborted", ""

    def do_PUT(self) -> None:
        """The answer."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = f"<Error><Code>{self.code}</Code><Message>{self.text}</Message></Error>".encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def refusing(status: int, code: str, text: str) -> Iterator[int]:
    """Serve one answer; the port."""
    handler = type("Refusal", (Refusing,), {"status": status, "code": code, "text": text})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service.server_address[1]
        service.shutdown()


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (409, "OperationAborted", "A conflicting operation is under way."),
        (400, "RequestTimeout", ""),
        (400, "ExpiredToken", "The provided token has expired."),
        (403, "RequestTimeTooSkewed", "The difference between the times is too large."),
    ],
)
def test_what_a_store_refuses_for_a_while_is_a_storage_error(
    tmp_path: Path, keys: None, status: int, code: str, text: str
) -> None:
    with refusing(status, code, text) as port:
        _, remote = in_store(tmp_path, port)
        with pytest.raises(StorageError, match=f"s3://{BUCKET}/job: .*{text}"):
            remote.put("attempt.json", b"{}")


def test_what_it_refuses_for_good_is_a_configuration_error(tmp_path: Path, keys: None) -> None:
    with refusing(403, "AccessDenied", "Access Denied.") as port:
        _, remote = in_store(tmp_path, port)
        with pytest.raises(ConfigurationError, match="Correct the Secret's credentials"):
            remote.put("attempt.json", b"{}")


# --- In a task ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["UnicodeDecodeError", "JSONDecodeError", "LocalEntryNotFoundError"])
def test_what_a_task_cannot_read_is_no_mistake_in_its_arguments(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.syspath_prepend(HERE)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (each is one, by its type)
        load_task("small_tasks:Reading", {"kind": kind})
    assert type(caught.value).__name__ == kind
