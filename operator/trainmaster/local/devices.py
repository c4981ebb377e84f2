"""Choose the GPUs of this machine that a local replica may use.

A replica with g devices runs g ranks; each takes the device of its LOCAL_RANK. Each replica sees its own devices only,
so that two replicas on one machine do not share any. If there are too few GPUs, all ranks train on the CPU.
"""

from pathlib import Path

from trainmaster.api.replicas import ReplicaSpec


def device_environment(spec: ReplicaSpec, index: int, spares: int = 0) -> dict[str, str]:
    """Return CUDA_VISIBLE_DEVICES of replica `index`; empty where there is no GPU. A spare holds devices too."""
    present = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not present:
        return {}
    mine = range(index * spec.gpus, (index + 1) * spec.gpus)
    enough = spec.gpus > 0 and (spec.replicas + spares) * spec.gpus <= present
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, mine)) if enough else ""}
