"""`trainmaster submit` and `code` on a real API server: nothing is left behind, wherever they are cut off."""

import base64
import hashlib
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from trainmaster.cli import bundling
from trainmaster.cli.main import main
from trainmaster.cluster.access import Access, AccessError
from trainmaster.cluster.submission import submit
from trainmaster.wire import bundle, names

from tests.git_server import GitServer, commit
from tests.trainer import s3

from .apiserver import ApiServer, Document
from .conftest import grant
from .cutting_proxy import CuttingProxy

JOB: Document = {
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "digits"},
    "spec": {"strategy": {"type": "AllReduce"}, "training": {"command": ["python", "train.py"]}},
}


@dataclass(frozen=True)
class Place:
    """A namespace without an operator, and a folder with a job and its code."""

    server: ApiServer
    namespace: str
    folder: Path

    @property
    def jobs(self) -> str:
        """The path of its jobs."""
        return f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.PLURAL}"

    @property
    def maps(self) -> list[Document]:
        """All ConfigMaps that a test has made."""
        found = self.server.call("GET", f"/api/v1/namespaces/{self.namespace}/configmaps")["items"]
        return [one for one in found if one["metadata"]["name"] != "kube-root-ca.crt"]

    def job(self, name: str = "digits") -> Document:
        """One of its jobs."""
        return self.server.call("GET", f"{self.jobs}/{name}")

    def remove(self) -> None:
        """Take away what is left, as the operator and the garbage collector do."""
        self.server.try_call("DELETE", f"{self.jobs}/digits")
        for one in self.maps:
            self.server.call("DELETE", f"/api/v1/namespaces/{self.namespace}/configmaps/{one['metadata']['name']}")

    def write(self, **spec: object) -> Path:
        """Write job.yaml, with these members of the spec."""
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump({**JOB, "spec": {**JOB["spec"], **spec}}))
        return path


@pytest.fixture
def place(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    namespace = f"submit-{uuid.uuid4().hex[:6]}"
    server.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "kubeconfig")))
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text("import pkg.model\n")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "model.py").write_text("")
    made = Place(server, namespace, folder)
    made.write()
    return made


