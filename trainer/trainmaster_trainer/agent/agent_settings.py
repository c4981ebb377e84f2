"""Read the agent's settings from the environment once, here and nowhere else in the agent.

A missing or wrong variable is one line that names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional

from trainmaster.wire import codec, names
from trainmaster.wire.training import TrainingPlan

# Kubernetes gives a pod 30 s by default; what is left is for the last heartbeat.
_DEFAULT_GRACE_SECONDS = 20.0


class SettingsError(ValueError):
    """SettingsError says that a variable is missing or makes no sense. The text names it."""


@dataclass(frozen=True)
class AgentSettings:
    """AgentSettings says which replica this is and where everything lies."""

    job: str
    job_uid: str
    role: str
    index: int
    incarnation: int
    pod_uid: str
    address: str
    operator: str
    token_file: str
    ranks: int
    plan: TrainingPlan
    checkpoints: str
    scratch: str
    warm_socket: Optional[str] = None
    parent_pid: Optional[int] = None
    grace_seconds: float = _DEFAULT_GRACE_SECONDS

    @property
    def name(self) -> str:
        """Return how log lines call this replica, such as `worker/0`."""
        return f"{self.role}/{self.index}"


def read(environment: Mapping[str, str]) -> AgentSettings:
    """Return the settings in `environment`.

    Raises:
        SettingsError: a variable is missing or wrong.
    """
    parent = environment.get(names.ENV_PARENT_PID)
    grace = environment.get(names.ENV_GRACE)
    try:
        plan = codec.decode(TrainingPlan, _text(environment, names.ENV_TRAINING))
    except codec.WireError as error:
        raise SettingsError(f"the environment variable {names.ENV_TRAINING} is wrong: {error}") from None
    return AgentSettings(
        job=_text(environment, names.ENV_JOB),
        job_uid=_text(environment, names.ENV_JOB_UID),
        role=_text(environment, names.ENV_ROLE),
        index=_number(environment, names.ENV_INDEX),
        incarnation=_number(environment, names.ENV_INCARNATION),
        pod_uid=_text(environment, names.ENV_POD_UID),
        address=_text(environment, names.ENV_ADDRESS),
        operator=_text(environment, names.ENV_OPERATOR),
        token_file=_text(environment, names.ENV_TOKEN_FILE),
        ranks=_number(environment, names.ENV_RANKS),
        plan=plan,
        checkpoints=_text(environment, names.ENV_CHECKPOINTS),
        scratch=_text(environment, names.ENV_SCRATCH),
        warm_socket=environment.get(names.ENV_WARM_SOCKET) or None,
        parent_pid=_number(environment, names.ENV_PARENT_PID) if parent else None,
        grace_seconds=_seconds(names.ENV_GRACE, grace) if grace else _DEFAULT_GRACE_SECONDS,
    )


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise SettingsError(f"the environment variable {name} is missing")
    return value


def _number(environment: Mapping[str, str], name: str) -> int:
    value = _text(environment, name)
    if not value.isdigit():
        raise SettingsError(f"the environment variable {name} must be a whole number, not {value!r}")
    return int(value)


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise SettingsError(f"the environment variable {name} must be seconds, not {value!r}")
    return seconds
