"""Manifests that somebody has changed who knows how they are signed."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def signed(plain: dict[str, Any]) -> bytes:
    """The text of a manifest with this content, and the right digest."""
    text = json.dumps({**plain, "digest": ""}, sort_keys=True, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**plain, "digest": digest}, sort_keys=True, indent=1).encode()
