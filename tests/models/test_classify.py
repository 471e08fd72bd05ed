from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from loopctl.errors import (
    AuthError,
    BadRequestError,
    ContextOverflowError,
    ModelError,
    NotFoundError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from loopctl.models.classify import read_error, read_response, to_error
from loopctl.models.waits import retry_after

OVERFLOW, BAD = ContextOverflowError, BadRequestError
NOW = datetime.datetime(2026, 11, 28, 12, 0, 0, tzinfo=datetime.UTC)


def error(status: int, body: Any = None, headers: dict[str, str] | None = None) -> ModelError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
    upstream = read_response(status, headers or {}, data, now=NOW)
    return to_error(upstream, provider="acme", model="m")


@pytest.mark.parametrize(
    ("status", "kind", "again"),
    [
        (301, NotFoundError, False),
        (400, BadRequestError, False),
        (401, AuthError, False),
        (402, QuotaError, False),
        (403, AuthError, False),
        (404, NotFoundError, False),
        (405, BadRequestError, False),
        (408, ServerError, True),
        (409, ServerError, True),
        (413, BadRequestError, False),
        (422, BadRequestError, False),
        (425, ServerError, True),
        (429, RateLimitError, True),
        (498, OverloadedError, True),
        (500, ServerError, True),
        (502, ServerError, True),
        (503, OverloadedError, True),
        (520, ServerError, True),
        (524, ServerError, True),
        (529, OverloadedError, True),
        (599, ServerError, True),
    ],
)
def test_a_status_alone_is_enough(status: int, kind: type[ModelError], again: bool) -> None:
    """MOD-11, E4: 408, 409, 425, 429 and every 5xx may be tried again, other 4xx never."""
    for body in (b"", b"<html>oops</html>", {"error": {"message": "m"}}):
        found = error(status, body)
        assert type(found) is kind
        assert found.recoverable is again
        assert (found.provider, found.model, found.status) == ("acme", "m", status)


def wrapped(message: str = "m", **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, wrapped(code="insufficient_quota"), QuotaError),
        (402, wrapped(type="billing_error"), QuotaError),
        (
            429,
            wrapped(
                type="rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}
            ),
            QuotaError,
        ),
        (400, wrapped("Your credit balance is too low", type="invalid_request_error"), QuotaError),
        (400, wrapped("input length and `max_tokens` exceed context limit: 9 + 9 > 9"), OVERFLOW),
        (400, wrapped("prompt is too long: 210000 tokens > 200000 maximum"), OVERFLOW),
        (413, wrapped("Request exceeds the maximum size", type="request_too_large"), BAD),
        (429, wrapped(type="insufficient_quota", code="billing_hard_limit_reached"), QuotaError),
        (429, wrapped(type="exceeded_current_quota_error"), QuotaError),
        (429, wrapped(code="1113"), QuotaError),
        (429, wrapped(code="1305"), OverloadedError),
        (429, wrapped(code="1302"), RateLimitError),
        (429, wrapped(type="engine_overloaded_error"), OverloadedError),
        (400, wrapped("Incorrect API key provided: sk-abc"), AuthError),
        (200, wrapped(code=402), QuotaError),
        (200, wrapped(code=529), OverloadedError),
        (200, wrapped(type="server_error"), ServerError),
        (200, wrapped(type="rate_limit_error"), RateLimitError),
        (200, wrapped(code="invalid_api_key"), AuthError),
        (200, wrapped(metadata={"error_type": "provider_overloaded"}), OverloadedError),
        (200, wrapped("The server is overloaded"), OverloadedError),
        (400, {"detail": [{"msg": "extra field"}]}, BadRequestError),
        (400, {"object": "error", "message": "m", "type": "BadRequestError"}, BadRequestError),
    ],
)
def test_the_body_says_more_than_the_status(status: int, body: Any, kind: type[ModelError]) -> None:
    """MOD-11: money is never waited for; overloads and keys have several names."""
    assert type(error(status, body)) is kind


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, wrapped(code="context_length_exceeded")),
        (400, wrapped("This model's maximum context length is 8192 tokens.")),
        (400, wrapped("Your input exceeds the context window of this model.")),
        (400, wrapped(type="exceed_context_size_error", n_prompt_tokens=9000, n_ctx=4096)),
        (422, wrapped(code="3051")),
        (413, wrapped("Please reduce the length of the messages or completion.")),
        (400, wrapped("Input token length too long")),
        (400, wrapped("Current length is 9000 while limit is 8192")),
        (200, wrapped("greater than the context length")),
        (400, wrapped(metadata={"error_type": "context_length_exceeded"})),
    ],
)
def test_overflow_is_known_by_each_providers_own_shape(status: int, body: Any) -> None:
    """MOD-12: status, code and wording."""
    assert type(error(status, body)) is ContextOverflowError


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, wrapped("Rate limit: 30000 tokens per minute"), RateLimitError),
        (413, wrapped("reduce the length of the messages: tokens per minute"), BadRequestError),
        (400, wrapped(code="string_above_max_length"), BadRequestError),
        (401, wrapped("maximum context length"), AuthError),
        (400, wrapped("max_tokens is too large"), BadRequestError),
    ],
)
def test_nothing_else_is_overflow(status: int, body: Any, kind: type[ModelError]) -> None:
    """MOD-12: rate limits and long fields are not the window."""
    assert type(error(status, body)) is kind


