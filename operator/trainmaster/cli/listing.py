"""Run `trainmaster list` and `trainmaster status NAME`: which jobs there are, and how one of them is."""

import argparse
import os
from pathlib import Path
from typing import Any

from trainmaster.api.status import TrainingJobStatus
from trainmaster.cli.cluster import EXIT_CLUSTER, EXIT_GOOD
from trainmaster.cli.tables import now, shortened, shown
from trainmaster.cli.targets import answer, find_local, local_runs, phase_of
from trainmaster.cli.terminal import complain, tell
from trainmaster.cluster.access import Access, AccessError
from trainmaster.cluster.following import pods_of
from trainmaster.core.report import conditions
from trainmaster.core.report.story import story
from trainmaster.wire import names

Document = dict[str, Any]


def list_jobs(options: argparse.Namespace) -> int:
    """Run `list`, and return its exit code."""
    of_cluster = bool(options.namespace or options.context or options.all_namespaces)
    items = [] if of_cluster else [run.document() for run in local_runs()]
    trouble = ""
    if of_cluster or not options.local:
        try:
            items += _of_cluster(options)
        except AccessError as error:
            trouble = str(error) if of_cluster or _has_kubeconfig() else ""
    if items or options.output in ("json", "yaml"):
        tell(shown(items, options.output, now(), everywhere=options.all_namespaces))
    elif not trouble:
        complain("no runs in .trainmaster/ here, and no jobs in the namespace")
    if trouble:
        complain(f"trainmaster list: {trouble}")
    return EXIT_CLUSTER if trouble else EXIT_GOOD


def _has_kubeconfig() -> bool:
    """Return whether there is a cluster to ask: most laptops have none, and that is no trouble."""
    return "KUBECONFIG" in os.environ or (Path.home() / ".kube" / "config").exists()


def _of_cluster(options: argparse.Namespace) -> list[Document]:
    access = Access(options.context, options.namespace)
    path = f"/apis/{names.API_VERSION}/{names.PLURAL}" if options.all_namespaces else access.jobs
    kept = _without_fields if options.output in ("json", "yaml") else shortened
    kind = {"apiVersion": names.API_VERSION, "kind": names.KIND}
    found = [kept({**item, **kind}) for item in access.listed(path)]
    if not found and not options.all_namespaces:
        access.check_namespace()
    return sorted(found, key=lambda item: (item["metadata"]["namespace"], item["metadata"]["creationTimestamp"]))


def _without_fields(item: Document) -> Document:
    """Return a job without metadata.managedFields, which kubectl does not show either."""
    return {**item, "metadata": {key: value for key, value in item["metadata"].items() if key != "managedFields"}}


def status(options: argparse.Namespace) -> int:
    """Run `status`, and return its exit code."""
    local = find_local(options.name, options)
    if local:
        item, pods = local.document(), []
    else:
        try:
            access = Access(options.context, options.namespace)
            item = access.job(options.name)
            pods = [] if options.output else [name for of in pods_of(access, options.name).values() for name in of]
        except AccessError as error:
            complain(f"trainmaster status: {answer(error, options)}")
            return EXIT_CLUSTER
    lines = shown([item], options.output, now(), single=True)
    tell(lines if options.output else [*lines, "", *_details(item, pods)])
    return EXIT_GOOD


def _details(item: Document, pods: list[str]) -> list[str]:
    """Return what is to be said of one job: its story, what is in its way, its code and its pods."""
    status = TrainingJobStatus.read(item.get("status"))
    lines = list(story(status, item["metadata"]["name"], phase_of(item)))
    lines += [f"{one.type}: {one.message or one.reason}" for one in conditions.in_the_way(status)]
    if status.code:
        commit = (
            f"commit {status.code.commit}{' with changes' if status.code.dirty else ''}" if status.code.commit else ""
        )
        parts = [part for part in (status.code.source, status.code.sha256 and status.code.sha256[:12], commit) if part]
        lines.append(f"Code: {', '.join(parts)}")
    return lines + ([f"Pods: {', '.join(pods)}"] if pods else [])
