"""Tell a script of LightGBM the list of machines, as its parameters want it."""

from __future__ import annotations

from trainmaster_trainer.agent.frameworks.position import Instructions, Position


def instruct(position: Position) -> Instructions:
    """Return the values of `machines`, `local_listen_port` and `num_machines`, which the script hands on.

    LightGBM reads no variables. It finds itself in the list by its addresses and its port.
    """
    return Instructions(
        variables={
            "LIGHTGBM_MACHINES": ",".join(peer.at for peer in position.peers),
            "LIGHTGBM_LOCAL_LISTEN_PORT": str(position.me.port),
            "LIGHTGBM_NUM_MACHINES": str(len(position.peers)),
        }
    )
