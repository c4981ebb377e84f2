"""Journal writes the steps of all members to metrics file and page, where no process group adds up losses.

One member has it. `rank_report.py` is the same for ranks that step together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from trainmaster_trainer.batch_losses import StepLoss
from trainmaster_trainer.checkpoint import lineage
from trainmaster_trainer.checkpoint.remote import open_remote
from trainmaster_trainer.checkpoint.resume import Resumed
from trainmaster_trainer.errors import NonFiniteLossError
from trainmaster_trainer.evaluations import Evaluations
from trainmaster_trainer.metrics import Metrics
from trainmaster_trainer.progress import Progress
from trainmaster_trainer.rank_report import check_finite
from trainmaster_trainer.settings import Settings


class Journal:
    """Journal writes one line per step, after those that the file has up to `step`."""

    def __init__(
        self, settings: Settings, progress: Progress, step: int, durable_step: int, *, evaluated: int = 0
    ) -> None:
        self._progress = progress
        begun = lineage.read(settings.checkpoints, settings.job_uid, open_remote(settings)).begun
        resumed = Resumed(step, durable_step, min(step, begun))
        self._metrics = Metrics.for_attempt(settings, resumed.lines_step, durable_step, evaluated)
        self.step = max(self._metrics.last_step, begun)  # the last one that has its line
        progress.start(step, durable_step)

    def stepped(
        self,
        step: int,
        loss: float,
        samples: int,
        checkpoint_step: int,
        figures: Mapping[str, Any],
        *,
        ended: float | None = None,
    ) -> None:
        """Note that a global batch is done, `ended` by the monotonic clock. A step counts once. Then call `write`.

        Raises:
            NonFiniteLossError: its loss is not finite. Its line, and those before, are written.
        """
        if step <= self.step:
            return
        now = time.monotonic()
        ended = now if ended is None else ended
        then = time.time() - (now - ended)  # of the epoch
        seconds = self._progress.stepped(step, checkpoint_step, now=ended)
        self._progress.loss = loss
        speed = round(self._progress.samples_per_second, 1)
        self._metrics.add(
            step, loss=loss, samples_per_second=speed, step_seconds=round(seconds, 6), **figures, ended=then
        )
        self.step = step
        try:
            check_finite([StepLoss(step, loss, seconds, samples, then)])
        except NonFiniteLossError:
            self.write()
            raise

    def write(self) -> None:
        """Bring the noted steps into file and page: once for many steps, as each time costs more than a line."""
        self._progress.write()
        self._metrics.flush()

    def evaluated(self, evaluations: Evaluations) -> None:
        """Write and show the newest evaluation. The lines up to its step are noted."""
        self.write()
        self._metrics.evaluated(evaluations.step, evaluations.figures)
        self._progress.evaluated(evaluations.report())

    def sync(self) -> None:
        """Bring what was written so far to the disk: a checkpoint of it is about to become visible."""
        self._metrics.sync()

    def close(self) -> None:
        """Close the metrics file, as another member writes from here on."""
        self._metrics.close()

    def finish(self, step: int, figures: dict[str, float], *, is_told: bool = False) -> None:
        """Write the result: the training is over. `is_told`: the line of its evaluation is there."""
        self._metrics.finish(step, figures, is_told=is_told)
        self._progress.enter("done")
