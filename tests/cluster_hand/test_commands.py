"""`trainmaster render` and the settings of `trainmaster operator`."""

from pathlib import Path

import pytest
import yaml
from trainmaster.cli.main import main
from trainmaster.cli.operator import pod_settings
from trainmaster.cluster.hand import Address

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
