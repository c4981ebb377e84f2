"""Ask web servers for bytes, within bounds: what may come later and what never will are told apart.

Standard library only. Passwords go to the host that they are for and to no other, wherever it redirects.
"""

from __future__ import annotations

import base64
import http.client
import netrc
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional

from trainmaster.wire.bundle import BundleError
from trainmaster.wire.printable import printable
from trainmaster.wire.sources import Secrets, SourceUnavailableError

SECONDS = 30.0  # without a byte
_CHUNK = 1 << 20
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})  # an answer that another try may change
_CLOSED = frozenset({401, 403})
_SHOWN = 300


class Answer(NamedTuple):
    """An answer is what a server sent, and the address that sent it, after redirections."""

    data: bytes
    address: str


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Follow a redirection without password to another host, and never from https to http."""

    def redirect_request(  # noqa: PLR0917  as urllib has it
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Optional[urllib.request.Request]:
        before, after = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if after.scheme not in ("http", "https") or (before.scheme == "https" and after.scheme != "https"):
            raise BundleError(
                f"{shown(req.full_url)} redirects to {shown(newurl)}, and only https is followed from https"
            )
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and before.netloc != after.netloc:
            made.remove_header("Authorization")
        return made


def shown(address: str) -> str:
    """Return an address as logs and messages show it: without user, password and query, which may be secret."""
    parts = urllib.parse.urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return printable(urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", "")), _SHOWN)


def basic(address: str, secrets: Secrets) -> Mapping[str, str]:
    """Return the headers with user name and password for this address: of the Secret, else of ~/.netrc."""
    user, password = secrets.keys.get("username", ""), secrets.keys.get("password", "")
    if not password:
        user, password = _of_netrc(urllib.parse.urlsplit(address).hostname or "")
    if not password:
        return {}
    pair = base64.b64encode(f"{user or 'git'}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def _of_netrc(host: str) -> tuple[str, str]:
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    try:
        found = netrc.netrc(str(path)).authenticators(host)
    except (OSError, netrc.NetrcParseError, UnicodeError):
        return "", ""
    return (found[0] or "", found[2] or "") if found else ("", "")


def ask(
    address: str, most: int, headers: Mapping[str, str], body: Optional[bytes] = None, method: Optional[str] = None
) -> Answer:
    """Return the answer to a request, of at most so many bytes.

    Raises:
        BundleError: the server refuses, or it sends more: another try would change nothing.
        UnavailableError: it cannot be reached, or does not answer in full.
    """
    request = urllib.request.Request(address, body, dict(headers), method=method)  # noqa: S310  see _opener
    try:
        with _opener().open(request, timeout=SECONDS) as opened:
            return Answer(_read(opened, most, address), opened.geturl())
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(error, address) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise BundleError(f"the certificate of {shown(address)} is not valid here: {error.reason}") from None
        raise SourceUnavailableError(f"{shown(address)} cannot be reached: {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        why = printable(str(error), _SHOWN) or type(error).__name__
        raise SourceUnavailableError(f"{shown(address)} does not answer in full: {why}") from None
    except ValueError as error:  # of http.client, on what is no address
        raise BundleError(f"{shown(address)} is no address: {printable(str(error), _SHOWN)}") from None


def _opener() -> urllib.request.OpenerDirector:
    """Return what opens http and https only: no file and no ftp, which urllib knows as well."""
    made = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Redirections(),
    ):
        made.add_handler(handler)
    return made


def _read(opened: Any, most: int, address: str) -> bytes:
    parts, length = [], 0
    while True:
        part = opened.read(_CHUNK)
        if not part:
            break
        parts.append(part)
        length += len(part)
        if length > most:
            raise BundleError(f"{shown(address)} has more than {most >> 20} MiB")
    if opened.length:  # bytes that were promised: `read` with a size does not complain
        raise SourceUnavailableError(f"{shown(address)} does not answer in full: {opened.length} bytes are missing")
    return b"".join(parts)


def _refusal(error: urllib.error.HTTPError, address: str) -> Exception:
    said = f"{shown(address)} answers {error.code} {printable(str(error.reason), _SHOWN)}"
    if error.code in _LATER:
        return SourceUnavailableError(said)
    if error.code in _CLOSED:
        return BundleError(f"{said}: name a Secret that opens it in secretName, or look at the one that is named")
    if error.code == 404:  # noqa: PLR2004 as HTTP has it
        return BundleError(f"{said}: it is not there, or not for who asks without the right secretName")
    return BundleError(said)
