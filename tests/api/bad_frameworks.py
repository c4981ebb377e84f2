"""Bad specs of scripts of other frameworks than torch; part of bad_specs.py."""

from __future__ import annotations

from typing import Any

from trainmaster.wire.frameworks import FRAMEWORKS as TABLE
from trainmaster.wire.frameworks import TORCH

from tests.api.changes import bad

_FIELD = "training.framework"
_SCRIPT = {"command": ["a"]}
_SERVERS: dict[str, Any] = {"strategy__type": "ParameterServer", "parameterServers__replicas": 2}
_GOSSIP: dict[str, Any] = {"strategy__type": "Gossip"}

FRAMEWORKS = (
    bad("framework of a task", _FIELD, "JAX", "set command in place of task"),
    bad("unknown framework", _FIELD, "Jax", "Did you mean JAX", "Unsupported value"),
    bad("JAX on TPUs", _FIELD, "JAX", "Remove accelerator", training=_SCRIPT, workers__accelerator="tpu"),
    bad("servers of JAX", _FIELD, "JAX", "scripts of JAX train under", training=_SCRIPT, **_SERVERS),
    bad(
        "a chief alone",
        "workers.replicas",
        1,
        "Set workers.replicas to 2 at least",
        training={**_SCRIPT, "framework": "TensorFlow"},
        **_SERVERS,
    ),
    *(
        bad(
            f"two GPUs for one device of {name}",
            "workers.gpus",
            2,
            "OneDevice uses one GPU",
            training={**_SCRIPT, "framework": name},
            strategy__type="OneDevice",
            workers__replicas=1,
        )
        for name in TABLE
    ),
    *(
        bad(f"gossip of {name}", _FIELD, name, f"scripts of {name} train under", training=_SCRIPT, **_GOSSIP)
        for name in TABLE
        if name != TORCH
    ),
)
