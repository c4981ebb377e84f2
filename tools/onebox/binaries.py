"""Builds Kubernetes, etcd and helm from the Go module proxy, once per version, into the cache folder.

`cluster.py` asks for them before anything else. Each program set has a module of its own under `go/`, so that
their requirements don't fight; go.sum pins every byte of the source.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tools.onebox.paths import CACHE, SOURCES
from tools.onebox.shell import OneboxError, lock, run, step


@dataclass(frozen=True)
class Programs:
    """A set of programs that one Go module builds, and the packages they come from."""

    name: str
    module: str
    packages: tuple[str, ...]
    tags: str = ""

    @property
    def version(self) -> str:
        """Read the version from go.mod, the one place that states it."""
        text = (SOURCES / self.name / "go.mod").read_text()
        found = re.search(rf"^\s*{re.escape(self.module)} (v\S+)", text, re.MULTILINE)
        if found is None:
            raise OneboxError(f"{SOURCES / self.name / 'go.mod'} does not require {self.module}")
        return found[1]

    @property
    def folder(self) -> Path:
        """Name the cache folder of this version."""
        return CACHE / f"{self.name}-{self.version}"

    def missing(self) -> list[str]:
        """List the packages whose program is not there yet."""
        return [package for package in self.packages if not self.program(package).exists()]

    def program(self, package: str) -> Path:
        """Name the program that a package builds; the server folder of etcd builds `etcd`."""
        name = "etcd" if "/etcd/" in package else package.rsplit("/", 1)[-1]
        return self.folder / name


KUBERNETES = Programs(
    "kubernetes",
    "k8s.io/kubernetes",
    tuple(
        f"k8s.io/kubernetes/cmd/{program}"
        for program in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-proxy",
            "kubelet",
            "kubectl",
        )
    ),
)
ETCD = Programs("etcd", "go.etcd.io/etcd/server/v3", ("go.etcd.io/etcd/server/v3",))
HELM = Programs("helm", "helm.sh/helm/v4", ("helm.sh/helm/v4/cmd/helm",))
CLUSTER = (KUBERNETES, ETCD, HELM)
# For the node that mounts images (`paths.NEWER_NODE`), as Debian's containerd is older: docs/decisions/0194.
CONTAINERD = Programs(
    "containerd",
    "github.com/containerd/containerd/v2",
    tuple(f"github.com/containerd/containerd/v2/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2")),
    tags="no_btrfs,no_devmapper,no_zfs",
)
# For `make test-prometheus` alone, as it takes as long as Kubernetes.
PROMETHEUS = Programs(
    "prometheus",
    "github.com/prometheus/prometheus",
    ("github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool"),
)


def ensure(*wanted: Programs) -> None:
    """Build what is not in the cache, of the cluster's programs unless others are wanted.

    It takes about ten minutes on a new machine, and nothing on a warm one.
    """
    wanted = wanted or CLUSTER
    if not any(programs.missing() for programs in wanted):
        return
    with lock(CACHE / "binaries.lock"):
        for programs in wanted:
            for package in programs.missing():
                _build(programs, package)


def path(name: str) -> Path:
    """Find a program by its name, for whoever starts it."""
    for programs in (*CLUSTER, CONTAINERD, PROMETHEUS):
        if (programs.folder / name).exists():
            return programs.folder / name
    raise OneboxError(f"{name} is not built: run `python -m tools.onebox up`")


def _build(programs: Programs, package: str) -> None:
    if shutil.which("go") is None:
        raise OneboxError("Go 1.26 or newer is needed to build Kubernetes: https://go.dev/doc/install")
    target = programs.program(package)
    unfinished = target.with_suffix(".unfinished")
    with step(f"Building {target.name} {programs.version} (minutes on a cold Go cache)"):
        target.parent.mkdir(parents=True, exist_ok=True)
        command = (
            "nice",
            "go",
            "build",
            "-tags",
            programs.tags,
            "-ldflags",
            _flags(programs),
            "-o",
            unfinished,
            package,
        )
        try:
            run(*command, folder=SOURCES / programs.name)
        except OneboxError as problem:
            raise OneboxError(
                f"{problem}\nIs the Go module proxy reachable (`go env GOPROXY`), and are there 8 GB free "
                f"in `go env GOCACHE`? Then run the same command again: what was built so far is kept."
            ) from None
        unfinished.rename(target)  # so that a build that was cut off never looks like a program


def _flags(programs: Programs) -> str:
    """Stamp the version in: without it the API server calls itself v0.0.0 and clients disbelieve it."""
    if programs is not KUBERNETES:
        return "-s -w"
    major, minor = programs.version.removeprefix("v").split(".")[:2]
    stamp = "k8s.io/component-base/version"
    return f"-s -w -X {stamp}.gitVersion={programs.version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
