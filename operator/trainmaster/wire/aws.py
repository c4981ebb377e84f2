"""Sign requests to an object store as S3 has it (AWS Signature Version 4), with the standard library alone."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import os
import urllib.parse
from typing import Dict, Mapping, Optional, Tuple

from trainmaster.wire.bundle import BundleError
from trainmaster.wire.sources import Secrets
from trainmaster.wire.web import Answer, ask, shown

_ALGORITHM = "AWS4-HMAC-SHA256"


def request(
    method: str,
    address: str,
    endpoint: Optional[str],
    secrets: Secrets,
    *,
    most: int = 1 << 20,
    body: bytes = b"",
) -> Answer:
    """Carry out one request on the object s3://bucket/key.

    Raises:
        BundleError: there are no keys, or the store refuses.
        UnavailableError: the store does not answer.
    """
    key, secret = secrets.keys.get("AWS_ACCESS_KEY_ID"), secrets.keys.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        raise BundleError(
            f"there are no keys for {shown(address)}: name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
            "in secretName, or set these variables"
        )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    where = _where(address, endpoint, region)
    token = secrets.keys.get("AWS_SESSION_TOKEN")
    more = {"x-amz-security-token": token} if token else {}
    headers = _signed(method, where, body, keys=(key, secret), region=region, more=more)
    return ask(where, most, headers, body if method == "PUT" else None, method)


def exists(address: str, endpoint: Optional[str], secrets: Secrets) -> bool:
    """Return whether there is such an object that these keys may see."""
    try:
        request("HEAD", address, endpoint, secrets)
    except BundleError:
        return False
    return True


def _where(address: str, endpoint: Optional[str], region: str) -> str:
    bucket, _, key = address.partition("://")[2].partition("/")
    if not bucket or not key:
        raise BundleError(f"{shown(address)} names no object: write s3://bucket/folder/file")
    path = urllib.parse.quote(key, safe="/-_.~")
    if endpoint:
        return f"{endpoint.rstrip('/')}/{bucket}/{path}"
    if "." in bucket:  # no certificate fits such a host
        return f"https://s3.{region}.amazonaws.com/{bucket}/{path}"
    return f"https://{bucket}.s3.{region}.amazonaws.com/{path}"


def _signed(
    method: str, where: str, body: bytes, *, keys: Tuple[str, str], region: str, more: Mapping[str, str]
) -> Dict[str, str]:
    parts = urllib.parse.urlsplit(where)
    time = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    payload = hashlib.sha256(body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": payload, "x-amz-date": time, **more}
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"{method}\n{parts.path}\n{parts.query}\n{lines}\n{names}\n{payload}"
    scope = f"{time[:8]}/{region}/s3/aws4_request"
    to_sign = "\n".join((_ALGORITHM, time, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    signing = f"AWS4{keys[1]}".encode()
    for word in scope.split("/"):
        signing = hmac.digest(signing, word.encode(), "sha256")
    signature = hmac.new(signing, to_sign.encode(), "sha256").hexdigest()
    authorization = f"{_ALGORITHM} Credential={keys[0]}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "Authorization": authorization}
