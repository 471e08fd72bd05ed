"""CTX-24, CTX-26: the tools and the models that plugins bring."""

from __future__ import annotations

import logging
import types
from collections.abc import Callable
from typing import Any

import pytest

from loopctl import BareLoop, connect, hookimpl, tool
from loopctl.errors import ConfigError
from loopctl.plugins import InstalledPlugin, PluginRegistry
from loopctl.testing import ScriptedClient, call
from loopctl.tools.registry import ToolRegistry

Register = Callable[..., None]


def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


@tool
def leave() -> str:
    """Say goodbye."""
    return "goodbye"


class Tools:
    def __init__(self, *tools: Any) -> None:
        self.tools = tools
        self.closed = False

    @hookimpl
    def register_tools(self, register: Register) -> None:
        for each in self.tools:
            register(each)

    @hookimpl
    def contribute(self, ctx: Any) -> str:
        return "here"

    async def aclose(self) -> None:
        self.closed = True


class FarTools(Tools):
    """Another class: no twin of `Tools`."""


class Models:
    def __init__(self, **models: Any) -> None:
        self.models = models

    @hookimpl
    def register_models(self, register: Register) -> None:
        for prefix, factory in self.models.items():
            register(prefix, factory)


class Taken(Models):
    """Another class: no twin of `Models`."""


class Scripted(ScriptedClient):
    def __init__(self, model: str, *, api_key: str | None = None) -> None:
        super().__init__("done", "done", model=model)
        self.api_key = api_key


def installed(plugin: object, distribution: str = "dist") -> InstalledPlugin:
    return InstalledPlugin(plugin=plugin, name="p", distribution=distribution, version="1")


def test_a_plugin_brings_tools_that_the_model_can_call() -> None:
    """CTX-24: functions and tools; each knows who brought it."""
    client = ScriptedClient(call("greet", name="Ada"), "done")
    own = tool(name="own")(greet)
    agent = BareLoop(client, [own], plugins=[Tools(greet), installed(FarTools(leave), "far")])
    run = agent.run_sync("go")
    assert run.turns[0].calls[0].result.text == "hello Ada"
    assert [schema.name for schema in client.requests[0].tools] == ["own", "greet", "leave"]
    origins = [agent.tools.origin(name) for name in ("own", "greet", "leave", "gone")]
    assert origins == [None, "Tools", "far", None]


def test_a_plugin_that_is_added_later_brings_its_tools_too() -> None:
    """CTX-24: they show in the next request."""
    client = ScriptedClient("done", "done")
    agent = BareLoop(client)
    agent.run_sync("go")
    agent.add_plugin(Tools(leave))
    agent.run_sync("go")
    assert [len(request.tools) for request in client.requests] == [0, 1]


class Raising(Tools):
    @hookimpl
    def register_tools(self, register: Register) -> None:
        register(greet)
        raise OSError("no tools today")


class Awaitable(Tools):
    @hookimpl
    def register_tools(self, register: Register) -> Any:
        async def later() -> None:
            register(greet)

        return later()


class Async(Tools):
    @hookimpl
    async def register_tools(self, register: Register) -> None:  # type: ignore[override]
        register(greet)


class Hostile:
    @property
    def offload(self) -> bool:
        raise OSError("closed")

    @hookimpl
    def contribute(self, ctx: Any) -> str:
        return "here"


WRONG: list[tuple[Any, str]] = [
    (Raising(), "register_tools failed: OSError: no tools today"),
    (Awaitable(), "register_tools: it is sync"),
    (Async(), "register_tools is sync"),
    (Tools(greet, 3), "3 is no tool"),
    (Tools(greet, greet), "there is a tool 'greet' already"),
    (Tools(greet, tool(name="own")(greet)), "there is a tool 'own' already"),
    (Models(**{"openai-chat": Scripted}), "'openai-chat' is loopctl's own"),
    (Models(local=Scripted), "'local' is loopctl's own"),
    (Models(taken=Scripted), "there is a prefix 'taken' already"),
    (Models(**{"A:b": Scripted}), "prefix 'A:b': write lower-case letters"),
    (Models(fine=Scripted, wrong=3), "the factory 3 cannot be called"),
]


@pytest.mark.parametrize(("plugin", "says"), WRONG)
def test_what_cannot_be_taken_is_refused_and_nothing_of_the_plugin_stays(
    plugin: Any, says: str
) -> None:
    """CTX-24, CTX-26, G1: a failure half-way through its registration."""
    tools = ToolRegistry([tool(name="own")(greet)])
    registry = PluginRegistry(tools)
    registry.add_plugin(Taken(taken=Scripted))
    with pytest.raises(ConfigError) as raised:
        registry.add_plugin(plugin)
    assert says in str(raised.value)
    assert (tools.names, registry.contributors, [*registry.prefixes]) == (("own",), (), ["taken"])


