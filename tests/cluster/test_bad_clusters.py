"""Whatever keeps a command from its job (no right, no namespace, no server), it ends with a sentence."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import yaml

from tests.ports import free_port

from .apiserver import ApiServer
from .commanding import Jobs, Run

COMMANDS = {
    "list": ("list",),
    "status": ("status", "digits"),
    "logs": ("logs", "digits"),
    "logs -f": ("logs", "digits", "-f"),
    "wait": ("wait", "digits"),
    "stop": ("stop", "digits", "--force"),
    "resume": ("resume", "digits"),
    "scale": ("scale", "digits", "2"),
    "delete": ("delete", "digits"),
    "code": ("code", "digits", "-o", "back"),
    "plot": ("plot", "digits"),
    "report": ("report", "digits", "-o", "report.html"),
    "export": ("export", "digits", "-o", "model.pt"),
}


@pytest.fixture
def job(jobs: Jobs) -> Jobs:
    jobs.create()
    return jobs


def somebody(server: ApiServer, namespace: str) -> str:
    """The token of an account without any right."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    server.call("POST", accounts, {"metadata": {"name": "somebody"}})
    return str(server.call("POST", f"{accounts}/somebody/token", {"spec": {}})["status"]["token"])


def kubeconfig(jobs: Jobs, token: str) -> Path:
    """A kubeconfig with this token, in the test's namespace."""
    path = jobs.server.kubeconfig(Path("other").resolve(), token)
    content = yaml.safe_load(path.read_text())
    content["contexts"][0]["context"]["namespace"] = jobs.namespace
    path.write_text(yaml.safe_dump(content))
    return path


def ends(run: Run, words: tuple[str, ...], *told: str) -> None:
    """The command ends with its own code and one sentence that says this."""
    code, out, err = run(*words)
    assert code in (2, 3), (words, out, err)
    assert "Traceback" not in out + err
    assert all(word in err for word in told), (words, err)
    assert err.count("\n") <= 2, err


def test_who_has_no_right(job: Jobs, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(job, somebody(job.server, job.namespace))))
    for words in COMMANDS.values():
        ends(run, words, "cannot", "trainingjobs", "trainmaster.dev", "somebody")
    assert job.job()["spec"].get("suspend", False) is False


def test_credentials_that_have_expired(job: Jobs, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(job, "expired-token")))
    for words in COMMANDS.values():
        ends(run, words, "does not accept your credentials", "Log in again")


def test_a_namespace_that_is_not_there(job: Jobs, run: Run) -> None:
    assert job.namespace
    for words in COMMANDS.values():
        ends(run, (*words, "-n", "nowhere"), "there is no namespace nowhere; name another with --namespace")


def test_a_server_that_does_not_answer(job: Jobs, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubeconfig(job, "any")
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("trainmaster.cluster.access._TRIES", 1)
    monkeypatch.setattr("trainmaster.cluster.following._PATIENCE_SECONDS", 0.0)
    for words in COMMANDS.values():
        ends(run, words, "cannot be reached")


def test_two_commands_at_once_both_take_effect_or_one_says_why(job: Jobs, run: Run) -> None:
    """Each changes its own field on the server, so none takes back what another has done."""
    codes: list[int] = []

    def command(*words: str) -> None:
        codes.append(run(*words)[0])

    pair = [threading.Thread(target=command, args=words) for words in (COMMANDS["stop"], COMMANDS["scale"])]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join()
    spec = job.job()["spec"]
    assert (codes, spec["suspend"], spec["workers"]["replicas"]) == ([0, 0], True, 2)
    codes.clear()
    pair = [threading.Thread(target=command, args=COMMANDS["delete"]) for _ in range(2)]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join()
    assert sorted(codes) in ([0, 0], [0, 3]), "the second finds it deleted"
