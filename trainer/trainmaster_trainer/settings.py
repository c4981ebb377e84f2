"""Read everything that a rank process learns from its environment, once.

All other modules get what they need as arguments. The names that are not ours are torchrun's, so that a rank runs the
same under the agent, under bare `torchrun -m trainmaster_trainer.rank` and by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.wire import codec, names
from trainmaster.wire.training import TrainingPlan

from trainmaster_trainer.errors import ConfigurationError


@dataclass(frozen=True)
class Settings:
    """Settings says which rank this is, and what it is to train."""

    plan: TrainingPlan
    checkpoints: Path
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    attempt: int = 1
    restart: int = 0
    job_uid: str = ""
    role: str = names.WORKER
    progress_file: Path | None = None
    threads: int | None = None
    cores: int | None = None  # of the replica, as far as the spec or the machine says
    shared_memory: bool = True
    memory: Path | None = None  # a folder that outlives this process
    roster_file: Path | None = None
    listen_fd: int | None = None
    resume_before: int | None = None  # what was saved from this step on is not to be trusted
    doubted_attempt: int | None = None  # and that only if this attempt saved it, or an earlier one; None: any did

    def for_samples(self, samples: int) -> Settings:
        """Return these settings with the number of steps that the plan's epochs of so many samples take."""
        if self.plan.epochs is None:
            return self
        steps = -(-self.plan.epochs * samples // self.plan.global_batch_size)
        return replace(self, plan=replace(self.plan, steps=steps))

    @property
    def run_key(self) -> str:
        """Return a key that differs between any two tries of the group, by attempt (agent) and restart (torchrun)."""
        return f"attempt-{self.attempt}-restart-{self.restart}"

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Read the environment.

        Raises:
            ConfigurationError: a variable is missing or is not what it should be.
        """
        progress = environment.get(names.ENV_PROGRESS_FILE)
        restart = _number(environment, "TORCHELASTIC_RESTART_COUNT", 0)
        shared_memory = environment.get(names.ENV_SHARED_MEMORY) or "on"
        if shared_memory not in ("on", "off"):
            raise ConfigurationError(
                f"The variable {names.ENV_SHARED_MEMORY} must be on or off, not {shared_memory!r}."
            )
        return cls(
            plan=_plan(environment),
            checkpoints=Path(_needed(environment, names.ENV_CHECKPOINTS)),
            rank=_number(environment, "RANK", 0),
            world_size=_number(environment, "WORLD_SIZE", 1),
            local_rank=_number(environment, "LOCAL_RANK", 0),
            local_world_size=_number(environment, "LOCAL_WORLD_SIZE", 1),
            attempt=_number(environment, names.ENV_ATTEMPT, restart + 1),
            restart=restart,
            job_uid=environment.get(names.ENV_JOB_UID, ""),
            role=environment.get(names.ENV_ROLE, names.WORKER),
            progress_file=Path(progress) if progress else None,
            threads=_number(environment, "OMP_NUM_THREADS", 0) or None,
            cores=_known_number(environment, names.ENV_CORES),
            shared_memory=shared_memory == "on",
            memory=Path(environment[names.ENV_MEMORY]) if environment.get(names.ENV_MEMORY) else None,
            roster_file=Path(environment[names.ENV_ROSTER]) if environment.get(names.ENV_ROSTER) else None,
            resume_before=_known_number(environment, names.ENV_RESUME_BEFORE),
            doubted_attempt=_known_number(environment, names.ENV_DOUBTED_ATTEMPT),
            listen_fd=_known_number(environment, names.ENV_LISTEN),
        )


def _plan(environment: Mapping[str, str]) -> TrainingPlan:
    text = _needed(environment, names.ENV_TRAINING)
    try:
        return codec.decode(TrainingPlan, text)
    except codec.WireError as error:
        raise ConfigurationError(f"{names.ENV_TRAINING} is not a training plan: {error}") from None


def _needed(environment: Mapping[str, str], name: str) -> str:
    try:
        return environment[name]
    except KeyError:
        raise ConfigurationError(
            f"The variable {name} is not set; `trainmaster run` sets it, torchrun does not."
        ) from None


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ConfigurationError(f"The variable {name} must be a whole number, not {text!r}.") from None


def _known_number(environment: Mapping[str, str], name: str) -> int | None:
    return _number(environment, name, -1) if environment.get(name) else None
