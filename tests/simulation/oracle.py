"""The judge: what a life came to, held against what it should have come to."""

from __future__ import annotations

from trainmaster.core.failures import classes

from tests.platforms import clock
from tests.platforms.clock import EPOCH, StuckError
from tests.simulation.scenarios import Scenario
from tests.simulation.world import KEY, Faults, World

# What a crash or a lost reply may cost: two seconds until the next operator is up, some until it knows everything.
AFTER_A_CRASH_SECONDS, AFTER_A_CRASH_WRITES = 6.0, 3


def live(scenario: Scenario, seed: int, crashes: dict[int, str] | None = None, faults: Faults | None = None) -> World:
    """One life of the scenario."""
    world = World(seed, scenario.job, plan=scenario.plan, faults=faults)
    world.crashes = crashes or {}
    try:
        clock.run(world.run(scenario.script))
    except (AssertionError, StuckError) as error:
        world.watch.violated(f"it did not come to its end: {error}")
    return world


def problems(scenario: Scenario, world: World) -> list[str]:
    """What is wrong with how it ended; empty: nothing."""
    found = list(world.watch.violations)
    if KEY not in world.server.jobs:
        return [*found, "the job is gone"] if scenario.phase else found
    status = world.status()
    counted = [line.failure_class for line in status.restarts if line.failure_class not in classes.FREE]
    if status.phase != scenario.phase:
        found.append(f"ended as {status.phase} ({status.message}), not as {scenario.phase}")
    if tuple(counted) != scenario.counted:
        found.append(f"counted {counted}, not {list(scenario.counted)}")
    if status.restart_count not in scenario.restarts:
        found.append(f"restarted {status.restart_count} times, not {scenario.restarts}")
    took = (status.completion_time or EPOCH) - (status.start_time or EPOCH)
    patience = AFTER_A_CRASH_SECONDS * len(world.crashes)
    if took.total_seconds() > scenario.seconds + patience:
        found.append(f"took {took}, not {scenario.seconds + patience} s")
    if world.watch.writes > scenario.writes + AFTER_A_CRASH_WRITES * len(world.crashes):
        found.append(f"wrote its status {world.watch.writes} times, not {scenario.writes}")
    steps = world.plan.steps
    if status.phase == "Succeeded" and not (status.progress and status.progress.step == steps):
        found.append(f"ended at {status.progress}, not at step {steps}")
    if status.phase == "Succeeded" and world.jobs[KEY].storage.step != steps:
        found.append(f"the last checkpoint is of step {world.jobs[KEY].storage.step}, not {steps}")
    return found


def tell(scenario: Scenario, world: World, found: list[str]) -> str:
    """For people who look for the bug."""
    return "\n".join([f"{scenario.name}: " + "; ".join(found), *world.watch.history[-12:], *world.calls[-12:]])
