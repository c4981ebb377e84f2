"""Installs our own chart into the cluster with helm; `cluster.py` calls it at the end of `up`."""

import os
from collections.abc import Callable

from tools.onebox import binaries
from tools.onebox.paths import AGENT_IMAGE, KUBECONFIG, OPERATOR_IMAGE, REPOSITORY, STATE, TRAINER_IMAGE
from tools.onebox.shell import run, say, step

CHART = REPOSITORY / "charts" / "trainmaster"
NAMESPACE = "trainmaster-system"


def install(kubectl: Callable[..., str]) -> None:
    """Install or upgrade the operator and wait until it is rolled out; without a chart there is nothing to do."""
    if not (CHART / "Chart.yaml").exists():
        say("        there is no charts/trainmaster yet: the cluster is up without the operator")
        return
    with step("Installing charts/trainmaster"):
        helm(
            "upgrade", "--install", "trainmaster", str(CHART),
            f"--namespace={NAMESPACE}", "--create-namespace",
            f"--set=image.operator={_short(OPERATOR_IMAGE)}",
            f"--set=image.trainer={_short(TRAINER_IMAGE)}",
            f"--set=image.agent={_short(AGENT_IMAGE)}",
            "--set=image.pullPolicy=IfNotPresent",
        )  # fmt: skip
        kubectl("rollout", "status", "deployment", f"--namespace={NAMESPACE}", "--timeout=120s")
    say("\n  export KUBECONFIG=$PWD/.cluster/kubeconfig")
    say("  kubectl apply -f examples/models.yaml -f examples/digits/job.yaml")
    say("  kubectl get trainingjobs --watch")


def restart(kubectl: Callable[..., str]) -> None:
    """Replace operator pods that still run an older image under the same name."""
    kubectl("delete", "pods", "--all", f"--namespace={NAMESPACE}", "--wait=false")


def helm(*words: str) -> str:
    """Run helm against the cluster, with caches that go with it."""
    homes = {f"HELM_{kind}_HOME": str(STATE / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    return run(binaries.path("helm"), *words, environment=os.environ | homes | {"KUBECONFIG": str(KUBECONFIG)})


def _short(image: str) -> str:
    return image.removeprefix("docker.io/")
