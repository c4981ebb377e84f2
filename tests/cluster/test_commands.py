"""`trainmaster render` and the settings of `trainmaster operator`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from trainmaster.cli.main import main
from trainmaster.cli.operator import pod_settings
from trainmaster.cluster.controller import Address

from tests.ports import free_port

from .apiserver import ApiServer

JOB = """
apiVersion: trainmaster.dev/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  strategy: {type: AllReduce}
  training: {task: "trainmaster_trainer.tasks.digits:Digits", steps: 10, globalBatchSize: 8}
  workers: {replicas: 2, gpus: 1}
"""


def test_render_prints_the_service_and_every_pod(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    assert main(["render", str(tmp_path / "job.yaml")]) == 0
    service, *pods = yaml.safe_load_all(capsys.readouterr().out)
    assert (service["kind"], service["metadata"]["name"]) == ("Service", "digits")
    assert [pod["metadata"]["name"] for pod in pods] == ["digits-worker-0-0", "digits-worker-1-0"]
    assert pods[0]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}


def test_render_shows_the_names_of_a_job_whose_own_is_generated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("{name: digits}", "{generateName: digits-}"))
    assert main(["render", str(tmp_path / "job.yaml")]) == 0
    names = [made["metadata"]["name"] for made in yaml.safe_load_all(capsys.readouterr().out)]
    assert names == ["digits", "digits-worker-0-0", "digits-worker-1-0"]


def test_render_shows_a_typing_error_in_a_template_as_it_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = "template: {spec: {containers: [{name: trainer, env: [{key: A, value: b}]}]}}"
    (tmp_path / "job.yaml").write_text(JOB.replace("gpus: 1", template))
    assert main(["render", str(tmp_path / "job.yaml")]) == 0
    _, pod, _ = yaml.safe_load_all(capsys.readouterr().out)
    assert {"key": "A", "value": "b"} in pod["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("content", ["kind: Nothing", "a: [", None])
def test_render_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None) -> None:
    if content is not None:
        (tmp_path / "job.yaml").write_text(content)
    assert main(["render", str(tmp_path / "job.yaml")]) == 2
    assert "job.yaml" in capsys.readouterr().err


URLS: list[tuple[dict[str, str], str]] = [
    (
        {"TRAINMASTER_URL": "https://operator.example:1", "TRAINMASTER_SERVICE_HOST": "10.0.0.1"},
        "https://operator.example:1",
    ),
    ({"TRAINMASTER_SERVICE_HOST": "10.96.0.7", "TRAINMASTER_SERVICE_PORT": "8080"}, "http://10.96.0.7:8080"),
    ({"TRAINMASTER_SERVICE_HOST": "fd00::7", "TRAINMASTER_SERVICE_PORT": "8080"}, "http://[fd00::7]:8080"),
    ({}, "http://127.0.0.1:8081"),
]


@pytest.mark.parametrize(("environment", "url"), URLS)
def test_agents_are_told_where_to_call(environment: dict[str, str], url: str) -> None:
    assert pod_settings(environment, Address("127.0.0.1", 8081)).operator_url == url


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:8080", Address("0.0.0.0", 8080)),  # noqa: S104
        (":8080", Address("0.0.0.0", 8080)),  # noqa: S104
        ("[::1]:80", Address("::1", 80)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["8080", "host:", "host:port", ""])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Address.parse(text)


def _operator(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainmaster", "operator", "--listen=127.0.0.1:0", "--probes=127.0.0.1:0"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=200, check=False)


def test_without_a_cluster_it_says_so_and_ends(tmp_path: Path) -> None:
    ended = _operator(HOME=str(tmp_path))
    assert ended.returncode == 1
    assert "KUBECONFIG" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_level_of_the_log_that_is_none_is_refused_with_those_that_there_are() -> None:
    ended = _operator(TRAINMASTER_LOG_LEVEL="verbose")
    assert ended.returncode == 2
    assert "TRAINMASTER_LOG_LEVEL=verbose is no level; it is one of CRITICAL, " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_with_a_kubeconfig_that_is_not_there_it_says_so_and_ends(tmp_path: Path) -> None:
    ended = _operator(KUBECONFIG=str(tmp_path / "nowhere"))
    assert ended.returncode == 1
    assert "nowhere" in ended.stderr


@pytest.mark.parametrize("taken", ["listen", "probes", "readiness", "metrics"])
def test_a_port_that_is_taken_ends_it(server: ApiServer, tmp_path: Path, taken: str) -> None:
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    ports = {option: free_port() for option in ("listen", "probes", "readiness", "metrics")} | {taken: server.port}
    command = [sys.executable, "-m", "trainmaster", "operator"]
    command += [f"--{option}=127.0.0.1:{port}" for option, port in ports.items()]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 1
    (told,) = [line for line in ended.stderr.splitlines() if "CRITICAL" in line]
    assert f"--{taken}=127.0.0.1:{server.port}: " in told
    assert "address already in use" in told
    assert "Traceback" not in ended.stderr
