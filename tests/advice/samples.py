"""A model, a machine and groups in round numbers."""

from trainmaster.advice.model_facts import GroupFacts, MachineFacts, ModelFacts
from trainmaster.wire.measured import Exchange, Timing

MIB = 1 << 20
MODEL = ModelFacts(
    parameters=MIB,
    parameter_bytes=4 * MIB,
    trained_bytes=4 * MIB,
    buffer_bytes=0,
    optimizer_bytes=8 * MIB,
    largest_layer_bytes=MIB,
    layers=8,
    samples=1000,
    sample_bytes=64,
    activation_bytes=1000,
    boundary_bytes=100,
)


def a_group(workers: int = 4, ranks: int = 1, servers: int = 0, batch: int = 64) -> GroupFacts:
    """Who trains."""
    return GroupFacts(workers, ranks, servers, batch)


def a_machine(devices: int = 4, per_sample: float = 0.001, per_mib: float = 0.001) -> MachineFacts:
    """A machine whose steps and exchanges lie on straight lines through the origin."""
    return MachineFacts(
        devices=devices,
        device="core",
        compute=(Timing(32, 32 * per_sample), Timing(64, 64 * per_sample)),
        exchange=(Exchange(MIB, per_mib), Exchange(4 * MIB, 4 * per_mib)),
    )
