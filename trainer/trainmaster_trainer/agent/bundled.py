"""Have the code and the packages of a job in a replica before anything else starts, and have the plan begin there.

A bundle is mounted in parts (`names.ENV_CODE`), an image as it is. What comes from elsewhere is brought by a process of
its own, `bringing`: the agent stays small, and whatever it waits for can be ended.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, MutableMapping, NoReturn, Optional

from trainmaster.wire import bundle, codec, names
from trainmaster.wire.files import delete_folder
from trainmaster.wire.sources import ENV_SECRET
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.agent import process
from trainmaster_trainer.agent.agent_settings import SettingsError
from trainmaster_trainer.agent.own_program import package_roots

CODE_FOLDER, PACKAGES_FOLDER = "code", "packages"  # in the agent's own folder


def bring(environment: MutableMapping[str, str]) -> None:
    """Bring the job's code and packages, if it has some, and have its plan and variables say where they lie.

    Raises:
        SettingsError: it is not what was sent, or cannot be written.
        SystemExit: the process that brings it has said why it could not.
    """
    mounted = environment.get(names.ENV_CODE)
    if mounted is None:
        return
    try:
        plan = codec.decode(TrainingPlan, environment.get(names.ENV_TRAINING, ""))
        scratch = Path(environment[names.ENV_SCRATCH])
        folder = _mounted(plan, Path(mounted), scratch / CODE_FOLDER)
    except (bundle.BundleError, codec.WireError, OSError, KeyError) as error:
        raise SettingsError(f"spec.training.code: the bundle cannot be used: {error}. Submit the job again") from None
    if plan.code_url or plan.code_git or plan.packages:
        _from_elsewhere(environment, None if folder is None else str(folder))
        environment.pop(names.ENV_WARM_SOCKET, None)  # that process may have imported what is another here
    for name in [name for name in environment if name.startswith(ENV_SECRET)]:
        del environment[name]
    if plan.code_url or plan.code_git:
        folder = scratch / CODE_FOLDER
    if plan.packages:
        _use_packages(environment, scratch / PACKAGES_FOLDER)
    if folder is not None:
        begins = os.path.join(folder, plan.working_directory or "")  # noqa: PTH118  an absolute one stands by itself
        plan = dataclasses.replace(plan, working_directory=begins.rstrip("/"))
        environment[names.ENV_TRAINING] = codec.encode(plan).decode()


def _mounted(plan: TrainingPlan, mounted: Path, folder: Path) -> Optional[Path]:
    """Return where the code lies that is mounted, unpacked; None where there is none."""
    if plan.code_image:
        _check_image(mounted)
        return mounted
    if plan.code is None:
        return None  # the variable comes from a ConfigMap of the user's, or the code from elsewhere
    entries = bundle.read(_joined(mounted), plan.code)
    delete_folder(folder)
    bundle.write(entries, folder)
    return folder


def _check_image(mounted: Path) -> None:
    """Refuse an empty folder: an API server that knows no image volumes makes such a one of it, and says nothing.

    Raises:
        SettingsError: there is no file.
    """
    if next(mounted.iterdir(), None) is None:
        raise SettingsError(
            "spec.training.code.image: no file is in it. Either the image is empty, or this cluster mounts no images "
            "(Kubernetes 1.35, or 1.33 with the feature gate ImageVolume): use code.url, code.git, or trainmaster "
            "submit"
        )


def _joined(mounted: Path) -> bytes:
    """Return what the parts are together, in the order of their numbers."""
    parts = sorted(path for path in mounted.iterdir() if path.name.isdigit())
    joined = b""
    for path in parts:
        with path.open("rb") as file:  # kubelet mounts links to the present files
            joined += file.read(bundle.MOST_BYTES + 1 - len(joined))
    if len(joined) > bundle.MOST_BYTES:
        raise bundle.BundleError(f"it has more than {bundle.MOST_BYTES >> 20} MiB")
    return joined


def _from_elsewhere(environment: MutableMapping[str, str], folder: Optional[str]) -> None:
    """Run `bringing` until it ends. Whoever ends this agent meanwhile ends it, and all that it has started."""
    variables = {**environment, **({} if folder is None else {names.ENV_CODE: folder})}
    owner = environment.get(names.ENV_PARENT_PID)
    if owner:
        process.die_with_parent(int(owner))  # nothing of a training is lost yet; the engine undoes it
    before = {number: signal.signal(number, _told_to_end) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    roots = package_roots()
    program = f"import sys; sys.path[:0] = {roots!r}; from trainmaster_trainer.agent.bringing import main; main()"
    child = subprocess.Popen([sys.executable, "-I", "-c", program], env=variables, start_new_session=True)
    try:
        code = child.wait()
    except BaseException:
        process.kill_group(child.pid, signal.SIGKILL)
        child.wait()
        raise
    for number, handler in before.items():
        signal.signal(number, handler)
    if code:
        sys.exit(code if code > 0 else 128 - code)


def _told_to_end(_number: int, _frame: Any) -> NoReturn:
    raise SystemExit(names.EXIT_TERMINATED)


def _use_packages(environment: MutableMapping[str, str], folder: Path) -> None:
    """Have ranks find the packages after our own modules and before the image's, and programs after the image's."""
    ours, _, rest = environment.get("PYTHONPATH", "").partition(os.pathsep)
    is_ours = os.path.isdir(os.path.join(ours, "trainmaster_trainer"))  # noqa: PTH112, PTH118  "" is no path
    paths = [ours, str(modules_of(folder)), rest] if is_ours else [str(modules_of(folder)), ours, rest]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    environment["PATH"] = os.pathsep.join([environment.get("PATH", os.defpath), str(folder / "bin")])


def modules_of(folder: Path) -> Path:
    """Return where an environment of this Python has its modules."""
    return Path(sysconfig.get_path("purelib", "posix_prefix", {"base": str(folder)}))
