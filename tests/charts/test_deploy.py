"""Kustomize and Argo CD: the base is what the chart makes, an API server takes it, and health follows our statuses."""

import pathlib
import subprocess
from typing import Any

import lupa.lua51 as lua
import pytest
import yaml

from charts import kustomize
from tests.builders import a_job
from tests.core.stage import Stage, a_stage

from .conftest import Plane
from .tools import ROOT, binary, of_kind, render

BASE = ROOT / "deploy" / "kustomize" / "base"
OVERLAY = """apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [base]
images:
  - {name: trainmaster/operator, newName: registry.example.com/operator, newTag: "1"}
patches:
  - target: {kind: Deployment, name: trainmaster}
    patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: trainmaster}
      spec:
        template:
          spec:
            containers:
              - name: operator
                env: [{name: TRAINMASTER_TRAINER_IMAGE, value: "registry.example.com/trainer:1"}]
"""


def kubectl(*words: str, kubeconfig: pathlib.Path | None = None) -> str:
    """What kubectl prints."""
    settings = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    done = subprocess.run([str(binary("kubectl")), *settings, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_base_is_what_the_chart_makes() -> None:
    assert kustomize.BASE.read_text() == kustomize.base(), "run `make generate`"
    assert kustomize.SETTINGS.read_text() == kustomize.settings(), "run `make generate`"
    built = [one for one in yaml.safe_load_all(kubectl("kustomize", str(BASE))) if one]
    named = {(one["kind"], one["metadata"]["name"]) for one in built}
    by_helm = {(one["kind"], one["metadata"]["name"]) for one in render() if "helm.sh/hook" not in str(one["metadata"])}
    assert named == by_helm | {("Namespace", "trainmaster-system")}
    (operator,), (from_helm,) = of_kind(built, "Deployment"), of_kind(render(), "Deployment")
    assert operator["spec"]["template"]["spec"] == from_helm["spec"]["template"]["spec"]


def test_an_api_server_takes_it_twice_and_an_overlay(plane: Plane, tmp_path: pathlib.Path) -> None:
    apply = ("apply", "--server-side", "-k")
    kubectl(*apply, str(ROOT / "crds"), kubeconfig=plane.kubeconfig)
    said = kubectl(*apply, str(BASE), kubeconfig=plane.kubeconfig)
    assert "deployment.apps/trainmaster serverside-applied" in said
    kubectl(*apply, str(BASE), kubeconfig=plane.kubeconfig)
    place = "/apis/apps/v1/namespaces/trainmaster-system/deployments/trainmaster"
    before = plane.admin.done("GET", place)
    assert before["metadata"]["generation"] == 1
    (tmp_path / "kustomization.yaml").write_text(OVERLAY.replace("[base]", f"[{_relative(tmp_path)}]"))
    kubectl(*apply, str(tmp_path), kubeconfig=plane.kubeconfig)
    (container,) = plane.admin.done("GET", place)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/operator:1"
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["TRAINMASTER_TRAINER_IMAGE"] == "registry.example.com/trainer:1"
    assert variables["TRAINMASTER_LOG_LEVEL"] == "INFO"


def _relative(folder: pathlib.Path) -> str:
    """The way to the base: kustomize takes no absolute one."""
    return "../" * (len(folder.resolve().parts) - 1) + str(BASE).lstrip("/")


CASES = {
    "new": (Stage(a_job()), "Progressing", "Waiting for the operator."),
    "trains": (a_stage(2).train(step=5).wait(20), "Progressing", None),
    "succeeded": (a_stage(2).train().finish(), "Healthy", "All 2 workers finished."),
    "suspended": (Stage(a_job().where(suspend=True)).settle().wait(10), "Suspended", None),
    "failed": (Stage(a_job().at("Failed", message="KeyError: 'a'")), "Degraded", "KeyError: 'a'"),
}


@pytest.mark.parametrize("name", CASES)
def test_argo_cd_sees_a_jobs_health(name: str) -> None:
    stage, health, message = CASES[name]
    told = _health({"metadata": {"generation": 1}, "status": stage.status.to_dict() if stage.status.attempt else None})
    assert told["status"] == health
    assert told["message"] == (message or stage.status.message)


def test_a_spec_that_cannot_be_followed_is_degraded_until_it_is_changed() -> None:
    wrong = {"type": "InvalidSpec", "status": "True", "message": "spec.x: not known"}
    status = {
        "phase": "Running",
        "observedGeneration": 3,
        "conditions": [{"type": "Training", "status": "True"}, wrong],
    }
    assert _health({"metadata": {"generation": 3}, "status": status}) == {
        "status": "Degraded",
        "message": "spec.x: not known",
    }
    assert _health({"metadata": {"generation": 4}, "status": status})["status"] == "Progressing"
    resumed = {"phase": "Suspended", "observedGeneration": 3}
    assert _health({"metadata": {"generation": 4}, "status": resumed})["status"] == "Progressing"


def _health(job: dict[str, Any]) -> dict[str, str]:
    """What Argo CD's Lua says of it: version 5.1, as Argo CD has."""
    runtime = lua.LuaRuntime(unpack_returned_tuples=True)
    settings = yaml.safe_load(kustomize.SETTINGS.read_text())["data"]
    (script,) = settings.values()
    run = runtime.eval("function(text, job) obj = job; return loadstring(text)() end")
    plain = {key: value for key, value in job.items() if value is not None}
    return dict(run(script, runtime.table_from(plain, recursive=True)).items())