def test_overflow_carries_its_figures() -> None:
    """MOD-12: as far as the provider states them."""
    found = error(
        400, wrapped("maximum context length is 8192 tokens. However, you requested 9,001 tokens")
    )
    assert isinstance(found, ContextOverflowError)
    assert (found.used, found.limit) == (9001, 8192)
    found = error(400, wrapped(type="exceed_context_size_error", n_prompt_tokens=90, n_ctx=40))
    assert isinstance(found, ContextOverflowError)
    assert (found.used, found.limit) == (90, 40)


def test_an_error_keeps_what_the_provider_said_without_secrets() -> None:
    """MOD-11: bounded, with request id and code."""
    found = error(
        400,
        wrapped("bad key sk-abcdefghijklmnop " + "x" * 5000, code="unsupported_value"),
        {"x-request-id": "req-1"},
    )
    assert (found.request_id, found.code) == ("req-1", "unsupported_value")
    assert "abcdefghijklmnop" not in str(found)
    assert len(found.upstream) <= 2000


def test_refused_content_is_told_from_a_refused_call() -> None:
    """MOD-13: filters that answer with a status."""
    assert read_error(wrapped(code="content_filter"), status=400).refused
    assert read_error(wrapped(metadata={"flagged_input": "x"}), status=403).refused
    assert not read_error(wrapped(code="unsupported_value"), status=400).refused


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "abc"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Sat, 28 Nov 2026 12:00:10 GMT"}, 10.0),
        ({"retry-after": "Sat, 28 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Sat, 28 Nov 2026 12:00:10"}, 10.0),
        ({"retry-after": "Sat, 99 Nov 2026 12:00:10 GMT"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ],
)
def test_every_form_of_retry_after_is_read(headers: dict[str, str], expected: float | None) -> None:
    """E1, MOD-14: seconds, decimals, dates; never negative; rubbish is as none."""
    assert retry_after(headers, NOW) == expected


REQUESTS, TOKENS = "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"
SPENT = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "5000"}
OWN = "anthropic-ratelimit-"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({REQUESTS: "12ms"}, 0.012),
        ({REQUESTS: "6m0s"}, 360.0),
        ({REQUESTS: "1h2m3.5s"}, 3723.5),
        ({REQUESTS: "1d"}, 86_400.0),
        ({REQUESTS: "7.66s", TOKENS: "2m59.56s"}, 7.66),
        ({**SPENT, REQUESTS: "2m", TOKENS: "1s"}, 120.0),
        ({**SPENT, "x-ratelimit-remaining-tokens": "0", REQUESTS: "2s", TOKENS: "1s"}, 2.0),
        ({"x-ratelimit-reset": "20"}, 20.0),
        ({"x-ratelimit-reset": "1795867230"}, 30.0),
        ({"x-ratelimit-reset": "1795867230000"}, 30.0),
        ({"x-ratelimit-reset": "1795860000"}, None),
        ({"x-ratelimit-reset": "-1"}, None),
        ({"x-ratelimit-reset": "soon"}, None),
        ({"x-ratelimit-reset": ""}, None),
        ({"x-ratelimit-reset": "nan"}, None),
        ({OWN + "requests-reset": "2026-11-28T12:00:07Z"}, 7.0),
        (
            {
                OWN + "requests-reset": "2026-11-28T12:00:01Z",
                OWN + "tokens-reset": "2026-11-28T12:00:09",
                OWN + "tokens-remaining": "0",
            },
            9.0,
        ),
        ({"retry-after": "3", REQUESTS: "9s"}, 3.0),
        ({"retry-after": "abc", REQUESTS: "9s"}, 9.0),
    ],
)
def test_the_reset_of_a_rate_limit_is_a_wait_where_none_is_asked_for(
    headers: dict[str, str], expected: float | None
) -> None:
    """E1, MOD-14: durations, numbers and moments; of the limit that is spent, if that is said."""
    found = retry_after(headers, NOW, limited=True)
    assert found == (None if expected is None else pytest.approx(expected))
    told = error(429, {"error": {"message": "m"}}, headers).retry_after
    assert told == (None if expected is None else pytest.approx(expected))


