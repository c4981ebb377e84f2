"""Describe each strategy in the words of the textbooks: what is parallel, who waits for whom, and what is central.

There is one row per strategy type; `trainmaster explain` and docs/strategies.md are made of them.
"""

from dataclasses import dataclass, replace

DATA, MODEL, NEITHER, BOTH = "data parallel", "model parallel", "not parallel", "data and model parallel"
SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"
CENTRALIZED, DECENTRALIZED = "centralized", "decentralized"


@dataclass(frozen=True)
class Row:
    """Describe one strategy. `title` is the textbook's term, `source` the paper that described it."""

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

    @property
    def taxonomy(self) -> str:
        """Return what is parallel, the timing and the centre in one phrase; "not parallel" for a single device."""
        return ", ".join(axis for axis in (self.parallel, self.timing, self.centre) if axis)


_GROUP = (
    "All ranks stop and start again in the same pods from the newest state that all can reach; a lost pod or node gets "
    "a new pod first. Steps since that state are trained again, with the same samples."
)
_ALONE = (
    "Only the replica that died starts again; the others train on meanwhile and learn its new address. Its unfinished "
    "share is given out again."
)

TEXTBOOK: dict[str, Row] = {
    "OneDevice": Row(
        title="One device",
        parallel=NEITHER,
        timing="",
        centre="",
        holds="One process holds the whole model and works on the whole batch.",
        talks="Nobody talks to anybody.",
        take="The model and the batch fit one device and one device is fast enough. The reference for all others.",
        leave="Training takes longer than you can wait, or memory does not suffice.",
        failure="The process starts again in the same pod from its newest state.",
        source="Robbins and Monro, 1951",
    ),
    "Mirrored": Row(
        title="Mirrored variables on the devices of one machine",
        parallel=DATA,
        timing=SYNCHRONOUS,
        centre=DECENTRALIZED,
        holds="Every device of one machine holds the whole model and takes its share of every batch.",
        talks="The devices add up their gradients at every step; nothing leaves the machine.",
        take="Several devices in one machine, and the model fits each.",
        leave="One machine is not enough: AllReduce does the same over many.",
        failure=_GROUP,
        source="Abadi et al., TensorFlow, OSDI 2016",
    ),
    "AllReduce": Row(
        title="Synchronous data parallelism by all-reduce",
        parallel=DATA,
        timing=SYNCHRONOUS,
        centre=DECENTRALIZED,
        holds="Every rank holds the whole model and takes its share of every batch.",
        talks="All ranks add up their gradients at every step, bucket by bucket while the backward pass still runs.",
        take="The model fits one device, the ranks are equally fast and the links between them are good.",
        leave="One rank is often slow (all wait for it), links are thin, or the model does not fit.",
        failure=_GROUP,
        source="Patarasuk and Yuan, 2009; Goyal et al., 2017; Li et al., VLDB 2020",
    ),
    "CentralStorage": Row(
        title="Central storage, mirrored compute",
        parallel=DATA,
        timing=SYNCHRONOUS,
        centre=CENTRALIZED,
        holds="One copy of parameters and optimizer on the CPU; every device computes its share of the batch.",
        talks="Devices read the parameters and hand in gradients, which are added up in the order of ranks.",
        take="Parameters and optimizer are large beside what devices have, or sums must be in one order.",
        leave="Devices are fast and the CPU's update is what they wait for: Mirrored.",
        failure=_GROUP,
        source="Abadi et al., TensorFlow, OSDI 2016",
    ),
    "ParameterServer": Row(
        title="Parameter servers",
        parallel=DATA,
        timing=ASYNCHRONOUS,
        centre=CENTRALIZED,
        holds="Servers hold the parameters and the optimizer in shards; workers hold a copy to compute with.",
        talks="Each worker pulls parameters from all servers and pushes its gradients to them; workers never meet.",
        take="Workers come, go or differ in speed: a slow one costs no more than its own share.",
        leave="Workers are equal and always there: AllReduce moves fewer bytes through the busiest link.",
        failure=_ALONE
        + " A lost server comes back from its neighbour's copy; with one server, the default, the whole job goes back "
        "to the newest checkpoint, so have two. Server 0 writes the checkpoints: where each replica has a folder of "
        "its own, they are in server 0's alone.",
        source="Li et al., OSDI 2014; staleness: Ho et al., NeurIPS 2013; backup workers: Chen et al., 2016",
    ),
    "Gossip": Row(
        title="Gossip averaging",
        parallel=DATA,
        timing=ASYNCHRONOUS,
        centre=DECENTRALIZED,
        holds="Every worker holds a model of its own, trains it, and averages it with random others.",
        talks="Pairs of workers, at random; there is no centre and nobody waits for all.",
        take="Links or workers are unequal or unreliable and there must be no single point of failure.",
        leave="The same numbers as one device are needed: models agree only nearly.",
        failure=_ALONE + " It takes over the model of a peer.",
        source="Lian et al., AD-PSGD, ICML 2018",
    ),
    "LocalSGD": Row(
        title="Local SGD (DiLoCo)",
        parallel=DATA,
        timing=SYNCHRONOUS,
        centre=DECENTRALIZED,
        holds="Every rank trains a whole model alone for some steps, then all meet at the average.",
        talks="All ranks, but only at every meeting.",
        take="Links are thin: traffic falls by the number of steps between meetings.",
        leave="Links are good: AllReduce has the same loss as one device.",
        failure=_GROUP,
        source="Stich, ICLR 2019; Douillard et al., DiLoCo, 2023",
    ),
    "FullySharded": Row(
        title="Fully sharded data parallelism",
        parallel=DATA,
        timing=SYNCHRONOUS,
        centre=DECENTRALIZED,
        holds="Every rank keeps 1/N of parameters, gradients and optimizer, and gathers a layer when it computes it.",
        talks="All ranks: each layer is gathered forward and backward, and its gradients are scattered.",
        take="The model with its optimizer does not fit one device, and links are good.",
        leave="It fits: AllReduce moves a third less. Or samples decide which parameters are used (experts).",
        failure=_GROUP,
        source="Rajbhandari et al., ZeRO, SC 2020; Zhao et al., FSDP, VLDB 2023",
    ),
    "Pipeline": Row(
        title="Pipeline (vertical model) parallelism",
        parallel=MODEL,
        timing=SYNCHRONOUS,
        centre=DECENTRALIZED,
        holds="Every rank holds some consecutive layers, a stage with about as many parameters as the others; a batch "
        "flows through in micro-batches.",
        talks="Neighbouring stages: activations forward, their gradients backward.",
        take="The model does not fit one device and links are thin: only activations travel.",
        leave="There are few micro-batches for many stages: stages idle (p-1)/(m+p-1) of the time.",
        failure=_GROUP,
        source="Huang et al., GPipe, NeurIPS 2019; Narayanan et al., PipeDream, SOSP 2019",
    ),
    "Tensor": Row(
        title="Tensor (horizontal model) parallelism",
        parallel=MODEL,
        timing=SYNCHRONOUS,
        centre=DECENTRALIZED,
        holds="Every rank holds a slice of each layer, and all compute every layer together.",
        talks="All ranks, inside every layer, forward and backward.",
        take="Single layers are too large or too slow for one device, and devices are very well linked.",
        leave="Ranks are on different machines with ordinary links.",
        failure=_GROUP,
        source="Shoeybi et al., Megatron-LM, 2019",
    ),
    "Mesh": Row(
        title="Several kinds of parallelism at once",
        parallel=BOTH,
        timing=SYNCHRONOUS,
        centre=DECENTRALIZED,
        holds="Ranks stand in a grid; along each of its axes the model or the batch is divided in another way.",
        talks="Ranks of one row or column: what that axis needs.",
        take="The model is so large that one kind of parallelism alone does not carry it.",
        leave="One kind is enough.",
        failure=_GROUP,
        source="Narayanan et al., SC 2021",
    ),
}


def taxonomy(strategy_type: str, options: dict[str, object]) -> str:
    """Return the taxonomy of a strategy with these options: a parameter server may be synchronous too."""
    row = TEXTBOOK[strategy_type]
    if strategy_type == "ParameterServer" and options.get("update") == "Sync":
        return replace(row, timing=SYNCHRONOUS).taxonomy
    return row.taxonomy
