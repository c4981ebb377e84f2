"""The programs that the tests call, and Helm's words as Python values."""

import os
import pathlib
import subprocess
from collections.abc import Sequence
from typing import Any

import yaml

from tools.onebox import binaries

ROOT = pathlib.Path(__file__).parents[2]
CHART = ROOT / "charts" / "trainmaster"
NAMESPACE = "trainmaster-system"

Object = dict[str, Any]


def binary(name: str) -> pathlib.Path:
    """A program of the one-machine cluster, in the cache (`make test` has built it before)."""
    return binaries.path(name)


def helm(*arguments: str, kubeconfig: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm, with nothing of the person's own settings. Never raises."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
    home = {f"HELM_{part}_HOME": "/nonexistent" for part in ("CONFIG", "DATA")}
    environment = {**own, **home, "KUBECONFIG": str(kubeconfig or "/nonexistent")}
    command = [str(binary("helm")), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=250)


def settings(values: Sequence[str]) -> list[str]:
    """Helm's arguments for values in the form `a.b=c`; JSON on the right is understood."""
    return [part for value in values for part in ("--set-json" if value[-1] in "]}" else "--set", value)]


def render(*values: str, release: str = "trainmaster", namespace: str = NAMESPACE) -> list[Object]:
    """What `helm template` gives for these values."""
    done = helm("template", release, str(CHART), "--namespace", namespace, *settings(values))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    """The rendered objects of one kind."""
    return [one for one in objects if one["kind"] == kind]


def the(objects: Sequence[Object], kind: str) -> Object:
    """The one rendered object of a kind."""
    (found,) = of_kind(objects, kind)
    return found
