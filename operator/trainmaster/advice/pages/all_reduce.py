"""Describe AllReduce: the words of the textbooks, its costs, its picture, and the formulas of both."""

from trainmaster.advice.formulas import Algorithm, Flow, Options, data_parallel, medium, ring
from trainmaster.advice.model_facts import GroupFacts, ModelFacts
from trainmaster.advice.pages.strategy_page import DATA, DECENTRALIZED, GROUP, OWN, SYNCHRONOUS, WHOLE, StrategyPage


def _flows(options: Options, model: ModelFacts, group: GroupFacts) -> tuple[Flow, ...]:
    return data_parallel(_ALGORITHMS[str(options.get("algorithm", "Native"))], options, model, group)


def _by_ring(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    each = ring(size, group.ranks)
    return (Flow("every rank", each, each, "gradients, 2S(N-1)/N", medium(group)),)


def _by_driver(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    all_others = (group.ranks - 1) * size
    return (
        Flow("rank 0, the driver", all_others, all_others, "gradients, 2(N-1)S both ways together", medium(group)),
        Flow("every other rank", size, size, "its gradients, and the sum", medium(group)),
    )


def _by_hierarchy(size: float, group: GroupFacts) -> tuple[Flow, ...]:
    between = ring(size, group.workers)
    inside = size * (group.ranks_per_worker - 1)
    found = [Flow("the first rank of a worker", between, between, "sums of whole workers, 2S(W-1)/W")]
    if inside:
        found.append(Flow("inside a worker", inside, inside, "gradients up, the sum down", "memory"))
    return tuple(found) if group.workers > 1 else tuple(found[1:])


_ALGORITHMS: dict[str, Algorithm] = {
    "Native": _by_ring,
    "Ring": _by_ring,
    "Driver": _by_driver,
    "Hierarchical": _by_hierarchy,
}

PAGE = StrategyPage(
    title="Synchronous data parallelism by all-reduce",
    parallel=DATA,
    timing=SYNCHRONOUS,
    centre=DECENTRALIZED,
    holds="Every rank holds the whole model and takes its share of every batch.",
    talks="All ranks add up their gradients at every step, bucket by bucket while the backward pass still runs.",
    take="The model fits one device, the ranks are equally fast and the links between them are good.",
    leave="One rank is often slow (all wait for it), links are thin, or the model does not fit.",
    failure=f"{GROUP} Compression by PowerSGD or TopK {OWN}",
    source="Patarasuk and Yuan, 2009; Goyal et al., 2017; Li et al., VLDB 2020",
    yaml="{type: AllReduce, allReduce: {algorithm: Ring}}",
    traffic="by ring, each rank sends and receives 2S(N-1)/N at every step, however many there are; by driver, 2S(N-1) "
    "go through rank 0's link; by hierarchy with W workers, 2S(W-1)/W through that of each worker",
    memory=f"{WHOLE} rank",
    picture="""\
flowchart LR
    r0["rank 0: model, share 1"] --> r1["rank 1: model, share 2"]
    r1 --> r2["rank 2: model, share 3"] --> r3["rank 3: model, share 4"]
    r3 -- "gradients, chunk by chunk" --> r0""",
    flows=_flows,
)
