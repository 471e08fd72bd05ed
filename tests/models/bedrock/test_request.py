from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import botocore.loaders
import botocore.model
import botocore.serialize
import botocore.validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopctl.config import RequestOptions
from loopctl.errors import ConfigError
from loopctl.messages import (
    ImagePart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from loopctl.models.bedrock import BedrockClient
from loopctl.models.bedrock.facts import MODELS, VENDORS, base_id, facts_for
from loopctl.models.bedrock.messages import ConverseTurns
from loopctl.models.bedrock.request import REPLY_TOOL, encode_body
from loopctl.models.bedrock.stream import REASONING
from loopctl.models.claude import MODELS as CLAUDES
from loopctl.models.client import HttpRequest, ModelRequest, ToolSchema

CLAUDE = "us.anthropic.claude-opus-4-6"
BOUND = "anthropic.claude-opus-5-5"
NOVA = "us.amazon.nova-2-lite-v1:0"
LLAMA = "us.meta.llama3-3-70b-instruct-v1:0"
GPT = "openai.gpt-oss-120b-1:0"
ARN = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-opus-4-6"

PNG = ImagePart("image/png", b"\x89PNG")
IMAGE = {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}
POINT = {"cachePoint": {"type": "default"}}
ADD = ToolSchema(
    name="add",
    description="Add.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
    },
)
LOOK = ToolSchema(name="look", description=" ", input_schema={})
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ANYTHING = {"type": "object", "properties": {"x": {"type": "object"}}, "required": ["x"]}


@lru_cache
def service() -> Any:
    model = botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2")
    return botocore.model.ServiceModel(model)


def encoded(
    *messages: Message,
    model: str = CLAUDE,
    stream: bool = False,
    system: str | None = None,
    tools: tuple[ToolSchema, ...] = (),
    head: int = 0,
    tail: int = 0,
    options: Mapping[str, Any] | None = None,
) -> HttpRequest:
    request = ModelRequest(
        messages=messages,
        system=system,
        tools=tools,
        head=head,
        tail=tail,
        options=RequestOptions(**(options or {})),
    )
    return BedrockClient(model, region="us-east-1").encode(request, stream=stream)


def body(*messages: Message, **rest: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encoded(*messages, **rest).body)
    return found


def told(*messages: Message, model: str = CLAUDE, tools: Any = (), **options: Any) -> Any:
    return body(*(messages or (Q,)), model=model, tools=tools, options=options)


