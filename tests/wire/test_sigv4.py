from __future__ import annotations

import datetime
import itertools
from typing import Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from loopctl.wire.sigv4 import AwsCredentials, sign

NOW = datetime.datetime(2026, 11, 30, 23, 59, 59, tzinfo=datetime.UTC)
HOST = "https://bedrock-runtime.us-east-1.amazonaws.com"
ARN = "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.anthropic.claude"


def ours(method: str, url: str, headers: dict[str, str], body: bytes, **who: Any) -> dict[str, str]:
    credentials = AwsCredentials(access_key="AKID", secret_key=who.pop("secret", "s/+=e"), **who)
    return sign(
        credentials,
        region="eu-central-1",
        service="bedrock",
        now=NOW,
        method=method,
        url=url,
        headers=headers,
        body=body,
    )


def theirs(
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    url: str,
    headers: dict[str, str],
    body: bytes,
    *,
    secret: str = "s/+=e",
    session_token: str | None = None,
) -> dict[str, str]:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW)
    request = AWSRequest(method, url, dict(headers), body)
    credentials = Credentials("AKID", secret, session_token)
    botocore.auth.SigV4Auth(credentials, "bedrock", "eu-central-1").add_auth(request)
    names = ("X-Amz-Date", "X-Amz-Security-Token", "Authorization")
    return {name.lower(): request.headers[name] for name in names if name in request.headers}


URLS = [
    HOST,
    f"{HOST}/",
    f"{HOST}/model/anthropic.claude-sonnet-5-5/converse",
    f"{HOST}/model/amazon.nova-pro-v1%3A0/converse-stream",
    f"{HOST}/model/amazon.nova-pro-v1:0/converse",
    f"{HOST}/model/{ARN}/converse",
    f"{HOST}/a%20b/%E4%BD%A0/~x_y-z.w/$@!,(c)*;=+&'/%25/%zz",
    f"{HOST}//a/./b/../c//",
    f"{HOST}/..",
    f"{HOST}/foundation-models?byProvider=Anthropic&a=&b&a=2&a=1&c=%20%2F",
    f"{HOST}/x?q=a=b&Q=1&empty=&z",
    "https://HOST.example:443/x",
    "http://host.example:80/x",
    "https://host.example:80/x",
    "http://127.0.0.1:8080/x?y=1",
    "http://[::1]:8080/x",
    "https://[2001:db8::1]/x",
    "https://user:pass@host.example/x",
]
HEADERS: list[dict[str, str]] = [
    {},
    {"Content-Type": "application/json", "Accept": "application/json"},
    {
        "X-Team": "  many   spaces \t here ",
        "User-Agent": "x",
        "Connection": "keep-alive",
        "x-amzn-trace-id": "1",
        "traceparent": "0",
        "host": "other.example",
        "a": "",
    },
    {"X-Amz-Date": "20000101T000000Z", "authorization": "Bearer old", "X-Amz-Security-Token": "o"},
]


@pytest.mark.parametrize("token", [None, "IQoJ/+token=="])
@pytest.mark.parametrize("url", URLS)
def test_a_signature_is_that_of_the_official_library(
    url: str, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MOD-19: paths, encoded ones too, queries, hosts, headers, bodies, session tokens."""
    for headers, method, body in itertools.product(
        HEADERS, ("POST", "get"), (b"", b'{"a":"\xff"}')
    ):
        if token is None and "X-Amz-Security-Token" in headers:
            continue  # theirs would sign the old one
        made = ours(method, url, headers, body, session_token=token)
        assert made == theirs(monkeypatch, method, url, headers, body, session_token=token)


@given(
    path=st.text("abc019-._~:/%?&= +*'()$!@,;é", max_size=40),
    value=st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=20),
    secret=st.text(max_size=20),
    body=st.binary(max_size=50),
)
def test_any_request_is_signed_as_the_official_library_does(
    path: str, value: str, secret: str, body: bytes
) -> None:
    """MOD-19: whatever a path, a header or a key holds."""
    url, headers = f"{HOST}/{path}", {"x-a": value}
    secret = secret.encode(errors="replace").decode()
    with pytest.MonkeyPatch.context() as patch:
        expected = theirs(patch, "POST", url, headers, body, secret=secret or "s")
    assert ours("POST", url, headers, body, secret=secret or "s") == expected


def test_the_moment_is_the_callers_in_any_zone() -> None:
    """MOD-19, ENG-29: the same instant gives the same signature."""
    east = NOW.astimezone(datetime.timezone(datetime.timedelta(hours=5)))
    credentials = AwsCredentials(access_key="a", secret_key="b")
    made = [
        sign(
            credentials,
            region="r",
            service="s",
            now=moment,
            method="POST",
            url=HOST,
            headers={},
            body=b"",
        )
        for moment in (NOW, east)
    ]
    assert made[0] == made[1]
    assert made[0]["x-amz-date"] == "20261130T235959Z"


def test_credentials_do_not_show_their_secrets() -> None:
    """MOD-11: not in a log or a traceback."""
    shown = repr(AwsCredentials(access_key="AKID", secret_key="hush", session_token="quiet"))
    assert "AKID" in shown
    assert "hush" not in shown
    assert "quiet" not in shown
