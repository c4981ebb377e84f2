"""Specs whose code no pod could be given, part of the table in bad_specs.py."""

from __future__ import annotations

from typing import Any

from tests.api.changes import bad as _bad

_PLACE = "training.code.bundle"


def _code(**bundle: Any) -> dict[str, Any]:
    return {"bundle": {"sha256": "a" * 64, "configMaps": ["a"], **bundle}}


CODE = (
    _bad("hash in capitals", "training.code", _code(sha256="A" * 64), "change nothing", at=f"{_PLACE}.sha256"),
    _bad("no hash", "training.code", _code(sha256="a"), "Make it longer", "at least 64", at=f"{_PLACE}.sha256"),
    _bad("no parts", "training.code", _code(configMaps=[]), "is empty", "at least 1", at=f"{_PLACE}.configMaps"),
    _bad("code of nowhere", "training.code", {}, "bundle is missing", "Required value", at=_PLACE),
)
