"""AWS's Signature Version 4 for the headers of a request: pure (MOD-19).

The time comes from the caller; everything else is hashing. The rules are those of every AWS
service but S3: the path is encoded once more as it stands in the address.
"""

from __future__ import annotations

import datetime
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_PORTS = {"http": 80, "https": 443}
_UNSIGNED = frozenset(
    {
        "authorization",
        "baggage",
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "x-amz-date",
        "x-amz-security-token",
        "x-amzn-trace-id",
    }
)
"""Headers that the way may change, and those that signing sets itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AwsCredentials:
    """Who signs. `session_token` belongs to credentials that end after a while."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def sign(
    credentials: AwsCredentials,
    *,
    region: str,
    service: str,
    now: datetime.datetime,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
) -> dict[str, str]:
    """The headers that prove the request: to be sent beside `headers`, which they cover.

    `url` must reach the server as it is written here, and `host`, where `headers` has none, be
    what the address says. `now` has a time zone; the server takes it within five minutes.
    """
    moment = now.astimezone(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": moment}
    if credentials.session_token:
        added["x-amz-security-token"] = credentials.session_token
    signed = {name.lower(): value for name, value in headers.items()}
    signed = {name: value for name, value in signed.items() if name not in _UNSIGNED} | added
    parts = urlsplit(url)
    signed.setdefault("host", _host(url))
    names = sorted(signed)
    canonical = "\n".join(
        [
            method.upper(),
            quote(_normal(parts.path), safe="/~"),
            _query(parts.query),
            *[f"{name}:{' '.join(signed[name].split())}" for name in names],
            "",
            ";".join(names),
            sha256(body).hexdigest(),
        ]
    )
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    text = "\n".join([_ALGORITHM, moment, scope, sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for step in scope.split("/"):
        key = _mac(key, step)
    signature = _mac(key, text).hex()
    added["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope},"
        f" SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return added


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    port = parts.port
    return host if port in (None, _PORTS.get(parts.scheme)) else f"{host}:{port}"


def _normal(path: str) -> str:
    """The path without dot segments and doubled slashes."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    first = "/" if path.startswith("/") or not path else ""
    last = "/" if path.endswith("/") and kept else ""
    return first + "/".join(kept) + last


def _query(query: str) -> str:
    pairs = [pair.partition("=")[::2] for pair in query.split("&")] if query else []
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
