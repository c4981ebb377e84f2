"""A pod is deleted on the real cluster: how long until training goes on, by phases, against a new start of all pods.

Both run the same DDP script with two ranks in two pods of the one-machine cluster (`tools/onebox`; root). In turn:

- a TrainingJob. The operator makes the lost pod anew; the other one's agent waits, warm.
- what JobSet does with a failure: all pods go and come again, with torchrun in them. The controller is played here, and
  it is kinder than a real one: it acts at once, waits for no old pod to end, and lets pod 0 tell its address by a file.

Both lose a pod twice per round: with no grace, and with the grace that the pod asks for. Seconds count from the request
to delete to the first step that all ranks have ended; phases are timed by when a watch tells of them.
"""

import statistics
import time

from bench import results
from bench.pod_cluster import Place, place
from bench.pod_contestants import Contestant, Job, Phases, WholeSet, first_step

ROUNDS = 2
GRACES = {"at once": 0, "with its grace": None}
CALM_SECONDS = 3.0  # of training between two losses

Losses = dict[str, list[Phases]]  # by grace


def main() -> str:
    """Measure; gives the last line."""
    found: dict[str, Losses] = {name: {grace: [] for grace in GRACES} for name in ("trainmaster", "all pods")}
    with place() as there:
        for number in range(ROUNDS):
            _round(there, number, found)
    ratios = [
        theirs["first step"] / ours["first step"]
        for grace in GRACES
        for ours, theirs in zip(found["trainmaster"][grace], found["all pods"][grace], strict=True)
    ]
    medians = {name: {grace: _medians(losses[grace]) for grace in GRACES} for name, losses in found.items()}
    figures = {"ratio": results.median(ratios), "worst": min(ratios), "ratios": ratios}
    results.save("pod_loss", {**figures, "medians": medians, "seconds": found})
    return f"pod_loss: {results.median(ratios):.1f}x a recreation of all pods"


def _round(there: Place, number: int, found: dict[str, Losses]) -> None:
    contestants: dict[str, Contestant] = {
        "trainmaster": Job(there, f"ours-{number}"),
        "all pods": WholeSet(there, f"theirs-{number}"),
    }
    for name, contestant in contestants.items():
        began = time.time()
        contestant.start()
        try:
            first_step(contestant, began)
            for grace, seconds in GRACES.items():
                time.sleep(CALM_SECONDS)
                phases = _lose(contestant, seconds)
                found[name][grace].append(phases)
                told = ", ".join(f"{phase} {when:.2f}" for phase, when in phases.items())
                print(f"round {number + 1}: {name}, pod deleted {grace}: {told}", flush=True)
        finally:
            contestant.end()


def _lose(contestant: Contestant, grace: int | None) -> Phases:
    requested, phases = contestant.lose(grace)
    phases["first step"] = first_step(contestant, requested) - requested
    return {phase: round(seconds, 3) for phase, seconds in phases.items()}


def _medians(losses: list[Phases]) -> Phases:
    return {phase: round(statistics.median(loss[phase] for loss in losses), 3) for phase in losses[0]}