def unmarked(value: Any) -> Any:
    """A JSON value without cache points."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items()}
    return [unmarked(item) for item in value if item != POINT] if isinstance(value, list) else value


def points(value: Any) -> int:
    if isinstance(value, dict):
        return ("cachePoint" in value) + sum(points(item) for item in value.values())
    return sum(points(item) for item in value) if isinstance(value, list) else 0


def sent(*messages: Message, **rest: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = unmarked(body(*messages, **rest)["messages"])
    return found


def with_bytes(value: Any) -> Any:
    """The body as a caller of the official library writes it: blobs are bytes there."""
    if isinstance(value, dict):
        blobs = {"bytes", "redactedContent"}
        return {
            key: base64.b64decode(item) if key in blobs and isinstance(item, str) else item
            for key, item in ((key, with_bytes(item)) for key, item in value.items())
        }
    return [with_bytes(item) for item in value] if isinstance(value, list) else value


def validate(request: HttpRequest, model: str, operation: str = "Converse") -> None:
    """Check a request against the official library: its own rules, and what it would send."""
    shape = service().operation_model(operation)
    params = {"modelId": model, **with_bytes(json.loads(request.body))}
    report = botocore.validate.ParamValidator().validate(params, shape.input_shape)
    assert not report.has_errors(), report.generate_report()
    theirs = botocore.serialize.create_serializer("rest-json").serialize_to_request(params, shape)
    assert request.url == f"https://bedrock-runtime.us-east-1.amazonaws.com{theirs['url_path']}"
    assert json.loads(theirs["body"]) == json.loads(request.body)
    assert theirs["method"] == request.method


def text(said: str) -> dict[str, str]:
    return {"text": said}


def used(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id, "name": name, "input": arguments}}


def answered(id: str, *content: Any, **more: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id, "content": list(content), **more}}


def thinking(said: str = "hm", signature: str | None = "S", **rest: Any) -> ThinkingPart:
    given = {"provider": "bedrock", "model": CLAUDE, "kind": REASONING, **rest}
    return ThinkingPart(said, signature=signature, **given)


Q = Message.user("q")
CALLED = Message.assistant(ToolCallPart("c1", "add", {"a": 1}), ToolCallPart("c2", "look", {}))
R1, R2 = ToolResultPart("c1", "add", "1"), ToolResultPart("c2", "look", "seen")


def test_a_tool_round_is_as_the_api_wants_it() -> None:
    """MOD-20, C1: results first in one message, whatever order the conversation has."""
    failed = ToolResultPart("c2", "look", "no", is_error=True)
    request = encoded(
        Q, CALLED, Message.user("and?", R1, failed), Message.user("now"), system="s", tools=(ADD,)
    )
    made = json.loads(request.body)
    assert unmarked(made["system"]) == [text("s")]
    assert unmarked(made["messages"]) == [
        {"role": "user", "content": [text("q")]},
        {"role": "assistant", "content": [used("c1", "add", a=1), used("c2", "look")]},
        {
            "role": "user",
            "content": [
                answered("c1", text("1")),
                answered("c2", text("no"), status="error"),
                text("and?"),
                text("now"),
            ],
        },
    ]
    spec = made["toolConfig"]["tools"][0]["toolSpec"]
    assert (spec["name"], spec["description"]) == ("add", "Add.")
    assert spec["inputSchema"]["json"]["required"] == ["a"]
    validate(request, CLAUDE)


def test_images_ride_in_messages_and_in_results() -> None:
    """MOD-20: by what their bytes say; those of a failed result behind it."""
    jpeg = ImagePart("image/png", b"\xff\xd8\xff")
    good = ToolResultPart("c1", "add", (TextPart("see"), PNG, TextPart(" ")))
    bad = ToolResultPart("c2", "look", (TextPart("oh"), PNG), is_error=True)
    tiff = ImagePart("image/tiff", b"II*")
    request = encoded(Message.user("q", jpeg, tiff), CALLED, Message.user(good, bad), tools=(ADD,))
    first, _, last = unmarked(json.loads(request.body)["messages"])
    assert first["content"] == [
        text("q"),
        {"image": {"format": "jpeg", "source": {"bytes": "/9j/"}}},
        text("(an image of type image/tiff, left out)"),
    ]
    assert last["content"] == [
        answered("c1", text("see"), IMAGE),
        answered("c2", text("oh"), status="error"),
        text("Images from the result of look:"),
        IMAGE,
    ]
    validate(request, CLAUDE)


def test_models_that_want_results_alone_get_them_alone() -> None:
    """MOD-20: what the user says beside them comes behind a word of the assistant's."""
    messages = (Q, CALLED, Message.user(R1, ToolResultPart("c2", "look", "no", is_error=True), "?"))
    request = encoded(*messages, model=LLAMA, tools=(ADD,))
    assert json.loads(request.body)["messages"][2:] == [
        {"role": "user", "content": [answered("c1", text("1")), answered("c2", text("Error: no"))]},
        {"role": "assistant", "content": [text("OK.")]},
        {"role": "user", "content": [text("?")]},
    ]
    validate(request, LLAMA)
    (results,) = body(*messages[:2], Message.user(R1, R2), model=LLAMA)["messages"][2:]
    assert len(results["content"]) == 2


