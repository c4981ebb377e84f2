"""Define spec.training.code and spec.training.packages: what is brought into a pod that its image does not have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainmaster.api.model import FigureName, Model, Name, Place
from trainmaster.api.policies import ClaimReference

_Digest = Annotated[str, Field(min_length=64, max_length=64)]
_Commit = Annotated[str, Field(min_length=1, max_length=64)]


class CodeBundle(Model):
    """Code that `trainmaster submit` has packed and sent. The agent of each pod verifies it and unpacks it."""

    sha256: _Digest
    """The SHA-256 of the archive, before it was compressed. The same files have the same one on any machine."""
    config_maps: Annotated[tuple[Name, ...], Field(strict=False, min_length=1, max_length=16)]
    """ConfigMaps in the job's namespace with the parts of the archive (tar.gz), in order, each under the key part."""
    commit: _Commit | None = None
    """The git commit that was checked out."""
    dirty: bool = False
    """`dirty` is true if the folder differed from that commit."""


class CodeUrl(Model):
    """An archive (.tar.gz or .tar) of at most 128 MiB, packed and unpacked; `submit --code-url` makes one."""

    address: Place
    """Where it lies: s3://bucket/folder/file, https://..., http://..., or file:///... on a volume that is mounted."""
    sha256: _Digest
    """The SHA-256 of the file, as sha256sum prints it. Another file is never unpacked."""
    endpoint: Place | None = None
    """The server of s3://, for example http://minio.storage:9000. Unset: Amazon's."""
    secret_name: Name | None = None
    """A Secret in the job's namespace: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://, username and password \
for https://. Unset, and on a laptop: the variables of these names, and ~/.netrc. The program that trains does not see \
it."""
    commit: _Commit | None = None
    """The git commit that was checked out, as `trainmaster submit` says."""
    dirty: bool = False
    """`dirty` is true if the folder differed from that commit."""


class CodeGit(Model):
    """A commit of a repository, which each agent brings over HTTP. No image needs git for it."""

    repository: Place
    """Its URL, for example https://github.com/me/pictures.git."""
    commit: Annotated[str, Field(min_length=40, max_length=40)]
    """The commit, all 40 digits: a branch would be another code tomorrow."""
    secret_name: Name | None = None
    """A Secret in the job's namespace with the keys username and password (a token is a password). Unset, and on a \
laptop: ~/.netrc. The program that trains does not see it."""


class CodeImage(Model):
    """An image whose files are the code, mounted read-only. Needs Kubernetes 1.35 (1.33 with the gate ImageVolume)."""

    reference: Place
    """The image with its digest: registry/code@sha256:... A tag could be another code tomorrow."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """`pullPolicy` says when the node asks the registry. Unset: IfNotPresent."""


class Code(Model):
    """The code that is not in the image comes from here. Set exactly one of the members."""

    bundle: CodeBundle | None = None
    """A bundle of files in ConfigMaps of the job, made by `trainmaster submit`. On a laptop it is not used: the \
folder of this file has the code."""
    url: CodeUrl | None = None
    """An archive in an object store, on a web server or on a volume."""
    git: CodeGit | None = None
    """A commit of a git repository."""
    image: CodeImage | None = None
    """An image as a volume. On a laptop it is not used: the folder of this file has the code."""


class Wheels(Model):
    """pip installs from a folder with wheels alone: no index is asked. Set exactly one of the members."""

    persistent_volume_claim: ClaimReference | None = None
    """A PersistentVolumeClaim with the wheels at its top, mounted read-only. On a laptop it is not there, and the \
index is asked."""
    path: Place | None = None
    """An absolute path that is there already: a mount of your own volumes, or a folder on a laptop."""


class Packages(Model):
    """Python packages that pip installs into each pod before anything starts; those of the image stay as they are."""

    names: Annotated[tuple[FigureName, ...], Field(strict=False, min_length=1, max_length=64)] | None = None
    """Packages with their versions, for example timm==1.0.19. What they need and the image has already is not \
installed again."""
    requirements: Place | None = None
    """A file of requirements in the code, for example requirements.txt; relative to workingDirectory."""
    wheels: Wheels | None = None
    """`wheels` is where wheels lie. Unset: the index that PIP_INDEX_URL in workers.env says (valueFrom a Secret if it \
has a password), else PyPI."""
