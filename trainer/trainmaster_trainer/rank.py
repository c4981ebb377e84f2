"""Run one rank process for a task.

The agent forks a process from its warm parent and calls `main`. The same works without an agent:

    torchrun --nproc-per-node 4 -m trainmaster_trainer.rank       with TRAINMASTER_TRAINING and _CHECKPOINTS set
    python -m trainmaster_trainer.rank                            one rank, by hand
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import torch
from trainmaster.wire.names import EXIT_BAD_CONFIGURATION
from trainmaster.wire.printable import OneLineFormatter
from trainmaster.wire.strategies import INDEPENDENT

from trainmaster_trainer.agent.rank_errors import is_the_users
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.group import join
from trainmaster_trainer.loop_independent import train_independently
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.training_loop import train


def main() -> int:
    """Train as the environment says. Return the exit code.

    Raises:
        ConfigurationError: the caller shows its message and exits with 78.
    """
    settings = Settings.read(os.environ)
    form = f"%(asctime)s rank {settings.rank} %(levelname)s %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(form, ours="trainmaster_trainer"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    go_to(settings.plan.working_directory)
    # Set here as well: a forked process does not read OMP_NUM_THREADS again.
    if settings.threads:
        torch.set_num_threads(settings.threads)
    progress = Progress(settings.progress_file, settings.plan.global_batch_size)
    if settings.plan.strategy in INDEPENDENT:
        return train_independently(settings, progress)
    with join(settings) as group:
        return train(settings, group, progress)


def go_to(folder: str | None) -> None:
    """Go to the user's folder, if there is one, and make the modules in it importable."""
    if folder:
        try:
            os.chdir(folder)
        except OSError as error:
            if not is_the_users(error):
                raise
            raise ConfigurationError(f"spec.training.workingDirectory: {folder}: {error.strerror}.") from None
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _main_without_agent() -> int:
    try:
        return main()
    except ConfigurationError:
        return EXIT_BAD_CONFIGURATION


if __name__ == "__main__":
    sys.exit(_main_without_agent())
