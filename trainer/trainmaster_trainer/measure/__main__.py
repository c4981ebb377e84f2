"""Run the command: write one JSON object, or exit with 78 and a sentence on stderr if the task cannot be used."""

from __future__ import annotations

import argparse
import os
import sys

from trainmaster.wire import codec, names
from trainmaster.wire.measured import MachineFacts, Measured

from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.measure.exchange import measure_exchange
from trainmaster_trainer.measure.machine import count_devices, measure_compute
from trainmaster_trainer.measure.model_sizes import describe
from trainmaster_trainer.numerics import Numerics
from trainmaster_trainer.rank import go_to
from trainmaster_trainer.settings import Settings
from trainmaster_trainer.task import load_task


def main() -> int:
    """Measure what the options ask for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainmaster_trainer.measure")
    parser.add_argument("--machine", action="store_true", help="run a few steps and exchanges as well")
    parser.add_argument("--answer", type=int, default=1, help="descriptor to write to; the task does not print there")
    options = parser.parse_args()
    try:
        found = codec.encode(_measure(Settings.read(os.environ), options.machine))
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return names.EXIT_BAD_CONFIGURATION
    with os.fdopen(options.answer, "wb", closefd=False) as answer:
        answer.write(found + b"\n")
    return 0


def _measure(settings: Settings, machine: bool) -> Measured:
    plan = settings.plan
    go_to(plan.working_directory)
    # First, while this process has one thread: the two ranks are forked from it.
    exchange, sharding = measure_exchange() if machine else ((), ())
    task = load_task(plan.task or "", plan.arguments)
    numerics = Numerics.from_plan(plan)
    model = describe(task, numerics)
    if not machine:
        return Measured(model)
    count, device = count_devices()
    compute, shares = measure_compute(task, numerics, plan.global_batch_size)
    return Measured(model, MachineFacts(count, device, compute, exchange, shares, sharding))


if __name__ == "__main__":
    sys.exit(main())
