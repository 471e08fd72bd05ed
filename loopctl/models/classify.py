"""What a provider says when it fails becomes one typed error (MOD-11, MOD-12).

The order is: what the body calls it, then the status, then the wording. An error inside a stream
has no status; some providers put one into its `code`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from loopctl import _json
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
from loopctl.models.waits import retry_after
from loopctl.usage import Usage

_OVERFLOW_CODES = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "3051",
        "model_context_window_exceeded",
    }
)
_OVERFLOW_TEXTS = (
    "maximum context length",
    "exceeds the context window",
    "exceeds the available context size",
    "reduce the length of the",
    "greater than the context length",
    "prompt is longer than the context length",
    "input length exceeds the context length",
    "input token length too long",
    "exceeded model token limit",
    "is longer than the model's context length",
    "input tokens exceed the configured limit",
    "[input_too_large]",
    "prompt is too long",
    "exceed context limit",
    "exceeds the maximum number of tokens allowed",
)
_AWS_OVERFLOW_TEXT = re.compile(
    "input is too long|input tokens exceeded|too many input tokens|expected maxlength: [0-9]{4}"
)
"""What a `ValidationException` says of a prompt that is too long; elsewhere it means less."""

_QUOTA_CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "exceeded_current_quota_error",
        "payment_required",
        "billing_error",
        "enforced_spend_limit_reached",
        "contract_spend_limit_reached",
        "servicequotaexceededexception",
        "1113",
        *(str(code) for code in range(1308, 1322)),
    }
)
_OVERLOADED_CODES = frozenset(
    {
        "overloaded_error",
        "server_is_overloaded",
        "engine_overloaded_error",
        "provider_overloaded",
        "slow_down",
        "capacity_exceeded",
        "insufficient_system_resource",
        "1305",
    }
)
_SLIPS = frozenset({"tool_use_failed"})
"""The model wrote a call that its server could not read: another try may well give a reply."""

_REFUSED_CODES = frozenset(
    {
        "bio_policy",
        "content_filter",
        "content_policy_violation",
        "image_content_policy_violation",
        "invalid_prompt",
        "misalignment_policy_violation",
    }
)
_NAMED: dict[str, type[ModelError]] = {
    "rate_limit_exceeded": RateLimitError,
    "rate_limit_error": RateLimitError,
    "rate_limit_reached_error": RateLimitError,
    "too_many_requests": RateLimitError,
    "1302": RateLimitError,
    "invalid_api_key": AuthError,
    "invalid_authentication_error": AuthError,
    "incorrect_api_key_error": AuthError,
    "authentication_error": AuthError,
    "authentication": AuthError,
    "permission_error": AuthError,
    "permission_denied": AuthError,
    "not_found": NotFoundError,
    "not_found_error": NotFoundError,
    "model_not_found": NotFoundError,
    "invalid_request": BadRequestError,
    "invalid_request_error": BadRequestError,
    "badrequesterror": BadRequestError,
    "unprocessable": BadRequestError,
    "data_residency_mismatch": BadRequestError,
    "empty_image_file": BadRequestError,
    "failed_to_download_image": BadRequestError,
    "image_file_not_found": BadRequestError,
    "image_file_too_large": BadRequestError,
    "image_parse_error": BadRequestError,
    "image_too_large": BadRequestError,
    "image_too_small": BadRequestError,
    "invalid_base64_image": BadRequestError,
    "invalid_image": BadRequestError,
    "invalid_image_format": BadRequestError,
    "invalid_image_mode": BadRequestError,
    "invalid_image_url": BadRequestError,
    "unsupported_image_media_type": BadRequestError,
    "payload_too_large": BadRequestError,
    "request_too_large": BadRequestError,
    "invalid_argument": BadRequestError,
    "failed_precondition": BadRequestError,
    "server_error": ServerError,
    "resource_exhausted": RateLimitError,
    "unauthenticated": AuthError,
    "unavailable": OverloadedError,
    "accessdeniedexception": AuthError,
    "resourcenotfoundexception": NotFoundError,
    "serviceunavailableexception": OverloadedError,
    "throttlingexception": RateLimitError,
    "validationexception": BadRequestError,
}
_STATUSES: dict[int, type[ModelError]] = {
    401: AuthError,
    402: QuotaError,
    403: AuthError,
    404: NotFoundError,
    408: ServerError,
    409: ServerError,
    425: ServerError,
    429: RateLimitError,
    498: OverloadedError,
    503: OverloadedError,
    529: OverloadedError,
}
_NOT_TODAY = re.compile(r"perday|\blimit: 0\b(?!\.)")
"""A quota of Google's that no wait within a run brings back."""

