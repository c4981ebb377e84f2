"""A picture of each strategy, for docs/strategies.md: who holds what, and what travels (Mermaid flowcharts)."""

PICTURES: dict[str, str] = {
    "OneDevice": """\
flowchart LR
    data[(samples)] --> model["whole model, whole batch"]""",
    "Mirrored": """\
flowchart LR
    subgraph machine
        d0["device 0: model, share 1"] <--> sum(("sum in memory"))
        d1["device 1: model, share 2"] <--> sum
        d2["device 2: model, share 3"] <--> sum
    end""",
    "AllReduce": """\
flowchart LR
    r0["rank 0: model, share 1"] --> r1["rank 1: model, share 2"]
    r1 --> r2["rank 2: model, share 3"] --> r3["rank 3: model, share 4"]
    r3 -- "gradients, chunk by chunk" --> r0""",
    "CentralStorage": """\
flowchart TB
    store[("CPU: parameters and optimizer, once")]
    store -- parameters --> d0["device 0: share 1"] & d1["device 1: share 2"]
    d0 & d1 -- gradients --> store""",
    "ParameterServer": """\
flowchart TB
    s0[("server 0: shard A, copy of B")] <--> s1[("server 1: shard B, copy of A")]
    w0[worker 0] & w1[worker 1] & w2["worker 2 (slow)"] -- "push gradients, pull parameters" --> s0 & s1""",
    "Gossip": """\
flowchart LR
    w0["worker 0: own model"] <-- "average, now" --> w2["worker 2: own model"]
    w1["worker 1: own model"] <-- "average, now" --> w3["worker 3: own model"]
    w0 -. "another time" .- w3""",
    "LocalSGD": """\
flowchart LR
    subgraph "H steps alone"
        r0["rank 0: own model"]
        r1["rank 1: own model"]
    end
    r0 & r1 -- "after H steps" --> mean(("average, outer step")) --> r0 & r1""",
    "FullySharded": """\
flowchart LR
    r0["rank 0: 1/3 of each layer"] & r1["rank 1: 1/3"] & r2["rank 2: 1/3"]
    r0 & r1 & r2 -- "gather a layer when it is needed" --> layer["whole layer, on each rank, for a moment"]
    layer -- "scatter its gradients" --> r0 & r1 & r2""",
    "Pipeline": """\
flowchart LR
    batch[(batch)] -- "micro-batches" --> s0["stage 0: first layers"]
    s0 -- activations --> s1["stage 1: next layers"] -- activations --> s2["stage 2: last layers, loss"]
    s2 -- gradients --> s1 -- gradients --> s0""",
    "Tensor": """\
flowchart TB
    batch[(batch)] --> r0["rank 0: left half of every layer"] & r1["rank 1: right half of every layer"]
    r0 <-- "sum in every layer" --> r1""",
    "Mesh": """\
flowchart LR
    subgraph "copy 1 (data)"
        a0["stage 0, slice 0"] <-- tensor --> a1["stage 0, slice 1"]
        b0["stage 1, slice 0"] <-- tensor --> b1["stage 1, slice 1"]
        a0 -- pipeline --> b0
        a1 -- pipeline --> b1
    end
    subgraph "copy 2 (data)"
        c["the same again"]
    end
    a0 <-- "gradients" --> c""",
}
