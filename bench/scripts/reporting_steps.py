"""The script of steps.py with one line that says each step to Trainmaster; the same arguments."""

import torch
from steps import main  # type: ignore[import-not-found]
from trainmaster_trainer import session


def report(step: int, steps: int, loss: torch.Tensor) -> None:
    """Report."""
    session.report(step=step, total=steps, loss=loss.item())


if __name__ == "__main__":
    main(report)