def test_a_conversation_with_calls_never_goes_without_tools() -> None:
    """MOD-20: the API refuses it; the names that were called stand in."""
    odd = Message.assistant(ToolCallPart("c1", "no such.tool", {}), ToolCallPart("c2", "look", {}))
    request = encoded(Q, odd, Message.user(R1, R2))
    config = json.loads(request.body)["toolConfig"]
    names = [tool["toolSpec"]["name"] for tool in unmarked(config["tools"])]
    assert names == ["no_such_tool", "look"]
    assert sent(Q, odd, Message.user(R1, R2))[1]["content"][0] == used("c1", "no_such_tool")
    validate(request, CLAUDE)
    assert "toolConfig" not in body(Q)


def test_nothing_is_sent_empty_and_roles_alternate() -> None:
    """MOD-20, C2, C4: blank blocks, empty results, an assistant first or last."""
    assert sent(
        Message.assistant("a"),
        Message.user(" \n"),
        Message.assistant("b", " "),
        Message.user(),
    ) == [
        {"role": "user", "content": [text("(the conversation goes on)")]},
        {"role": "assistant", "content": [text("a"), text("b")]},
        {"role": "user", "content": [text("Continue.")]},
    ]
    empty = Message.user(ToolResultPart("c1", "add", " "), ToolResultPart("c2", "look", ()))
    assert sent(Q, CALLED, empty)[2]["content"] == [
        answered("c1", text("(no output)")),
        answered("c2", text("(no output)")),
    ]
    assert sent(Message.user(" ")) == [
        {"role": "user", "content": [text("(the conversation goes on)")]}
    ]


def test_system_text_goes_where_it_belongs() -> None:
    """MOD-20, C3, CTX-8: in front it is system text, later a labelled user's text."""
    made = body(
        Message.system("head"), Message.user("h"), Message.system("first"), Q, Message.system("n"),
        system="s", head=2,
    )  # fmt: skip
    assert unmarked(made["system"]) == [text("s"), text("head"), text("first")]
    assert unmarked(made["messages"]) == [
        {"role": "user", "content": [text("h"), text("q"), text("[system note]\nn")]}
    ]


def test_ids_fit_the_alphabet_and_are_unique() -> None:
    """MOD-20, B18: foreign ids are replaced, ids used again get a number."""
    odd = ToolCallPart("call|1 ä", "add", {})
    first, _, second, results = sent(
        Message.user(),
        Message.assistant(odd, ToolCallPart("c:1.x", "add", {})),
        Message.user(ToolResultPart("call|1 ä", "add", "1"), ToolResultPart("c:1.x", "add", "2")),
        Message.assistant(ToolCallPart("c:1.x", "add", {})),
        Message.user(ToolResultPart("c:1.x", "add", "3")),
    )[1:]
    ids = [block["toolUse"]["toolUseId"] for block in first["content"]]
    assert ids[0].startswith("tooluse_")
    assert ids[1] == "c:1.x"
    renamed = second["content"][0]["toolUse"]["toolUseId"]
    assert renamed not in ids
    assert results["content"][0]["toolResult"]["toolUseId"] == renamed


def test_reasoning_goes_back_byte_exact_and_only_where_it_came_from() -> None:
    """MOD-20, A13: signed, of this provider and model, never last in a message."""
    call = ToolCallPart("c1", "add", {"a": 1})
    sealed = thinking("", "c2VhbGVk", redacted=True)
    parts: list[Part] = [
        thinking(" hm\n", "S+/="),
        sealed,
        thinking("no signature", None),
        thinking("elsewhere", provider="anthropic"),
        thinking("another", model="anthropic.claude-opus-4-5"),
        thinking("", "E"),
        call,
        thinking("last"),
    ]
    messages = (Q, Message.assistant(*parts), Message.user(R1))
    request = encoded(*messages, tools=(ADD,))
    validate(request, CLAUDE)
    assert unmarked(json.loads(request.body)["messages"])[1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": " hm\n", "signature": "S+/="}}},
        {"reasoningContent": {"redactedContent": "c2VhbGVk"}},
        {"reasoningContent": {"reasoningText": {"text": "", "signature": "E"}}},
        used("c1", "add", a=1),
    ]


