"""Make the environment of a local agent: what both platforms set alike, and what only this machine knows."""

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.api.job import TrainingJob
from trainmaster.api.pods import EnvVar
from trainmaster.core import replica_environment
from trainmaster.core.states import actions
from trainmaster.local.devices import device_environment, devices_here
from trainmaster.local.fault_option import Armed
from trainmaster.local.processes import found_by_python_path, inherited_environment
from trainmaster.wire import codec, names

LOOPBACK = "127.0.0.1"
# As Kubernetes reads a value: `$$` stands for one `$`, and `$(NAME)` for a variable that stands before it in the list.
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
# Ranks must be able to save in this time. A user who does not want to wait presses Ctrl-C again.
GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class Site:
    """Hold what all agents of a run have in common. `folder` is the YAML's: relative paths start there."""

    folder: Path
    checkpoints: Path
    scratch: Path
    warm_socket: Path
    token_file: Path
    operator_url: str = ""
    armed: Armed = field(default_factory=Armed)


def plain_variables(env: Iterable[EnvVar], ours: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables with a value, in which `$(NAME)` and `$$` mean what they mean in a pod.

    Those with `valueFrom` keep what the shell has: here are no Secrets or ConfigMaps. `ours` stand before all of them.
    """
    found: dict[str, str] = {}
    before = dict(ours or {})
    for variable in env:
        if variable.value_from is None:
            value = _REFERENCE.sub(lambda it: "$" if it[1] is None else before.get(it[1], it[0]), variable.value or "")
            before[variable.name] = found[variable.name] = value
        elif variable.name in os.environ:
            before[variable.name] = os.environ[variable.name]
    return found


def _users_variables(named: dict[str, str], folders: list[Path], script: bool) -> dict[str, str]:
    """Return the variables of the spec, and a PYTHONPATH by which a task is found.

    A script has the PYTHONPATH that it would have under plain Python: the spec's, else the shell's. A task is also
    looked for in these folders: the YAML's, and where the command was given.
    """
    if script and not ("PYTHONPATH" in named and found_by_python_path()):
        return named
    inherited = inherited_environment(*([] if script else folders))
    paths = (named.get("PYTHONPATH", ""), inherited["PYTHONPATH"])
    return {**named, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def agent_variables(
    job: TrainingJob, wish: actions.CreateReplica, uid: str, scratch: Path, site: Site
) -> dict[str, str]:
    """Return all variables of one agent. The user's own cannot replace ours."""
    spec = job.spec.roles[wish.role]
    # The job's uid is not in the URL, so that the next run resumes.
    storage = job.spec.checkpoint.storage
    url = f"{storage.object_store.url.rstrip('/')}/{job.name}" if storage and storage.object_store else None
    plan = dataclasses.replace(
        replica_environment.training_plan(job), checkpoint_shared=True, checkpoint_url=url, code=None, code_image=False
    )
    fetched = bool(plan.code_url or plan.code_git)
    if not fetched:  # the folder has it
        folder = site.folder / plan.working_directory if plan.working_directory else site.folder
        plan = dataclasses.replace(plan, working_directory=str(folder))
    if plan.packages and plan.packages.wheels == replica_environment.WHEELS_FOLDER:  # a claim, and here are none
        plan = dataclasses.replace(plan, packages=dataclasses.replace(plan.packages, wheels=None))
    ours = replica_environment.agent_environment(job, wish.role, wish.index, wish.incarnation)
    folders = [] if fetched else [site.folder, Path.cwd()]
    return {
        **os.environ,
        **device_environment(devices_here(os.environ), spec, wish.index, job.spec.spares),
        **_users_variables(plain_variables(spec.env, ours), folders, bool(plan.command)),
        names.ENV_CORES: str(max(1, len(os.sched_getaffinity(0)) // job.spec.workers.replicas)),
        **ours,
        names.ENV_TRAINING: codec.encode(plan).decode(),
        names.ENV_POD_UID: uid,
        names.ENV_ADDRESS: LOOPBACK,
        names.ENV_OPERATOR: site.operator_url,
        names.ENV_TOKEN_FILE: str(site.token_file),
        names.ENV_CHECKPOINTS: str(site.checkpoints),
        names.ENV_SCRATCH: str(scratch),
        names.ENV_WARM_SOCKET: str(site.warm_socket),
        names.ENV_PARENT_PID: str(os.getpid()),
        names.ENV_GRACE: str(grace_seconds()),
        **({names.ENV_CODE: ""} if fetched or plan.packages else {}),
        **site.armed.variables(),
    }


def grace_seconds() -> float:
    """Return the seconds between SIGTERM and SIGKILL for ranks: from the environment, else GRACE_SECONDS."""
    try:
        return max(0.0, float(os.environ[names.ENV_GRACE]))
    except (KeyError, ValueError):
        return GRACE_SECONDS
