"""Make the variables of one rank: what torchrun would set, and where Trainmaster's own files lie.

A user's script sees the same as under torchrun 2.15, except that
the store is always served outside the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional

from trainmaster.wire import names
from trainmaster.wire.messages import Member, Roster

# The agent's own business: a rank needs neither the operator's address nor the token.
PRIVATE = (
    names.ENV_OPERATOR,
    names.ENV_TOKEN_FILE,
    names.ENV_WARM_SOCKET,
    names.ENV_PARENT_PID,
    names.ENV_PRELOAD,
    names.ENV_GRACE,
    names.ENV_THREADS,
    names.ENV_CODE,
    names.ENV_LISTEN,
    names.ENV_PACKAGES,  # these two are of a rank whose script has started this agent
    names.ENV_PLACE,
)


@dataclass(frozen=True)
class RankPlace:
    """RankPlace says which rank of which attempt this is, and where its files are."""

    job_uid: str
    attempt: int
    roster: Roster
    member: Member
    local_rank: int
    agent_store: bool  # False: rank 0 opens the store itself
    interface: Optional[str]
    progress_file: str
    error_file: str
    stacks_file: str
    roster_file: str
    memory_folder: str = ""
    imports_file: str = ""


def rank_environment(base: Mapping[str, str], place: RankPlace) -> Dict[str, str]:
    """Return `base` (the agent's own environment, with the user's variables) with the rank's variables."""
    environment = {name: value for name, value in base.items() if name not in PRIVATE}
    environment.update(_torchrun(place))
    environment.update(_trainmaster(place))
    # The user may set these variables otherwise.
    defaults = {"OMP_NUM_THREADS": base.get(names.ENV_THREADS, "1"), "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if place.interface is not None:
        defaults["GLOO_SOCKET_IFNAME"] = place.interface
        defaults["NCCL_SOCKET_IFNAME"] = f"={place.interface}"  # exactly this one: NCCL matches prefixes otherwise
    for name, value in defaults.items():
        environment.setdefault(name, value)
    return environment


def differing(place: RankPlace) -> List[str]:
    """Return the names of the variables in which ranks and attempts differ."""
    return [*_torchrun(place), *_trainmaster(place)]


def _torchrun(place: RankPlace) -> Dict[str, str]:
    roster, member = place.roster, place.member
    colleagues = [other for other in roster.members if other.role == member.role]
    before = sum(other.ranks for other in colleagues[: colleagues.index(member)])
    values = {
        "RANK": member.first_rank + place.local_rank,
        "WORLD_SIZE": roster.world_size,
        "LOCAL_RANK": place.local_rank,
        "LOCAL_WORLD_SIZE": member.ranks,
        "GROUP_RANK": roster.members.index(member),
        "GROUP_WORLD_SIZE": len(roster.members),
        "ROLE_RANK": before + place.local_rank,
        "ROLE_WORLD_SIZE": sum(other.ranks for other in colleagues),
        "ROLE_NAME": member.role,
        "MASTER_ADDR": roster.rendezvous_address,
        "MASTER_PORT": roster.rendezvous.port,
        "TORCHELASTIC_RUN_ID": f"{place.job_uid}-{place.attempt}",
        "TORCHELASTIC_RESTART_COUNT": place.attempt - 1,
        "TORCHELASTIC_MAX_RESTARTS": place.attempt - 1,  # the budget is the operator's; no script should act on it
        "TORCHELASTIC_USE_AGENT_STORE": place.agent_store,
        names.ENV_ERROR_FILE: place.error_file,
    }
    return {name: str(value) for name, value in values.items()}


def _trainmaster(place: RankPlace) -> Dict[str, str]:
    doubted = place.roster.doubted_attempt
    return {
        names.ENV_ATTEMPT: str(place.attempt),
        names.ENV_PROGRESS_FILE: place.progress_file,
        names.ENV_STACKS_FILE: place.stacks_file,
        names.ENV_ROSTER: place.roster_file,
        names.ENV_MEMORY: place.memory_folder,
        **({names.ENV_IMPORTS: place.imports_file} if place.imports_file else {}),
        names.ENV_RESUME_BEFORE: "" if place.roster.resume_before is None else str(place.roster.resume_before),
        **({names.ENV_DOUBTED_ATTEMPT: str(doubted)} if doubted is not None else {}),
    }
