"""The script of steps.py that reports each step and keeps its state; the same arguments."""

from reporting_steps import report  # type: ignore[import-not-found]
from steps import main  # type: ignore[import-not-found]
from trainmaster_trainer import session

if __name__ == "__main__":
    main(report, lambda model, optimizer: session.state(model=model, optimizer=optimizer))
