"""Describe ParameterServer: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.formulas import Division, Flow, Need, Options, compressed, need, times
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages.strategy_page import ALONE, ASYNCHRONOUS, CENTRALIZED, DATA, StrategyPage


def _flows(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    # Frozen parameters have a place in a flat gradient.
    pushed, pulled = compressed(model.parameter_bytes, options), float(model.parameter_bytes)
    share = group.ranks / max(1, group.servers)
    return (
        Flow("every worker", pushed, pulled, "gradients pushed, parameters pulled"),
        Flow("every server", pulled * share, pushed * share, f"its shard with {group.ranks} workers"),
    )


def _needs(_options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Need, ...]:
    share = 1 / max(1, group.servers)
    server = Need(
        "every server",
        model.parameter_bytes * share,
        model.trained_bytes * share,
        times(model.optimizer_bytes, share),
        0,
    )
    return (need("every worker", model, group, Division(optimizer=0, shares=group.ranks)), server)


PAGE = StrategyPage(
    title="Parameter servers",
    parallel=DATA,
    timing=ASYNCHRONOUS,
    synchronous_if=("update", "Sync"),
    centre=CENTRALIZED,
    holds="Servers hold the parameters and the optimizer in shards; workers hold a copy to compute with.",
    talks="Each worker pulls parameters from all servers and pushes its gradients to them; workers never meet.",
    take="Workers come, go or differ in speed: a slow one costs no more than its own share.",
    leave="Workers are equal and always there: AllReduce moves fewer bytes through the busiest link.",
    failure=ALONE
    + " A lost server comes back from its neighbour's copy; with one server, the default, the whole job goes back "
    "to the newest checkpoint, so have two. Server 0 writes the checkpoints: where each replica has a folder of "
    "its own, they are in server 0's alone.",
    source="Li et al., OSDI 2014; staleness: Ho et al., NeurIPS 2013; backup workers: Chen et al., 2016",
    yaml="{type: ParameterServer, parameterServer: {update: Async, maxStaleness: 8}}",
    traffic="each worker pushes S and pulls P at every step; each of M servers carries N/M times that, and a copy "
    "of its shard to its neighbour",
    memory="parameters and optimizer spread over the servers; parameters and gradients on every worker",
    picture="""\
flowchart TB
    s0[("server 0: shard A, copy of B")] <--> s1[("server 1: shard B, copy of A")]
    w0[worker 0] & w1[worker 1] & w2["worker 2 (slow)"] -- "push gradients, pull parameters" --> s0 & s1""",
    flows=_flows,
    needs=_needs,
)