@pytest.mark.parametrize(("plugin", "says"), [case for case in WRONG if type(case[0]) is not Async])
def test_an_installed_plugin_that_fails_in_a_session_is_reported_and_left_out(
    plugin: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CTX-26: with its distribution; the others load."""
    tools = ToolRegistry([tool(name="own")(greet)])
    registry = PluginRegistry(tools)
    registry.add_plugin(Taken(taken=Scripted))
    with caplog.at_level(logging.WARNING, "loopctl.plugins"):
        registry.add_plugin(installed(plugin, "bad-dist"))
    registry.add_plugin(installed(Tools(leave), "good-dist"))
    (record,) = caplog.records
    assert "bad-dist" in record.getMessage()
    assert says in record.getMessage()
    assert tools.names == ("own", "leave")
    assert [each.distribution for each in registry.contributors] == ["good-dist"]
    assert [*registry.prefixes] == ["taken"]


def test_a_plugin_that_fails_while_it_is_looked_at_leaves_nothing() -> None:
    """CTX-26: before any of its hooks is registered."""
    registry = PluginRegistry()
    with pytest.raises(OSError, match="closed"):
        registry.add_plugin(Hostile())
    registry.add_plugin(Tools())
    assert [each.name for each in registry.contributors] == ["Tools"]


@pytest.mark.anyio
async def test_a_plugin_that_was_left_out_is_still_closed() -> None:
    """CTX-27: it may hold something open."""
    registry = PluginRegistry(ToolRegistry([leave]))
    plugin = Tools(leave)
    registry.add_plugin(installed(plugin))
    await registry.aclose()
    assert plugin.closed
    assert registry.contributors == ()


@pytest.mark.parametrize("given_first", [True, False])
def test_the_tools_of_an_installed_twin_make_room(given_first: bool) -> None:
    """CTX-26: an instance that the app passes beats its installed twin, whichever came first."""
    tools = ToolRegistry()
    registry = PluginRegistry(tools)
    plugins = [Tools(greet), installed(Tools(greet, leave))]
    for plugin in plugins if given_first else plugins[::-1]:
        registry.add_plugin(plugin)
    assert tools.names == ("greet",)
    assert tools.origin("greet") == "Tools"


def test_a_twin_that_cannot_be_registered_leaves_the_installed_one_alone() -> None:
    """CTX-26: all or nothing."""
    tools = ToolRegistry()
    registry = PluginRegistry(tools)
    registry.add_plugin(installed(Tools(greet)))
    with pytest.raises(ConfigError):
        registry.add_plugin(Tools(leave, leave))
    assert tools.names == ("greet",)
    assert [each.distribution for each in registry.contributors] == ["dist"]


def test_a_tool_that_has_taken_the_place_of_a_twins_stays() -> None:
    """CTX-26: only what the twin brought leaves with it."""
    tools = ToolRegistry()
    registry = PluginRegistry(tools)
    registry.add_plugin(installed(Tools(greet, leave)))
    with pytest.warns(UserWarning, match="replaces another"):
        tools.register(tool(name="leave")(greet))
    registry.add_plugin(Tools(greet))
    assert set(tools.names) == {"greet", "leave"}
    assert tools.origin("leave") is None


def test_registering_ends_with_the_hook() -> None:
    """CTX-26: what comes later would belong to nobody."""
    kept: list[Register] = []
    module = types.ModuleType("keeping")

    def keep(register: Register) -> None:
        kept.append(register)

    module.register_tools = hookimpl(keep)  # type: ignore[attr-defined]
    tools = ToolRegistry()
    PluginRegistry(tools).add_plugin(module)
    with pytest.raises(ConfigError, match="register_tools has ended"):
        kept[0](greet)
    assert tools.names == ()


def test_a_session_connects_with_the_prefixes_of_its_plugins() -> None:
    """CTX-24: plugins are asked before the client is made; no other session sees their prefixes."""
    agent = BareLoop("acme:small", plugins=[Models(acme=Scripted)])
    assert isinstance(agent.client, Scripted)
    assert agent.client.model == "small"
    assert agent.run_sync("go").output == "done"
    with pytest.raises(ConfigError, match="no provider 'acme'"):
        BareLoop("acme:small")


def test_an_unknown_prefix_lists_those_of_plugins() -> None:
    """CTX-24: with the nearest."""
    with pytest.raises(ConfigError) as raised:
        BareLoop("acm:small", plugins=[Models(acme=Scripted)])
    assert "did you mean 'acme'" in str(raised.value)
    assert str(raised.value).endswith("local, acme")


def test_connect_hands_a_factory_what_was_given() -> None:
    """MOD-6, CTX-24: arguments that were left alone are not passed."""
    given: dict[str, Any] = {}

    def factory(model: str, **options: Any) -> Scripted:
        given.update(options, model=model)
        return Scripted(model)

    connect("acme:a:b", prefixes={"acme": factory}, api_key="k", max_connections=3, region="x")
    assert given == {"model": "a:b", "api_key": "k", "max_connections": 3, "region": "x"}


@pytest.mark.parametrize(
    ("spec", "factory", "says"),
    [
        ("acme", Scripted, 'names no model; write "acme:model"'),
        ("acme:", Scripted, 'names no model; write "acme:model"'),
        ("acme:m", lambda model: None, "made None, no client"),
        ("acme:m", lambda model: 1 / 0, "ZeroDivisionError: division by zero"),
        ("acme:m", lambda: None, "no client: TypeError"),
    ],
)
def test_a_factory_that_makes_no_client_is_an_error_that_says_so(
    spec: str, factory: Any, says: str
) -> None:
    """CTX-24: the prefix and what went wrong."""
    with pytest.raises(ConfigError) as raised:
        connect(spec, prefixes={"acme": factory})
    assert says in str(raised.value)
