"""Bring the code of a job into a pod: join the parts, verify them, unpack them, and have the plan begin there.

The parts are mounted by the operator (`names.ENV_CODE`). Nothing else has started yet.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import MutableMapping

from trainmaster.wire import bundle, codec, names
from trainmaster.wire.files import delete_folder
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.agent.settings import SettingsError

_FOLDER = "code"


def bring(environment: MutableMapping[str, str]) -> None:
    """Unpack the job's code, if it has some, and set the working directory of the plan to where it lies.

    Raises:
        SettingsError: it is not what was sent, or cannot be written.
    """
    mounted = environment.get(names.ENV_CODE)
    if not mounted:
        return
    try:
        plan = codec.decode(TrainingPlan, environment.get(names.ENV_TRAINING, ""))
        if plan.code is None:
            return  # the variable comes from a ConfigMap of the user's
        folder = Path(environment[names.ENV_SCRATCH]) / _FOLDER
        entries = bundle.read(_joined(Path(mounted)), plan.code)
        delete_folder(folder)
        bundle.write(entries, folder)
    except (bundle.BundleError, codec.WireError, OSError, KeyError) as error:
        raise SettingsError(f"spec.training.code: the bundle cannot be used: {error}. Submit the job again") from None
    begins = os.path.join(folder, plan.working_directory or "")  # noqa: PTH118  an absolute one stands by itself
    plan = dataclasses.replace(plan, working_directory=begins.rstrip("/"))
    environment[names.ENV_TRAINING] = codec.encode(plan).decode()


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