def test_bound_reasoning_goes_with_its_prefix() -> None:
    """MOD-26: kept while everything in front of it is as it was; else it and all later go."""

    def reasons(*messages: Message, **rest: Any) -> tuple[list[int], str | None]:
        request = encoded(*messages, model=BOUND, tools=rest.pop("tools", (ADD,)), **rest)
        found = [
            json.dumps(message).count("reasoningText")
            for message in json.loads(request.body)["messages"]
            if message["role"] == "assistant"
        ]
        return found, request.prefix

    def said(prefix: str | None, id: str) -> Message:
        part = thinking(id, model=BOUND, prefix=prefix)
        return Message.assistant(part, ToolCallPart(id, "add", {"a": 1}))

    _, prefix = reasons(Q)
    first = (Q, said(prefix, "c1"), Message.user(ToolResultPart("c1", "add", "1")))
    kept, prefix = reasons(*first)
    second = (*first, said(prefix, "c2"), Message.user(ToolResultPart("c2", "add", "2")))
    assert kept == [1]
    assert reasons(*second)[0] == [1, 1]
    assert reasons(*second, Message.user("tail"), tail=1)[0] == [1, 1]
    assert reasons(*second, system="new")[0] == [0, 0]
    assert reasons(*second, tools=(ADD, LOOK))[0] == [0, 0]
    assert reasons(Message.user("head"), *second, head=1)[0] == [0, 0]
    assert reasons(*second, options={"extra_body": {"system": [text("x")]}})[0] == [0, 0]
    edited = (*second[:2], Message.user(ToolResultPart("c1", "add", "other")), *second[3:])
    assert reasons(*edited)[0] == [1, 0]
    assert encoded(Q).prefix is None


