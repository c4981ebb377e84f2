"""Code from a repository, an object store, a web server and a volume: the same in a replica before anything starts."""

import gzip
import hashlib
import io
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainmaster.wire import archives, aws, bundle, codec, names
from trainmaster.wire.bundle import BundleEntry, BundleError
from trainmaster.wire.sources import ENV_SECRET, GitSource, Secrets, SourceUnavailableError, UrlSource
from trainmaster.wire.training import TrainingPlan
from trainmaster_trainer.agent import bundled

from tests.git_server import GitServer, commit
from tests.trainer import s3

FILES = [BundleEntry("train.py", b"print('trains')\n"), BundleEntry("pkg/run.sh", b"#!/bin/sh\n", executable=True)]
PACKED = bundle.compress(bundle.pack(FILES))
KEYS = Secrets(s3.KEYS)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real object store; where it is."""
    with s3.server(tmp_path_factory.mktemp("s3")) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[GitServer, GitSource]]:
    """A git server that asks for a password, and a commit there."""
    folder = tmp_path / "served" / "code"
    bundle.write(FILES, folder)
    with GitServer(tmp_path / "served", password="t0ken").serving() as server:
        yield server, GitSource(f"{server.url}/code/.git", commit(folder))


def bring(tmp_path: Path, plan: TrainingPlan, **more: str) -> tuple[dict[str, str], int]:
    """What an agent does first, and the variables that its ranks would have; with the code that it would end with."""
    environment = {
        **os.environ,
        names.ENV_CODE: "",
        names.ENV_SCRATCH: str(tmp_path / "scratch"),
        names.ENV_TRAINING: codec.encode(plan).decode(),
        **more,
    }
    try:
        bundled.bring(environment)
    except SystemExit as end:
        return environment, int(str(end.code))
    return environment, 0


def begins(environment: dict[str, str]) -> Path:
    return Path(codec.decode(TrainingPlan, environment[names.ENV_TRAINING]).working_directory or "")


def test_an_agent_has_a_commit_before_anything_starts(
    tmp_path: Path, repository: tuple[GitServer, GitSource], capfd: pytest.CaptureFixture[str]
) -> None:
    server, source = repository
    plan = TrainingPlan("AllReduce", command=("python", "train.py"), code_git=source, working_directory="pkg")
    secrets = {f"{ENV_SECRET}username": "me", f"{ENV_SECRET}password": "t0ken"}
    server.failing = 1  # it is tried again
    environment, code = bring(tmp_path, plan, **secrets)
    assert (code, begins(environment)) == (0, tmp_path / "scratch" / "code" / "pkg")
    assert (tmp_path / "scratch" / "code" / "train.py").read_bytes() == FILES[0].data
    assert os.access(tmp_path / "scratch" / "code" / "pkg" / "run.sh", os.X_OK)
    assert not [name for name in environment if name.startswith(ENV_SECRET)], "no rank sees the password"
    told = capfd.readouterr().err
    assert "answers 503 Service Unavailable; it is tried again in 1 s" in told
    assert bring(tmp_path, plan)[1] == names.EXIT_BAD_CONFIGURATION
    told += capfd.readouterr().err
    assert "spec.training.code: " in told
    assert "answers 401" in told
    assert "t0ken" not in told


def test_an_agent_says_what_is_away_and_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plan = TrainingPlan("AllReduce", command=("x",), code_git=GitSource("http://127.0.0.1:1/a.git", "f" * 40))
    assert bring(tmp_path, plan)[1] == names.EXIT_UNAVAILABLE
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith(
        "trainmaster agent: spec.training.code: http://127.0.0.1:1/a.git/info/refs cannot be reached"
    )


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_that_is_ended_meanwhile_leaves_nothing_behind(tmp_path: Path, sent: signal.Signals) -> None:
    """It waits for a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = GitSource(f"http://127.0.0.1:{silent.getsockname()[1]}/a.git", "f" * 40)
        variables = {
            **os.environ,
            names.ENV_CODE: "",
            names.ENV_SCRATCH: str(tmp_path),
            names.ENV_TRAINING: codec.encode(TrainingPlan("AllReduce", command=("x",), code_git=source)).decode(),
        }
        program = [sys.executable, "-m", "trainmaster_trainer.agent"]
        agent = subprocess.Popen(program, env=variables, stderr=subprocess.PIPE)
        connection, _ = silent.accept()  # of the process that brings it
        agent.send_signal(sent)
        assert agent.wait(200) == (names.EXIT_TERMINATED if sent == signal.SIGTERM else -sent)
        connection.settimeout(200)
        while connection.recv(4096):  # until that process has ended, too
            pass
        connection.close()
        assert agent.stderr
        agent.stderr.close()


