"""Hold the rules on spec.training.code and spec.training.packages: what is brought into a pod."""

from __future__ import annotations

import re

from trainmaster.api.rules.rule import Rule, absolute, named, shaped

_CODE, _PACKAGES = "spec.training.code", "spec.training.packages"
_HEX = "[0-9a-f]{64}"
# Without user or password, which everybody who reads the job would see, and without anything that is no URL.
_HOST = r"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9a-fA-F:]+\](:[0-9]+)?"
_PATH = "(/[!-~]*)?"
PACKAGE = r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9][A-Za-z0-9.!+_-]*"


RULES = (
    Rule(
        name="code-one",
        where=(_CODE,),
        cel="[has(self.bundle), has(self.url), has(self.git), has(self.image)].filter(one, one).size() == 1",
        holds=lambda code: [code.bundle, code.url, code.git, code.image].count(None) == 3,  # noqa: PLR2004
        message="code comes from one place",
        cure="Set exactly one of bundle, url, git and image",
    ),
    shaped(
        "sha256-form",
        (f"{_CODE}.bundle",),
        "sha256",
        _HEX,
        message="sha256 is not 64 hexadecimal digits in lower case",
        cure="Have trainmaster submit make the bundle, and change nothing in it",
    ),
    shaped(
        "code-url-sha256",
        (f"{_CODE}.url",),
        "sha256",
        _HEX,
        message="sha256 is not 64 hexadecimal digits in lower case",
        cure="Write what sha256sum prints of the file",
    ),
    shaped(
        "code-url-address",
        (f"{_CODE}.url",),
        "address",
        f"s3://[A-Za-z0-9.-]+/[!-~]+|https?://({_HOST}){_PATH}|file:///[!-~]+",
        message="address is not where an archive can lie, or it has a user or a password in it",
        cure="Write s3://bucket/folder/file, https://host/file or file:///folder/file, and name a Secret in secretName",
    ),
    shaped(
        "code-url-endpoint",
        (f"{_CODE}.url",),
        "endpoint",
        f"https?://({_HOST}){_PATH}",
        message="endpoint is not the URL of a server",
        cure="Write it like http://minio.storage:9000",
    ),
    named("code-url-secret", (f"{_CODE}.url",), "secretName"),
    shaped(
        "code-git-repository",
        (f"{_CODE}.git",),
        "repository",
        f"https?://({_HOST})/[!-~]+",
        message="repository is not an http or https URL, or it has a user or a password in it",
        cure="Write https://host/path.git, and name a Secret with username and password in secretName",
    ),
    shaped(
        "code-git-commit",
        (f"{_CODE}.git",),
        "commit",
        "[0-9a-f]{40}",
        message="commit is not the 40 hexadecimal digits of a commit",
        cure="Write what git rev-parse HEAD prints",
    ),
    named("code-git-secret", (f"{_CODE}.git",), "secretName"),
    shaped(
        "code-image-digest",
        (f"{_CODE}.image",),
        "reference",
        f"[a-z0-9][A-Za-z0-9._:/-]*@sha256:{_HEX}",
        message="reference is not an image with its digest",
        cure="Write registry/name@sha256:..., as docker inspect or crane digest prints it",
    ),
    Rule(
        name="packages-some",
        where=(_PACKAGES,),
        cel="has(self.names) || has(self.requirements)",
        holds=lambda packages: packages.names is not None or packages.requirements is not None,
        message="packages names none",
        cure="Set names, requirements or both",
    ),
    Rule(
        name="package-form",
        where=(_PACKAGES,),
        field="names",
        cel=f"!has(self.names) || self.names.all(one, one.matches(r'^(?:{PACKAGE})$'))",
        holds=lambda packages: all(re.fullmatch(PACKAGE, one) for one in packages.names or ()),
        message="names has what is no package with its version",
        cure="Write each like timm==1.0.19; options, markers and other addresses go into a file, named in requirements",
    ),
    Rule(
        name="requirements-path",
        where=(_PACKAGES,),
        field="requirements",
        cel="!has(self.requirements) || !(self.requirements.startsWith('-') || self.requirements.startsWith('/')"
        " || self.requirements.contains('..') || self.requirements.contains(':'))",
        holds=lambda packages: (
            packages.requirements is None
            or (
                not (packages.requirements.startswith(("-", "/")) or ".." in packages.requirements)
                and ":" not in packages.requirements
            )
        ),
        message="requirements is not a file in the code",
        cure="Write its path from the top of the code, for example requirements.txt",
    ),
    Rule(
        name="wheels-one",
        where=(f"{_PACKAGES}.wheels",),
        cel="has(self.persistentVolumeClaim) != has(self.path)",
        holds=lambda wheels: (wheels.persistent_volume_claim is None) != (wheels.path is None),
        message="wheels lie in one place",
        cure="Set exactly one of persistentVolumeClaim and path",
    ),
    absolute("wheels-path-absolute", (f"{_PACKAGES}.wheels",)),
    named("wheels-claim-name", (f"{_PACKAGES}.wheels.persistentVolumeClaim",), "claimName"),
)