def test_a_turn_that_another_model_began_is_ended_without_a_budget_to_think() -> None:
    """MOD-18, MOD-20: a Claude that did not think before its calls must not think behind them."""
    model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"

    def more(*messages: Message, **options: Any) -> Any:
        options = {"thinking_effort": "low", **options}
        request = encoded(*messages, model=model, tools=(ADD,), options=options)
        validate(request, model)
        return json.loads(request.body).get("additionalModelRequestFields")

    called, results = ToolCallPart("c1", "add", {"a": 1}), Message.user(R1)
    thinking_now = {"thinking": {"type": "enabled", "budget_tokens": 2_048}}
    assert more(Q) == thinking_now
    own = Message.assistant(thinking("S", model=model), called)
    assert more(Q, own, results) == thinking_now
    assert more(Q, Message.assistant(called), results) is None
    assert more(Q, Message.assistant(called), results, Message.assistant("So."), Q) == thinking_now
    mine = {"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 9}}}
    assert (
        more(Q, Message.assistant(called), results, extra_body=mine)
        == mine["additionalModelRequestFields"]
    )
    choice = more(Q, Message.assistant(called), results, tool_choice="none")
    assert choice == {"tool_choice": {"type": "none"}}


PLACES: dict[str, tuple[dict[str, Any], tuple[bool, bool, int]]] = {
    "everywhere": ({}, (True, True, 1)),
    "no system": ({"system": None}, (False, True, 1)),
    "no tools": ({"tools": ()}, (True, False, 1)),
    "tail": ({"tail": 1}, (True, True, 1)),
    "nova": ({"model": NOVA}, (True, False, 0)),
    "gpt": ({"model": GPT}, (False, False, 0)),
    "too old": ({"model": "anthropic.claude-3-haiku-20240307-v1:0"}, (False, False, 0)),
}


@pytest.mark.parametrize("name", PLACES)
def test_cache_points_stand_behind_tools_system_and_the_last_stable_message(name: str) -> None:
    """MOD-22, C5, I5: where the model takes them."""
    rest, (in_system, in_tools, in_messages) = PLACES[name]
    messages = (Q, Message.assistant("a"), Message.user("b"), Message.user("c"))
    rest = {"system": "s", "tools": (ADD,), **rest}
    request = encoded(*messages, **rest)
    made = json.loads(request.body)
    assert (points(made.get("system")), points(made.get("toolConfig"))) == (in_system, in_tools)
    assert points(made["messages"]) == in_messages
    if in_messages:
        expected = (
            [text("b"), POINT, text("c")] if rest.get("tail") else [text("b"), text("c"), POINT]
        )
        assert made["messages"][-1]["content"] == expected
    if in_system:
        assert made["system"] == [text("s"), POINT]
    if in_tools:
        assert made["toolConfig"]["tools"][-1] == POINT
    validate(request, rest.get("model", CLAUDE))


def test_there_are_never_more_than_four_cache_points() -> None:
    """C5, MOD-22: those of `extra_body` count; a long step gets a second point in the messages."""
    results = [ToolResultPart(f"c{n}", "add", str(n)) for n in range(30)]
    calls = Message.assistant(*[ToolCallPart(f"c{n}", "add", {}) for n in range(30)])
    long = (Q, calls, Message.user(*results))
    made = body(*long, system="s", tools=(ADD,))
    assert points(made) == 4
    assert [points(message) for message in made["messages"]] == [1, 0, 1]
    for count, left in ((1, 3), (3, 1), (4, 0)):
        extra = {"system": [POINT] * count}
        made = body(*long, tools=(ADD,), options={"extra_body": extra})
        assert (points(made["system"]), points(made) - count) == (count, left)
    with pytest.raises(ConfigError, match="5 cache points"):
        body(Q, options={"extra_body": {"system": [POINT] * 5}})


def test_options_have_their_places() -> None:
    """MOD-3: the cap, temperature, stop sequences, a choice of tools."""
    options: dict[str, Any] = {"max_output_tokens": 9, "temperature": 0.5, "stop": ("x",)}
    request = encoded(Q, tools=(ADD,), options={**options, "tool_choice": "add"}, stream=True)
    made = json.loads(request.body)
    assert made["inferenceConfig"] == {"maxTokens": 9, "temperature": 0.5, "stopSequences": ["x"]}
    assert made["toolConfig"]["toolChoice"] == {"tool": {"name": "add"}}
    validate(request, CLAUDE, "ConverseStream")
    assert told(tools=(ADD,), tool_choice="required")["toolConfig"]["toolChoice"] == {"any": {}}
    assert "toolChoice" not in told(tools=(ADD,), tool_choice="auto")["toolConfig"]
    none = told(tools=(ADD,), tool_choice="none")
    assert none["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}}
    assert none["toolConfig"]
    assert "toolConfig" not in told(tools=(ADD,), tool_choice="none", model=NOVA)
    assert "toolConfig" not in told(tool_choice="none")


def test_extra_body_is_merged_last() -> None:
    """MOD-3: into the fields that are there."""
    extra = {
        "additionalModelRequestFields": {"top_k": 5},
        "toolConfig": {"toolChoice": {"auto": {}}},
        "serviceTier": {"type": "flex"},
    }
    made = told(tools=(ADD,), thinking_effort="low", extra_body=extra)
    fields = made["additionalModelRequestFields"]
    assert fields == {
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "top_k": 5,
    }
    assert made["toolConfig"]["toolChoice"] == {"auto": {}}
    assert len(unmarked(made["toolConfig"]["tools"])) == 1
    assert made["serviceTier"] == {"type": "flex"}
    own = {"toolConfig": {"tools": [{"systemTool": {"name": "x"}}]}}
    assert told(tools=(ADD,), extra_body=own)["toolConfig"] == own["toolConfig"]


EFFORTS: list[tuple[str, str, dict[str, Any] | None]] = [
    (CLAUDE, "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
    (CLAUDE, "none", {"thinking": {"type": "disabled"}}),
    (CLAUDE, "xhigh", None),
    (BOUND, "none", None),
    (BOUND, "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}}),
    (
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "low",
        {"thinking": {"type": "enabled", "budget_tokens": 2_048}},
    ),
    (NOVA, "low", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}),
    (NOVA, "none", {"reasoningConfig": {"type": "disabled"}}),
    (NOVA, "max", None),
    ("amazon.nova-pro-v1:0", "low", None),
    (GPT, "medium", {"reasoning_effort": "medium"}),
    (GPT, "none", None),
    ("qwen.qwen3-32b-v1:0", "high", {"reasoning_config": "high"}),
    (LLAMA, "low", None),
    ("anthropic.claude-3-haiku-20240307-v1:0", "low", None),
]


@pytest.mark.parametrize(("model", "effort", "fields"), EFFORTS)
def test_an_effort_is_told_as_the_model_knows_it(
    model: str, effort: str, fields: dict[str, Any] | None
) -> None:
    """MOD-3, MOD-27: in the fields for the model, or refused."""
    if fields is None:
        with pytest.raises(ConfigError, match="thinking_effort"):
            told(model=model, thinking_effort=effort)
        return
    assert told(model=model, thinking_effort=effort)["additionalModelRequestFields"] == fields


def test_a_budget_leaves_room_for_an_answer() -> None:
    """MOD-27: at least 1,024 tokens for each of the two."""
    old = "anthropic.claude-haiku-4-5-20251001-v1:0"
    made = told(model=old, thinking_effort="high", max_output_tokens=4_000)
    assert made["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 2_976
    with pytest.raises(ConfigError, match="max_output_tokens"):
        told(model=old, thinking_effort="high", max_output_tokens=2_000)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"temperature": 1.5, "model": NOVA}),
    ("temperature", {"temperature": 0.5, "model": BOUND}),
    ("temperature", {"temperature": 0.5, "thinking_effort": "low"}),
    ("tool_choice", {"tool_choice": "nope", "tools": (ADD,)}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tool_choice": "required", "tools": (ADD,), "model": BOUND}),
    ("tool_choice", {"tool_choice": "add", "tools": (ADD,), "model": LLAMA}),
    ("tool_choice", {"tool_choice": "add", "tools": (ADD,), "model": "mistral.mistral-large-3"}),
    (
        "tool_choice",
        {
            "tool_choice": "required",
            "tools": (ADD,),
            "model": "anthropic.claude-haiku-4-5",
            "thinking_effort": "low",
        },
    ),
    ("strict_tools", {"strict_tools": True, "tools": (ADD,), "model": NOVA}),
    ("response_schema", {"response_schema": PERSON, "model": LLAMA}),
    ("response_schema", {"response_schema": ANYTHING, "model": BOUND}),
]


@pytest.mark.parametrize(("option", "options"), REFUSED)
def test_what_a_model_cannot_honour_is_refused(option: str, options: dict[str, Any]) -> None:
    """MOD-3: by its name, before anything is sent."""
    with pytest.raises(ConfigError, match=option):
        told(**options)


def test_no_tool_may_be_called_where_that_cannot_be_said() -> None:
    """MOD-3: leaving the tools out says it, until one was called."""
    with pytest.raises(ConfigError, match="tool_choice"):
        told(Q, CALLED, Message.user(R1, R2), tools=(ADD,), tool_choice="none", model=NOVA)


def test_a_reply_has_its_schema_as_text_or_comes_through_a_tool() -> None:
    """MOD-21: native where it can be; else a tool that must be called, once or beside others."""
    request = encoded(Q, options={"response_schema": PERSON})
    validate(request, CLAUDE)
    made = json.loads(request.body)["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert json.loads(made["schema"]) == {**PERSON, "additionalProperties": False}
    assert "toolConfig" not in told(response_schema=PERSON, model=GPT)

    forced = told(response_schema=PERSON, model=NOVA)["toolConfig"]
    assert forced["toolChoice"] == {"tool": {"name": REPLY_TOOL}}
    beside = encoded(Q, model=NOVA, tools=(ADD,), options={"response_schema": PERSON})
    config = json.loads(beside.body)["toolConfig"]
    assert config["toolChoice"] == {"any": {}}
    assert [tool["toolSpec"]["name"] for tool in config["tools"]] == ["add", REPLY_TOOL]
    validate(beside, NOVA)
    alone = told(response_schema=PERSON, model=NOVA, tools=(ADD,), tool_choice="none")["toolConfig"]
    assert [tool["toolSpec"]["name"] for tool in alone["tools"]] == [REPLY_TOOL]
    only = told(response_schema=ANYTHING, tools=(ADD,), tool_choice="none")
    assert only["toolConfig"]["toolChoice"] == {"tool": {"name": REPLY_TOOL}}
    assert "additionalModelRequestFields" not in only
    any_of = told(response_schema=ANYTHING, model="mistral.mistral-large-3")["toolConfig"]
    assert any_of["toolChoice"] == {"any": {}}


def test_strict_tools_are_closed_and_others_stay_as_they_are() -> None:
    """MOD-21: what cannot be expressed, or is too much, falls back for that tool alone."""
    anything = ToolSchema(name="any", description="d", input_schema=ANYTHING)
    request = encoded(Q, tools=(ADD, anything, LOOK), options={"strict_tools": True})
    validate(request, CLAUDE)
    specs = [tool["toolSpec"] for tool in unmarked(json.loads(request.body)["toolConfig"]["tools"])]
    assert [spec.get("strict") for spec in specs] == [True, None, None]
    assert specs[0]["inputSchema"]["json"]["additionalProperties"] is False
    assert "description" not in specs[2]
    many = {f"p{n}": {"type": "string"} for n in range(20)}
    wide = [
        ToolSchema(name=name, description="d", input_schema={"type": "object", "properties": many})
        for name in ("one", "two")
    ]
    made = told(tools=tuple(wide), strict_tools=True)["toolConfig"]["tools"]
    assert [tool["toolSpec"].get("strict") for tool in unmarked(made)] == [True, None]


def test_a_tool_name_that_cannot_be_sent_is_refused() -> None:
    """MOD-3: it would come back changed."""
    with pytest.raises(ConfigError, match="tool name"):
        told(tools=(ToolSchema(name="a.b", description="d", input_schema={}),))


TEXTS = st.text(max_size=8)
IDS = st.sampled_from(["c1", "c2", "c|3", "ünd", "x" * 80])
USER_PARTS = st.one_of(
    st.builds(TextPart, TEXTS),
    st.sampled_from([PNG, ImagePart("image/tiff", b"II"), ImagePart("image/png", b"")]),
    st.builds(ToolResultPart, IDS, TEXTS, TEXTS, st.booleans()),
    st.builds(ToolResultPart, IDS, TEXTS, st.just((TextPart("t"), PNG))),
)
SAID_PARTS = st.one_of(
    st.builds(TextPart, TEXTS),
    st.builds(lambda own, name, a: ToolCallPart(own, name, {"a": a}), IDS, TEXTS, TEXTS),
    st.builds(thinking, TEXTS, st.one_of(st.none(), TEXTS)),
    st.just(thinking("", "c2VhbGVk", redacted=True)),
)
MESSAGES = st.one_of(
    st.builds(lambda parts: Message.user(*parts), st.lists(USER_PARTS, max_size=4)),
    st.builds(lambda parts: Message.assistant(*parts), st.lists(SAID_PARTS, max_size=4)),
    st.builds(Message.system, TEXTS),
)


@given(
    messages=st.lists(MESSAGES, max_size=6),
    system=st.one_of(st.none(), TEXTS),
    model=st.sampled_from([CLAUDE, BOUND, NOVA, LLAMA, GPT, ARN]),
    tools=st.sampled_from([(), (ADD,), (ADD, LOOK)]),
    head=st.integers(0, 1),
)
def test_any_conversation_validates(
    messages: list[Message],
    system: str | None,
    model: str,
    tools: tuple[ToolSchema, ...],
    head: int,
) -> None:
    """MOD-20, MOD-24, C2, C4, C5: by the official library's own rules, and these of ours."""
    head = min(head, len(messages))
    request = encoded(*messages, system=system, model=model, tools=tools, head=head)
    validate(request, model)
    made = json.loads(request.body)
    roles = [message["role"] for message in made["messages"]]
    assert roles[0] == roles[-1] == "user"
    assert all(one != other for one, other in itertools.pairwise(roles))
    assert points(made) <= 4
    for message in made["messages"]:
        blocks = unmarked(message["content"])
        assert blocks
        assert all(block["text"].strip() for block in blocks if "text" in block)
        results = ["toolResult" in block for block in blocks]
        assert results == sorted(results, reverse=True)
    assert b"\\ud8" not in request.body


def test_a_message_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-23: the next request writes what is new; a point that stood in the last one is gone."""
    written: list[Message] = []
    real = ConverseTurns.entry

    def noted(self: ConverseTurns, message: Message, *rest: Any) -> Any:
        written.append(message)
        return real(self, message, *rest)

    monkeypatch.setattr(ConverseTurns, "entry", noted)
    messages = (Message.user("q"), Message.assistant(thinking(), "a"), Message.user("b"))
    first = sent(*messages)
    new = (Message.assistant("c"), Message.user("d"))
    assert sent(*messages, *new)[:3] == first
    assert written == [*messages, *new]
    assert points(body(*messages, *new)["messages"]) == 1


def test_what_counts_tokens_is_what_is_sent() -> None:
    """MOD-19, J2: system, tools and messages, in the shape that the count wants."""
    request = ModelRequest(
        messages=(Q,), system="s", tools=(ADD,), options=RequestOptions(max_output_tokens=5)
    )
    counted = encode_body(request, model=CLAUDE, facts=facts_for(CLAUDE), provider="bedrock")
    params = {"modelId": base_id(CLAUDE), **json.loads(counted.counted())}
    shape = service().operation_model("CountTokens").input_shape
    report = botocore.validate.ParamValidator().validate(params, shape)
    assert not report.has_errors(), report.generate_report()
    assert set(params["input"]["converse"]) == {"system", "messages", "toolConfig"}


IDENTITIES = {
    "anthropic.claude-opus-5-5": ("anthropic.claude-opus-5-5", 1_000_000),
    "us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0": (
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        200_000,
    ),
    "global.anthropic.claude-nobody-9-v1:0": ("anthropic.claude-nobody-9-v1:0", 1_000_000),
    "apac.amazon.nova-pro-v1:0": ("amazon.nova-pro-v1:0", 300_000),
    "amazon.nova-9-v1:0": ("amazon.nova-9-v1:0", None),
    "us.openai.gpt-6-sol": ("openai.gpt-6-sol", 922_000),
    ARN: ("anthropic.claude-opus-4-6", 1_000_000),
    "arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-pro-v1:0": (
        "amazon.nova-pro-v1:0",
        300_000,
    ),
    "arn:aws:bedrock:us-east-1:1:application-inference-profile/a1b2": ("a1b2", None),
    "a1b2": ("a1b2", None),
}


@pytest.mark.parametrize("model", IDENTITIES)
def test_a_model_is_known_by_any_of_its_names(model: str) -> None:
    """MOD-27: ids, inference profiles, ARNs; an unknown one gets its vendor's newest."""
    assert (base_id(model), facts_for(model).window) == IDENTITIES[model]


@pytest.mark.parametrize("model", [*MODELS, *(f"{vendor}.new-model" for vendor in VENDORS)])
def test_every_model_of_the_table_takes_a_tool_round(model: str) -> None:
    """MOD-24, MOD-27: as the official library checks it."""
    validate(encoded(Q, CALLED, Message.user(R1, R2, "?"), tools=(ADD,), model=model), model)


@pytest.mark.parametrize("name", CLAUDES)
def test_every_claude_takes_its_efforts(name: str) -> None:
    """MOD-24, MOD-27: whatever they are."""
    facts = CLAUDES[name]
    for effort in facts.budgets if facts.thinking == "budget" else facts.efforts:
        model = f"eu.anthropic.{name}"
        validate(encoded(Q, model=model, options={"thinking_effort": effort}), model)
