"""Define Page: all that users are told of a strategy, and how the predictions compute what it sends and holds.

In `traffic` and `memory`, S are the bytes of all gradients, P of all parameters, A of the activations that leave a
layer for a whole batch; N is the number of ranks. `trainmaster explain` has the same in the numbers of a job.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.advice.formulas import Flow, Need, Options, nothing, on_every_rank
from trainmaster.advice.model_facts import GroupFacts, ModelFacts

DATA, MODEL, NEITHER, BOTH = "data parallel", "model parallel", "not parallel", "data and model parallel"
SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"
CENTRALIZED, DECENTRALIZED = "centralized", "decentralized"
WHOLE = "the whole model, its gradients and its optimizer on every"
GROUP = (
    "All ranks stop and start again in the same pods from the newest state that all can reach; a lost pod or node gets "
    "a new pod first. Steps since that state are trained again, with the same samples."
)
COPIES = (
    " Where there are several pods, the next one keeps copies of each rank's snapshots in memory (in all five times a "
    "rank's state, where there is room): a lost pod costs no step, or a few where links are slow. Two neighbouring "
    "pods that are lost at once cost the steps since the newest checkpoint."
)
OWN = (
    "has a part of the state that is each rank's own, of which no other pod keeps a copy: a killed rank loses what was "
    "since the newest snapshot in its pod's memory, but a lost pod costs all ranks the steps since the newest "
    "checkpoint. Let checkpoint.everySteps follow from that."
)
ALONE = (
    "Only the replica that died starts again; the others train on meanwhile and learn its new address. Its unfinished "
    "share is given out again."
)


@dataclass(frozen=True)
class StrategyPage:
    """Describe one strategy. `title` is the textbook's term, `source` the paper that described it.

    `yaml` is an example of spec.strategy; `picture` a Mermaid flowchart of who holds what and what travels.
    """

    title: str
    parallel: str
    timing: str
    centre: str
    holds: str
    talks: str
    take: str
    leave: str
    failure: str
    source: str
    yaml: str
    traffic: str
    memory: str
    picture: str
    synchronous_if: tuple[str, str] | None = None  # the option, and its value, with which all wait for one another
    flows: Callable[[Options, ModelFacts, GroupFacts], tuple[Flow, ...]] = nothing
    needs: Callable[[Options, ModelFacts, GroupFacts], tuple[Need, ...]] = on_every_rank

    @property
    def taxonomy(self) -> str:
        """Return what is parallel, the timing and the centre in one phrase; "not parallel" for a single device."""
        return ", ".join(axis for axis in (self.parallel, self.timing, self.centre) if axis)

    def with_options(self, options: dict[str, Any]) -> "StrategyPage":
        """Return the page for these options: a parameter server may be synchronous too."""
        name, value = self.synchronous_if or ("", "")
        return replace(self, timing=SYNCHRONOUS) if name in options and options[name] == value else self