_NUMBERS = re.compile(r"\d[\d,]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    """A provider's error, in its own words: `codes` are all the names that it gives, lower case."""

    text: str
    codes: tuple[str, ...] = ()
    status: int | None = None
    document: Mapping[str, Any] | None = None
    request_id: str | None = None
    retry_after: float | None = None

    @property
    def refused(self) -> bool:
        """Whether the content was refused, rather than the call (MOD-13)."""
        metadata = _mapping((self.document or {}).get("metadata"))
        return bool(_REFUSED_CODES & set(self.codes)) or bool(metadata.get("flagged_input"))


def read_error(
    document: object,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    now: datetime.datetime | None = None,
) -> Upstream:
    """Find the words in a decoded error: an object under `error`, a bare one, or a text.

    Google may put them into a list, and what is to be done about them into `details`; AWS names
    them in a header.
    """
    if isinstance(document, list):
        document = next(iter(cast("list[object]", document)), None)
    outer = _mapping(document)
    given = outer.get("error", document)
    if isinstance(given, str) and isinstance(outer.get("message"), str):
        given = document  # {"object": "error", "error": "name", "message": …}
    inner = _mapping(given)
    metadata = _mapping(inner.get("metadata"))
    details = _mapping(inner.get("details"))
    names = [inner.get("code"), inner.get("type"), metadata.get("error_type"), inner.get("error")]
    names.append(details.get("error_code"))
    names += [inner["status"]] if isinstance(inner.get("status"), str) else []
    names.append((headers or {}).get("x-amzn-errortype", "").partition(":")[0] or None)
    names.append(str(inner.get("__type") or "").rpartition("#")[2] or None)
    reasons, delay = _google_details(inner.get("details"))
    codes = tuple(str(name).lower() for name in names + reasons if isinstance(name, (str, int)))
    if status is None or status == 200:
        status = next((int(code) for code in codes if re.fullmatch("[45][0-9]{2}", code)), None)
    if status == 424 and type(inner.get("originalStatusCode")) is int:
        status = inner["originalStatusCode"]  # what the model itself said to Bedrock
    said = inner.get("message") or inner.get("detail") or inner.get("Message")
    text = given if isinstance(given, str) else said
    if not isinstance(text, str):
        text = _json.dumps(_json.to_plain(text or given))
    for cause in (metadata.get("raw"), inner.get("failed_generation")):
        if isinstance(cause, str) and cause:
            text = f"{text}: {cause}"
    headers = headers or {}
    asked = retry_after(headers, now, limited=status == 429)
    return Upstream(
        text=text,
        codes=codes,
        status=status,
        document=inner,
        request_id=_request_id(headers, outer),
        retry_after=delay if asked is None else asked,
    )


def _google_details(given: object) -> tuple[list[object], float | None]:
    """The reasons and quotas in the details of Google's errors, and the wait that they ask for."""
    reasons: list[object] = []
    delay: float | None = None
    for detail in cast("list[object]", given) if isinstance(given, list) else ():
        fields = _mapping(detail)
        reasons.append(fields.get("reason"))
        violations = fields.get("violations")
        if isinstance(violations, list):
            broken = cast("list[object]", violations)
            reasons += [_mapping(violation).get("quotaId") for violation in broken]
        if found := re.fullmatch(r"(\d+(?:\.\d+)?)s", str(fields.get("retryDelay"))):
            delay = float(found.group(1))
    return reasons, delay


def _request_id(headers: Mapping[str, str], document: Mapping[str, Any]) -> str | None:
    for name in ("x-request-id", "request-id", "x-generation-id", "x-amzn-requestid"):
        if headers.get(name):
            return headers[name]
    told = document.get("request_id")
    return told if isinstance(told, str) else None


def read_response(
    status: int, headers: Mapping[str, str], body: bytes, *, now: datetime.datetime | None = None
) -> Upstream:
    """Find the words in an error response, whatever its body is."""
    try:
        document: object = _json.loads(body) if body.strip() else f"status {status}"
    except ValueError:
        document = body.decode(errors="replace").strip()
    return read_error(document, status=status, headers=headers, now=now)


def to_error(upstream: Upstream, *, provider: str, model: str) -> ModelError:
    """The typed error."""
    codes = [code for code in upstream.codes if not re.fullmatch("[45][0-9]{2}", code)]
    facts: dict[str, Any] = {
        "provider": provider,
        "model": model,
        "status": upstream.status,
        "code": codes[0] if codes else None,
        "request_id": upstream.request_id,
        "retry_after": upstream.retry_after,
    }
    kind = _kind(upstream)
    if kind is ContextOverflowError:
        used, limit = _figures(upstream)
        return ContextOverflowError(upstream.text, used=used, limit=limit, **facts)
    return kind(upstream.text, **facts)


def _kind(upstream: Upstream) -> type[ModelError]:
    codes, status, text = set(upstream.codes), upstream.status, upstream.text.lower()
    if _is_overflow(codes, status, text):
        return ContextOverflowError
    if codes & _QUOTA_CODES or status == 402 or "credit balance is too low" in text:
        return QuotaError
    if "resource_exhausted" in codes and _NOT_TODAY.search(" ".join((text, *codes))):
        return QuotaError
    if codes & _OVERLOADED_CODES:
        return OverloadedError
    if codes & _SLIPS:
        return ServerError
    if status is not None:
        bad_key = "incorrect api key" in text or "api_key_invalid" in text
        if status == 400 and (bad_key or "api_key_invalid" in codes):
            return AuthError
        if status in _STATUSES:
            return _STATUSES[status]
        if status >= 400:
            return ServerError if status >= 500 else BadRequestError
        return NotFoundError  # a redirect: this is not the API's address
    if "quota" in text and ("exceeded" in text or "insufficient" in text):
        return QuotaError
    named = next((_NAMED[code] for code in upstream.codes if code in _NAMED), None)
    return named or (OverloadedError if "overloaded" in text else ServerError)


def _is_overflow(codes: set[str], status: int | None, text: str) -> bool:
    if status not in (None, 400, 413, 422, 500) or "per minute" in text:
        return False
    if codes & _OVERFLOW_CODES or any(mark in text for mark in _OVERFLOW_TEXTS):
        return True
    if "validationexception" in codes and _AWS_OVERFLOW_TEXT.search(text):
        return True
    return "current length is" in text and "while limit is" in text


def _figures(upstream: Upstream) -> tuple[int | None, int | None]:
    """Tokens used and allowed, as far as they are stated."""
    document = upstream.document or {}
    used, limit = document.get("n_prompt_tokens"), document.get("n_ctx")
    if isinstance(used, int) and isinstance(limit, int):
        return used, limit
    numbers = [int(n.replace(",", "")) for n in _NUMBERS.findall(upstream.text)]
    numbers = [number for number in numbers if number >= 100]
    if len(numbers) < 2:
        return None, numbers[0] if numbers else None
    return max(numbers[:2]), min(numbers[:2])


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def located(error: ModelError, provider: str, model: str, usage: Usage | None = None) -> ModelError:
    """`error` with the names of provider and model, where it was raised without them."""
    if error.provider is None:
        copy = type(error)(
            error.upstream,
            provider=provider,
            model=error.model or model,
            status=error.status,
            code=error.code,
            request_id=error.request_id,
            retry_after=error.retry_after,
        )
        copy.usage = error.usage
        error = copy
    if error.usage is None:
        error.usage = usage
    return error
