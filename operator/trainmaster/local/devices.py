"""Which of this machine's GPUs a local replica may use.

A replica with g devices runs g ranks; each takes the device of its LOCAL_RANK. So that two replicas on one machine
do not share, each is shown its own devices only. Without enough GPUs all ranks train on the CPU.
"""

from pathlib import Path

from trainmaster.api.replicas import ReplicaSpec


def device_environment(spec: ReplicaSpec, index: int, spares: int = 0) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES of replica `index`; nothing where there is no GPU at all. A spare holds its devices too."""
    present = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not present:
        return {}
    mine = range(index * spec.gpus, (index + 1) * spec.gpus)
    enough = spec.gpus > 0 and (spec.replicas + spares) * spec.gpus <= present
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, mine)) if enough else ""}
