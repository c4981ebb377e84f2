"""What each strategy costs, as a formula, how it is written in the YAML, and which file is it. For docs/strategies.md.

S are the bytes of all gradients, P of all parameters, A of the activations that leave a layer for a whole batch; N is
the number of ranks. `trainmaster explain` has the same in the numbers of a job.
"""

from typing import NamedTuple


class Cost(NamedTuple):
    """`yaml` is the value of spec.strategy, `source` a path below trainmaster_trainer/strategies/."""

    yaml: str
    traffic: str
    memory: str
    source: str


_WHOLE = "the whole model, its gradients and its optimizer on every"

COSTS: dict[str, Cost] = {
    "OneDevice": Cost(
        "{type: OneDevice}",
        "nothing travels",
        "the whole model, its gradients and its optimizer, on one device",
        "one_device.py",
    ),
    "Mirrored": Cost(
        "{type: Mirrored, mirrored: {reduction: Native}}",
        "each device sends and receives 2S(N-1)/N at every step, inside the machine",
        f"{_WHOLE} device",
        "mirrored.py",
    ),
    "AllReduce": Cost(
        "{type: AllReduce, allReduce: {algorithm: Ring}}",
        "by ring, each rank sends and receives 2S(N-1)/N at every step, however many there are; by driver, 2S(N-1) go "
        "through rank 0's link; by hierarchy with W workers, 2S(W-1)/W through that of each worker",
        f"{_WHOLE} rank",
        "all_reduce.py",
    ),
    "CentralStorage": Cost(
        "{type: CentralStorage}",
        "each device reads P and hands in S at every step, inside the machine",
        "parameters and optimizer once; gradients on every device, and the parameters where it is a GPU",
        "central_storage.py",
    ),
    "ParameterServer": Cost(
        "{type: ParameterServer, parameterServer: {update: Async, maxStaleness: 8}}",
        "each worker pushes S and pulls P at every step; each of M servers carries N/M times that, and a copy of its "
        "shard to its neighbour",
        "parameters and optimizer spread over the servers; parameters and gradients on every worker",
        "parameter_server",
    ),
    "Gossip": Cost(
        "{type: Gossip, gossip: {peers: 1, topKPercent: 10}}",
        "each worker sends P to each of its partners of a step and receives theirs, and about as often is a partner "
        "itself: 2P; with topKPercent that share, and of it the places too: 4 times that share of P",
        f"{_WHOLE} worker",
        "gossip",
    ),
    "LocalSGD": Cost(
        "{type: LocalSGD, localSGD: {every: 8, outer: Nesterov}}",
        "each rank sends and receives 2P(N-1)/N at every Hth step (every: H), 1/H of AllReduce's",
        f"{_WHOLE} rank, and the last meeting point",
        "local_sgd.py",
    ),
    "FullySharded": Cost(
        "{type: FullySharded}",
        "each rank sends and receives 3S(N-1)/N at every step, with microBatchSize for each part of its share",
        "1/N of model, gradients and optimizer on every rank, and one whole layer at a time",
        "fully_sharded.py",
    ),
    "Pipeline": Cost(
        "{type: Pipeline, pipeline: {schedule: 1F1B, microBatches: 16}}",
        "A forwards and A backwards between two stages at every step; p stages are idle for (p-1)/(m+p-1) of the time "
        "with m micro-batches",
        "the layers of its stage on every rank, about 1/N of the parameters",
        "pipeline.py",
    ),
    "Tensor": Cost(
        "{type: Tensor}",
        "each rank sends and receives about 4A(N-1)/N at every step for each pair of layers",
        "1/N of the layers that the task's tensor_plan names, and all of the others, on every rank",
        "tensor.py",
    ),
    "Mesh": Cost(
        "{type: Mesh, mesh: {data: 2, sharded: 1, pipeline: 2, tensor: 2}}",
        "what each axis costs, of the part of the model that it divides",
        "1/(sharded x pipeline x tensor) of the model on every rank",
        "mesh.py",
    ),
}