def test_a_reset_says_nothing_where_no_limit_was_hit() -> None:
    """E1: every response carries these headers."""
    assert error(500, None, {REQUESTS: "6m0s"}).retry_after is None


def test_a_call_that_its_own_server_could_not_read_is_tried_again() -> None:
    """MOD-11, MOD-14: Groq's tool_use_failed, a 400, and in a stream; with what the model wrote."""
    said = {"message": "Failed", "type": "invalid_request_error", "code": "tool_use_failed"}
    body = {"error": {**said, "failed_generation": "<function=add>"}}
    for found in (error(400, body), to_error(read_error(body), provider="groq", model="m")):
        assert type(found) is ServerError
        assert found.recoverable
        assert "<function=add>" in str(found)


def test_a_date_thousands_of_years_away_is_only_long() -> None:
    """E1: the cap is the policy's."""
    found = retry_after({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, NOW)
    assert found is not None
    assert found > 1e9


def google(status: int, name: str, text: str = "m", *details: dict[str, Any]) -> ModelError:
    """An error as Google's APIs say it, in a list as they sometimes do."""
    said = {"code": status, "message": text, "status": name, "details": list(details)}
    found = error(status, {"error": said})
    assert str(error(status, [{"error": said}])) == str(found)
    in_stream = to_error(read_error({"error": said}), provider="acme", model="m")
    assert type(in_stream) is type(found)
    return found


BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
TOO_LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    ("status", "name", "text", "details", "kind"),
    [
        (400, "INVALID_ARGUMENT", "m", [], BadRequestError),
        (400, "INVALID_ARGUMENT", "API key not valid.", [BAD_KEY], AuthError),
        (400, "FAILED_PRECONDITION", "not in your region", [], BadRequestError),
        (400, "INVALID_ARGUMENT", TOO_LONG, [], ContextOverflowError),
        (500, "INTERNAL", TOO_LONG, [], ContextOverflowError),
        (401, "UNAUTHENTICATED", "m", [], AuthError),
        (402, "RESOURCE_EXHAUSTED", "prepaid credit is gone", [], QuotaError),
        (403, "PERMISSION_DENIED", "m", [], AuthError),
        (404, "NOT_FOUND", "m", [], NotFoundError),
        (429, "RESOURCE_EXHAUSTED", "m", [], RateLimitError),
        (429, "RESOURCE_EXHAUSTED", "Quota exceeded, limit: 0, model: m", [], QuotaError),
        (429, "RESOURCE_EXHAUSTED", "Quota exceeded, limit: 0.5", [], RateLimitError),
        (500, "INTERNAL", "m", [], ServerError),
        (503, "UNAVAILABLE", "The model is overloaded.", [], OverloadedError),
        (504, "DEADLINE_EXCEEDED", "m", [], ServerError),
    ],
)
def test_the_errors_of_google(
    status: int, name: str, text: str, details: list[dict[str, Any]], kind: type[ModelError]
) -> None:
    """MOD-11, MOD-12, B6: by its names and their details, with a status and in a stream."""
    found = google(status, name, text, *details)
    assert type(found) is kind
    assert found.code == name.lower()
    if isinstance(found, ContextOverflowError):
        assert (found.used, found.limit) == (1_200_000, 1_048_576)