def test_an_archive_comes_out_of_a_real_object_store(store: str) -> None:
    address = f"s3://{s3.BUCKET}/code/with space+plus/{sha(PACKED)}.tar.gz"
    aws.request("PUT", address, store, KEYS, body=PACKED)
    assert archives.fetch(UrlSource(address, sha(PACKED), store), KEYS) == sorted(FILES, key=lambda one: one.path)
    with pytest.raises(BundleError, match=r"the SHA-256 of s3://.* is .*, and not 0000"):
        archives.fetch(UrlSource(address, "0" * 64, store), KEYS)
    with pytest.raises(BundleError, match=r"answers 404"):
        archives.fetch(UrlSource(address + "x", sha(PACKED), store), KEYS)
    with pytest.raises(BundleError, match=r"there are no keys for s3://"):
        archives.fetch(UrlSource(address, sha(PACKED), store), Secrets({}))
    with pytest.raises(BundleError, match=r"answers 403.*secretName") as refused:
        archives.fetch(UrlSource(address, sha(PACKED), store), Secrets({**s3.KEYS, "AWS_SECRET_ACCESS_KEY": "wr0ng"}))
    assert "wr0ng" not in str(refused.value)
    with pytest.raises(SourceUnavailableError, match=r"cannot be reached"):
        archives.fetch(UrlSource(address, sha(PACKED), "http://127.0.0.1:1"), KEYS)


def test_a_store_that_is_cut_off_is_no_half_archive(store: str) -> None:
    data = random.Random(1).randbytes(1 << 20)  # noqa: S311
    address = f"s3://{s3.BUCKET}/cut.tar"
    aws.request("PUT", address, store, KEYS, body=data)
    with s3.Proxy(int(store.rpartition(":")[2])) as proxy:
        proxy.cut_after = 0
        with pytest.raises(SourceUnavailableError):
            archives.fetch(UrlSource(address, sha(data), f"http://127.0.0.1:{proxy.port}"), KEYS)


def test_an_agent_takes_the_stores_keys_from_the_secret(tmp_path: Path, store: str) -> None:
    address = f"s3://{s3.BUCKET}/code.tar.gz"
    aws.request("PUT", address, store, KEYS, body=PACKED)
    plan = TrainingPlan("AllReduce", task="train:A", code_url=UrlSource(address, sha(PACKED), store))
    secrets = {ENV_SECRET + key: value for key, value in s3.KEYS.items() if "ACCESS" in key}
    environment, code = bring(tmp_path, plan, **secrets)
    assert (code, begins(environment)) == (0, tmp_path / "scratch" / "code")
    assert (tmp_path / "scratch" / "code" / "train.py").exists()


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def test_an_archive_of_tar_is_taken_from_a_volume(tmp_path: Path) -> None:
    bundle.write(FILES, tmp_path / "code")
    (tmp_path / "code" / "train.py").chmod(0o664)
    file = tmp_path / "code.tar.gz"
    subprocess.run(["tar", "czf", file, "-C", tmp_path / "code", "."], check=True)
    source = UrlSource(f"file://{file}", sha(file.read_bytes()))
    assert sorted(archives.fetch(source, Secrets({})), key=lambda one: one.path) == sorted(
        FILES, key=lambda one: one.path
    )
    with pytest.raises(BundleError, match=r"No such file"):
        archives.fetch(UrlSource(f"file://{file}x", sha(b"")), Secrets({}))


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (tar((member("../x"), b"")), "no path inside"),
        (tar((member("/etc/x"), b"")), "no path inside"),
        (tar((member("a", tarfile.SYMTYPE, "/etc"), b"")), "leads out"),
        (tar((member("a", tarfile.SYMTYPE, "b"), b""), (member("a/x"), b"")), "lies below a, which is no folder"),
        (tar((member("a"), b""), (member("b", tarfile.LNKTYPE, "a"), b"")), "neither a file nor a symbolic link"),
        (tar((member("a", tarfile.CHRTYPE), b"")), "neither a file nor a symbolic link"),
        (tar((member("a", tarfile.FIFOTYPE), b"")), "neither a file nor a symbolic link"),
        (tar((member("a", tarfile.DIRTYPE), b"")), "has no files"),
        (gzip.compress(bytes(bundle.MOST_UNPACKED + 1), 1), "unpacked it has more than 128 MiB"),
        (gzip.compress(tar((member("a"), b"a")))[:-9], "damaged"),
        (b"<html>log in</html>", "no tar archive"),
        (b"", "no tar archive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # the bytes have the time in them
)
def test_an_archive_that_holds_what_no_code_may_is_refused(packed: bytes, why: str) -> None:
    with pytest.raises(BundleError, match=why):
        archives.entries(packed)


def test_setuid_and_owners_mean_nothing() -> None:
    (entry,) = archives.entries(tar((member("./a", mode=0o6755), b"x")))
    assert entry == BundleEntry("a", b"x", executable=True)
