"""Define from where a job's code comes that is neither in its image nor in ConfigMaps, and which packages it needs.

These are parts of the TrainingPlan. Nothing secret is in them: `Secrets` come by variables of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping, MutableMapping, Optional, Tuple

SECRET_KEYS = ("username", "password", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The keys of the Secret that a source of code may name."""
ENV_SECRET = "TRAINMASTER_CODE_SECRET_"


class SourceUnavailableError(Exception):
    """SourceUnavailableError says that a source does not answer, or not as it should: it may do so later."""


@dataclass(frozen=True)
class UrlSource:
    """Hold where an archive lies, and the SHA-256 of the file."""

    address: str
    sha256: str
    endpoint: Optional[str] = None  # of an object store, if it is not Amazon's


@dataclass(frozen=True)
class GitSource:
    """Hold a repository and a commit of it."""

    repository: str
    commit: str


@dataclass(frozen=True)
class PackageSource:
    """Hold what pip is to install, and a folder with wheels, where it is to ask no index."""

    names: Tuple[str, ...] = ()
    requirements: Optional[str] = None  # a file in the code
    wheels: Optional[str] = None


@dataclass(frozen=True)
class Secrets:
    """Hold what opens a source; `keys` are those of `SECRET_KEYS` that are known. No text shows them."""

    keys: Mapping[str, str]

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> Secrets:
        """Return the secrets among these variables, and take them out; Amazon's usual variables stay."""
        usual = {name: environment[name] for name in SECRET_KEYS if name.isupper() and environment.get(name)}
        given: Dict[str, str] = {}
        for key in SECRET_KEYS:
            value = environment.pop(ENV_SECRET + key, "")
            if value:
                given[key] = value.strip()
        # Keys of one pair belong together: a session token of another pair would spoil them.
        return cls(given if "AWS_ACCESS_KEY_ID" in given else {**usual, **given})

    def __repr__(self) -> str:
        """Return which keys there are, not their values."""
        return f"Secrets({sorted(self.keys)})"