@pytest.mark.parametrize(
    ("delay", "seconds"), [("14s", 14.0), ("0.25s", 0.25), ("soon", None), (3, None), ("-1s", None)]
)
def test_google_asks_for_a_wait_in_the_details(delay: Any, seconds: float | None) -> None:
    """E1: RetryInfo; a header counts more."""
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    assert google(429, "RESOURCE_EXHAUSTED", "m", retry).retry_after == seconds
    body = {"error": {"code": 429, "details": [retry]}}
    assert error(429, body, {"retry-after": "2"}).retry_after == 2.0


def test_a_quota_of_the_day_is_not_waited_for() -> None:
    """MOD-11: a limit of the minute is, a limit of the day comes back tomorrow."""

    def failure(*quotas: str) -> dict[str, Any]:
        kind = "type.googleapis.com/google.rpc.QuotaFailure"
        return {"@type": kind, "violations": [{"quotaId": quota} for quota in quotas]}

    minute, day = "GenerateRequestsPerMinutePerProject", "GenerateRequestsPerDayPerProject-FreeTier"
    found = google(429, "RESOURCE_EXHAUSTED", "m", failure(minute))
    assert type(found) is RateLimitError
    found = google(429, "RESOURCE_EXHAUSTED", "m", failure(minute, day))
    assert type(found) is QuotaError


def test_a_request_id_is_found_in_headers_and_body() -> None:
    """MOD-11: under the names that providers give it."""
    body = {"type": "error", "error": {"type": "api_error", "message": "m"}, "request_id": "body"}
    assert error(500, body).request_id == "body"
    assert error(500, body, {"request-id": "header"}).request_id == "header"
    assert error(500, body, {"x-request-id": "x", "request-id": "header"}).request_id == "x"


AWS = [
    ("ValidationException", 400, "Input is too long for requested model.", OVERFLOW),
    ("ValidationException", 400, "prompt is too long: 9 tokens > 8 maximum", OVERFLOW),
    ("ValidationException", 400, "Too many input tokens. Max: 8, got: 9", OVERFLOW),
    ("ValidationException", 400, "expected maxLength: 50000, actual: 50001", OVERFLOW),
    ("ValidationException", 400, "expected maxLength: 64, actual: 65", BAD),
    ("ValidationException", 400, "The provided model identifier is invalid.", BAD),
    ("AccessDeniedException", 403, "no access to the model", AuthError),
    ("ExpiredTokenException", 403, "The security token is expired", AuthError),
    ("ResourceNotFoundException", 404, "m", NotFoundError),
    ("ModelTimeoutException", 408, "m", ServerError),
    ("ModelErrorException", 424, "m", BAD),
    ("ThrottlingException", 429, "Too many input tokens, please wait", RateLimitError),
    ("ModelNotReadyException", 429, "m", RateLimitError),
    ("ServiceQuotaExceededException", 400, "m", QuotaError),
    ("InternalServerException", 500, "m", ServerError),
    ("ServiceUnavailableException", 503, "m", OverloadedError),
]


@pytest.mark.parametrize(("name", "status", "text", "kind"), AWS)
def test_aws_names_an_error_in_a_header_or_in_the_body(
    name: str, status: int, text: str, kind: type[ModelError]
) -> None:
    """MOD-11, MOD-12: with what may follow the name; its wordings mean overflow only there."""
    headers = {"x-amzn-errortype": f"{name}:http://internal/", "x-amzn-requestid": "req-1"}
    told = error(status, {"message": text}, headers)
    assert type(told) is kind
    assert (told.upstream, told.code, told.request_id) == (text, name.lower(), "req-1")
    told = error(status, {"__type": f"com.amazon.coral#{name}", "Message": text})
    assert (type(told), told.upstream, told.code) == (kind, text, name.lower())
    if kind is OVERFLOW and "prompt" not in text:
        assert type(error(status, {"message": text})) is BAD


def test_what_a_model_said_to_bedrock_counts() -> None:
    """MOD-11: a model's own 5xx, handed on as 424, may be tried again."""
    name = {"x-amzn-errortype": "ModelErrorException"}
    assert type(error(424, {"message": "m", "originalStatusCode": 500}, name)) is ServerError
    assert type(error(424, {"message": "m", "originalStatusCode": 400}, name)) is BAD
