"""Tell a script of JAX, or of Keras 3 on JAX, what `initialize()` needs, so that it takes no arguments."""

from __future__ import annotations

from trainmaster_trainer.agent.frameworks.position import Instructions, Position


def instruct(position: Position) -> Instructions:
    """Return the variables. JAX reads the coordinator's address from one of its own, the rest from Open MPI's.

    JAX_NUM_PROCESSES and JAX_PROCESS_ID are not read by JAX itself: they are for scripts that were written for other
    operators and read them.
    """
    at = position.first.at
    size, rank, local = str(len(position.peers)), str(position.rank), str(position.me.local)
    return Instructions(
        variables={
            "JAX_COORDINATOR_ADDRESS": at,
            "JAX_NUM_PROCESSES": size,
            "JAX_PROCESS_ID": rank,
            "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{at}",  # its presence alone counts, as the address is known
            "OMPI_COMM_WORLD_SIZE": size,
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_RANK": local,  # selects the GPU
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": at,
            "KERAS_DISTRIBUTION_NUM_PROCESSES": size,
            "KERAS_DISTRIBUTION_PROCESS_ID": rank,
        }
    )