@pytest.fixture
def run(place: Place, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command in the place's namespace: exit code and output."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--namespace", place.namespace])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


Run = Callable[..., tuple[int, str, str]]


def test_a_job_comes_with_its_code_and_the_code_comes_back(place: Place, run: Run) -> None:
    code, out, err = run("submit", str(place.folder / "job.yaml"))
    assert (code, out) == (0, f"trainingjob.trainmaster.dev/digits created in namespace {place.namespace}\n"), err
    assert "note:" not in err, "a script keeps its model as it likes"
    job, (one,) = place.job(), place.maps
    about = job["spec"]["training"]["code"]["bundle"]
    assert about["configMaps"] == [one["metadata"]["name"]]
    assert about["sha256"] == bundling.of_folder(place.folder).sha256
    assert job["spec"].get("suspend", False) is False
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert names.SUBMISSION not in job["metadata"].get("annotations", {})
    (owner,) = one["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (names.KIND, job["metadata"]["uid"])
    assert one["immutable"] is True

    code, _, err = run("code", "digits", "-o", str(place.folder / "back"))
    assert code == 0, err
    assert (place.folder / "back" / "pkg" / "model.py").exists()
    assert (place.folder / "back" / "train.py").read_text() == "import pkg.model\n"
    code, _, err = run("code", "digits", "-o", str(place.folder / "back"))
    assert code == 2
    assert "not an empty folder" in err


def test_a_large_folder_is_carried_in_parts_and_other_code_is_another_hash(place: Place, run: Run) -> None:
    (place.folder / "weights").write_bytes(random.Random(1).randbytes(5 << 20))  # noqa: S311
    assert run("submit", str(place.folder / "job.yaml"))[0] == 0
    about = place.job()["spec"]["training"]["code"]["bundle"]
    assert len(about["configMaps"]) == 6
    assert run("code", "digits", "-o", str(place.folder.parent / "back"))[0] == 0
    assert (place.folder.parent / "back" / "weights").read_bytes() == (place.folder / "weights").read_bytes()
    (place.folder / "train.py").write_text("import other\n")
    place.write(suspend=True, ttlSecondsAfterFinished=60)
    renamed = (place.folder / "job.yaml").read_text().replace("name: digits", "name: other")
    (place.folder / "job.yaml").write_text(renamed)
    assert run("submit", str(place.folder / "job.yaml"))[0] == 0
    spec = place.job("other")["spec"]
    assert spec["training"]["code"]["bundle"]["sha256"] != about["sha256"]
    assert (spec["suspend"], spec["ttlSecondsAfterFinished"]) == (True, 60), "as the author wants it"


def test_a_map_that_was_exchanged_is_not_taken_for_the_code(place: Place, run: Run) -> None:
    run("submit", str(place.folder / "job.yaml"))
    (one,) = place.maps
    path = f"/api/v1/namespaces/{place.namespace}/configmaps"
    place.server.call("DELETE", f"{path}/{one['metadata']['name']}")
    other = bundle.compress(bundle.pack([bundle.BundleEntry("train.py", b"evil()")]))
    metadata = {key: one["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    data = {bundle.PART_KEY: base64.b64encode(other).decode()}
    place.server.call("POST", path, {"metadata": metadata, "binaryData": data})
    code, _, err = run("code", "digits", "-o", str(place.folder / "back"))
    assert code == 2
    assert "it is not what was sent" in err


@pytest.fixture
def cut(place: Place, tmp_path: Path) -> Iterator[Callable[..., CuttingProxy]]:
    """Submit by way of a proxy that cuts at a call; return the proxy when the process has ended."""
    (place.folder / "weights").write_bytes(random.Random(1).randbytes(1 << 20))  # noqa: S311  two parts
    made: list[CuttingProxy] = []

    def cut(number: int, *more: str, done: bool, lose: bool = False) -> CuttingProxy:
        proxy = CuttingProxy(place.server, number, done=done, lose=lose)
        made.append(proxy)
        environment = {**os.environ, "KUBECONFIG": str(proxy.kubeconfig(tmp_path / f"proxy-{len(made)}"))}
        words = ["submit", str(place.folder / "job.yaml"), "--namespace", place.namespace, *more]
        process = subprocess.Popen([sys.executable, "-c", _WAIT, *words], env=environment, stdin=subprocess.PIPE)
        proxy.pid = process.pid
        assert process.stdin
        process.stdin.close()
        proxy.ended = process.wait(200)
        return proxy

    yield cut
    for proxy in made:
        proxy.close()


# It begins when its standard input ends: the proxy knows its pid by then.
_WAIT = "import sys; sys.stdin.read(); from trainmaster.cli.main import main; sys.exit(main(sys.argv[1:]))"


def owned_by_what_is_there(place: Place) -> bool:
    """Whether the garbage collector takes every ConfigMap as soon as its job goes: none is anybody else's."""
    uids = {job["metadata"]["uid"] for job in place.server.call("GET", place.jobs)["items"]}
    return all({owner["uid"] for owner in one["metadata"]["ownerReferences"]} <= uids for one in place.maps)


@pytest.mark.parametrize("done", [False, True])
def test_killed_at_any_call_nothing_is_left_that_does_not_go_by_itself(
    place: Place, cut: Callable[..., CuttingProxy], run: Run, done: bool
) -> None:
    calls = 4  # the job, two ConfigMaps, the release
    for number in range(1, calls + 1):
        proxy = cut(number, done=done)
        assert proxy.ended == -9
        left = place.server.call("GET", place.jobs)["items"]
        assert owned_by_what_is_there(place)
        if (number, done) == (calls, True):
            assert names.SUBMISSION not in left[0]["metadata"].get("annotations", {}), "it was submitted"
            continue
        for job in left:  # the operator takes it away in a while, see tests/core/rules/test_submissions.py
            assert job["spec"]["suspend"] is True
            assert job["spec"]["ttlSecondsAfterFinished"] == 0
            assert names.SUBMISSION in job["metadata"]["annotations"]
        assert len(left) == (0 if number == 1 and not done else 1)
        if number < calls:
            place.remove()
    if not done:
        code, _, err = run("submit", str(place.folder / "job.yaml"))
        assert code == 0, f"what was cut off is in nobody's way: {err}"
        assert place.job()["spec"].get("suspend", False) is False


@pytest.mark.parametrize("done", [False, True])
def test_an_answer_that_is_lost_is_no_second_job(place: Place, cut: Callable[..., CuttingProxy], done: bool) -> None:
    (place.folder / "weights").unlink()
    for number in range(1, 4):  # the job, a ConfigMap, the release
        proxy = cut(number, done=done, lose=True)
        jobs = place.server.call("GET", place.jobs)["items"]
        if done:
            assert proxy.ended == 0, proxy.calls
            assert names.SUBMISSION not in jobs[0]["metadata"].get("annotations", {})
        else:
            assert proxy.ended == 3, proxy.calls
            assert jobs == [], proxy.calls
        place.remove()


def test_a_job_of_that_name_is_not_touched(place: Place, run: Run) -> None:
    assert run("submit", str(place.folder / "job.yaml"))[0] == 0
    before = place.job()  # the operator goes on with it meanwhile: its status is not compared
    code, _, err = run("submit", str(place.folder / "job.yaml"))
    assert code == 3
    assert "there is a job digits in this namespace already" in err
    after = place.job()
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert len(place.maps) == 1


def test_who_may_not_make_config_maps_leaves_no_job(place: Place, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server, account = place.server, f"author-{uuid.uuid4().hex[:6]}"
    system = "/api/v1/namespaces/trainmaster-system/serviceaccounts"
    server.call("POST", system, {"metadata": {"name": account}})
    rights = [{"apiGroups": ["trainmaster.dev"], "resources": ["trainingjobs"], "verbs": ["create", "get", "delete"]}]
    grant(server, account, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}", "Role", rights)
    token = server.call("POST", f"{system}/{account}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(place.folder.parent / "author", token)))
    code, _, err = run("submit", str(place.folder / "job.yaml"))
    assert code == 3
    assert "cannot create resource" in err
    assert "configmaps" in err
    assert server.call("GET", place.jobs)["items"] == []


def kubeconfig(place: Place, **changes: object) -> str:
    content = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    content["users"][0]["user"] = changes.get("user", content["users"][0]["user"])
    content["clusters"][0]["cluster"].update({key: value for key, value in changes.items() if key == "server"})
    path = place.folder.parent / "changed"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_a_cluster_that_cannot_be_used_is_told_of_in_a_sentence(
    place: Place, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = str(place.folder / "job.yaml")

    def refusal(path: str, *words: str) -> str:
        monkeypatch.setenv("KUBECONFIG", path)
        code, _, err = run("submit", job, *words)
        assert code == 3
        assert "Traceback" not in err
        return err

    good = os.environ["KUBECONFIG"]
    assert "Log in again" in refusal(kubeconfig(place, user={"token": "expired"}))
    program = tmp_path / "login"
    program.write_text("#!/bin/sh\necho 'your session has expired\033[31m' >&2; exit 1\n")
    program.chmod(0o755)
    exec_plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "interactiveMode": "Never"}
    said = refusal(kubeconfig(place, user={"exec": exec_plugin}))
    assert "Log in again" in said
    assert "\033" not in said
    assert "cannot be reached" in refusal(kubeconfig(place, server="http://127.0.0.1:1"))
    assert "nowhere" in refusal(str(tmp_path / "nowhere"))
    assert "it has no context other; it has private" in refusal(good, "--context", "other")
    (tmp_path / "broken").write_text("a: [")
    assert "broken) cannot be used" in refusal(str(tmp_path / "broken"))
    monkeypatch.setenv("KUBECONFIG", good)
    assert main(["submit", job, "--namespace", "not-there"]) == 3


def test_a_namespace_that_is_not_there_is_named(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", str(place.folder / "job.yaml"), "--namespace", "not-there"]) == 3
    assert "there is no namespace not-there" in capsys.readouterr().err


def test_what_the_cluster_refuses_is_told_in_its_words(place: Place, run: Run) -> None:
    metadata = {"name": "digits", "ownerReferences": [{"uid": "x", "name": "", "kind": "", "apiVersion": ""}]}
    (place.folder / "job.yaml").write_text(yaml.safe_dump({**JOB, "metadata": metadata}))
    code, _, err = run("submit", str(place.folder / "job.yaml"))
    assert code == 3
    assert "ownerReferences" in err
    assert place.maps == []


def test_a_cluster_whose_crd_does_not_know_of_code_refuses_the_job(place: Place, run: Run) -> None:
    """It would run the job without its code otherwise. Another field that the CRD lacks stands for it."""
    metadata = {"name": "digits", "newer": "x"}
    with pytest.raises(AccessError, match=r'unknown field "metadata\.newer"'):
        submit(Access(None, place.namespace), {**JOB, "metadata": metadata}, None)
    assert place.server.call("GET", place.jobs)["items"] == []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A real object store, and the folder that it serves."""
    folder = tmp_path_factory.mktemp("s3")
    with s3.server(folder) as port:
        yield f"http://127.0.0.1:{port}", folder / s3.BUCKET


def test_code_goes_into_a_bucket_and_comes_back(
    place: Place, run: Run, store: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.folder / "weights").write_bytes(random.Random(1).randbytes(9 << 20))  # noqa: S311
    code, _, err = run("submit", str(place.folder / "job.yaml"))
    assert code == 2
    assert "9,437,184  weights" in err
    assert "--code-url s3://bucket/folder" in err
    for key, value in {**s3.KEYS, "AWS_ENDPOINT_URL": store[0]}.items():
        monkeypatch.setenv(key, value)
    words = ["submit", str(place.folder / "job.yaml"), "--code-url", f"s3://{s3.BUCKET}/code", "--code-secret", "keys"]
    code, _, err = run(*words)
    assert code == 0, err
    about = place.job()["spec"]["training"]["code"]["url"]
    (file,) = (store[1] / "code").iterdir()
    assert about == {
        "address": f"s3://{s3.BUCKET}/code/{about['sha256']}.tar.gz",
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "endpoint": store[0],
        "secretName": "keys",
        "dirty": False,
    }
    assert place.maps == []
    assert run(*words)[0] == 3, "there is a job of that name"
    assert file.exists(), "what was there before is not deleted"
    (place.folder / "train.py").write_text("import other\n")
    assert run(*words)[0] == 3
    assert [*file.parent.iterdir()] == [file], "what was put for a refused job is"
    assert run("code", "digits", "-o", str(place.folder.parent / "back"))[0] == 0
    assert (place.folder.parent / "back" / "weights").stat().st_size == 9 << 20
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    code, _, err = run(*words)
    assert (code, "cannot be reached" in err) == (3, True)


def test_killed_before_the_job_is_made_a_bucket_has_what_the_next_one_uses(
    place: Place, run: Run, cut: Callable[..., CuttingProxy], store: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in {**s3.KEYS, "AWS_ENDPOINT_URL": store[0]}.items():
        monkeypatch.setenv(key, value)
    to = ["--code-url", f"s3://{s3.BUCKET}/killed"]
    assert cut(1, *to, done=False).ended == -9
    assert (place.server.call("GET", place.jobs)["items"], place.maps) == ([], [])
    (file,) = (store[1] / "killed").iterdir()
    before = file.stat().st_mtime_ns
    assert cut(1, *to, done=True, lose=True).ended == 3, "without an answer it may be there, so nothing is deleted"
    assert file.stat().st_mtime_ns == before
    assert place.job()["spec"]["training"]["code"]["url"]["sha256"] in file.name
    assert run("submit", str(place.folder / "job.yaml"), *to)[0] == 3, "it is there"


def test_a_commit_comes_back_from_its_repository(place: Place, run: Run, tmp_path: Path) -> None:
    with GitServer(tmp_path).serving() as server:
        about = {"repository": f"{server.url}/job/.git", "commit": commit(place.folder)}
        place.write(training={"command": ["python", "train.py"], "code": {"git": about}})
        assert run("submit", str(place.folder / "job.yaml"))[0] == 0
        assert place.maps == [], "no folder is sent beside it"
        assert run("code", "digits", "-o", str(tmp_path / "back"))[0] == 0
    assert (tmp_path / "back" / "pkg" / "model.py").exists()
    assert run("code", "digits", "-o", str(tmp_path / "again"))[0] == 3


def test_an_image_with_code_is_named(place: Place, run: Run, tmp_path: Path) -> None:
    about = {"reference": f"registry/code@sha256:{'a' * 64}"}
    place.write(training={"task": "train:Mine", "steps": 1, "globalBatchSize": 1, "code": {"image": about}})
    code, _, err = run("submit", str(place.folder / "job.yaml"))
    assert code == 0, err
    assert "job.yaml: note: spec.checkpoint.storage: not set: on a cluster the model is" in err
    code, _, err = run("code", "digits", "-o", str(tmp_path / "back"))
    assert (code, f"crane export {about['reference']} code.tar" in err) == (2, True)
