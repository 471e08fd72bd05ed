"""CTX-4, CTX-5, CTX-24, CTX-27: registering plugins, their order, their end."""

from __future__ import annotations

import logging
import re
import types
from pathlib import Path
from typing import Any

import pytest

from loopctl import Allow, Deny, hookimpl
from loopctl.errors import ConfigError
from loopctl.hookspecs import HOOKS
from loopctl.plugins import PluginRegistry

pytestmark = pytest.mark.anyio


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    @hookimpl
    def contribute(self, ctx: Any) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class First(Named):
    @hookimpl(tryfirst=True)
    def contribute(self, ctx: Any) -> str:
        return self.name


class Last(Named):
    @hookimpl(trylast=True)
    def contribute(self, ctx: Any) -> str:
        return self.name


def order(registry: PluginRegistry) -> list[str]:
    return [contributor.ask(None) for contributor in registry.contributors]


def test_tryfirst_then_plain_then_trylast_each_in_registration_order() -> None:
    """CTX-4, CTX-5: equal objects count separately; plugins and contributors share one order."""
    registry = PluginRegistry()
    registry.add_plugin(Last("l1"))
    registry.add_plugin(Named("p1"))
    registry.add_plugin(First("f1"))
    registry.add_contributor(lambda ctx: "c1")
    registry.add_contributor(First("f2"))
    registry.add_plugin(Last("l2"))
    registry.add_plugin(Named("p2"))
    assert order(registry) == ["f1", "f2", "p1", "c1", "p2", "l1", "l2"]


def test_a_module_and_an_object_with_several_hooks_are_plugins() -> None:
    """CTX-24: every marked function of an object is registered, under its hook."""
    module = types.ModuleType("my_hooks")

    def on_event(event: Any) -> None: ...

    def before_tool_call(ctx: Any) -> Allow:
        return Allow()

    module.on_event = hookimpl(on_event)  # type: ignore[attr-defined]
    module.renamed = hookimpl(before_tool_call, specname="before_tool_call")  # type: ignore[attr-defined]
    registry = PluginRegistry()
    registry.add_plugin(module, distribution="my-dist")
    assert [name for name, _ in registry.listeners] == ["my_hooks"]
    assert [(d.name, d.distribution) for d in registry.decisions] == [("my_hooks", "my-dist")]


class Unmarked:
    def contribute(self, ctx: Any) -> str:
        return "x"


class Misspelt:
    @hookimpl
    def contribut(self, ctx: Any) -> str:
        return "x"


class WithDefault:
    @hookimpl
    def contribute(self, ctx: Any, note: Any = None) -> str:
        return "x"


class WrongArgument:
    @hookimpl
    def contribute(self, context: Any) -> str:
        return "x"


class Wrapper:
    @hookimpl(wrapper=True)
    def contribute(self, ctx: Any) -> Any:
        return (yield)


class OldWrapper:
    @hookimpl(hookwrapper=True)
    def contribute(self, ctx: Any) -> Any:
        yield


class AsyncListener:
    @hookimpl
    async def on_event(self, event: Any) -> None: ...


class HalfMarked:
    @hookimpl
    def on_event(self, event: Any) -> None: ...

    def before_tool_call(self, ctx: Any) -> None: ...


class HalfBroken:
    @hookimpl
    def before_tool_call(self, ctx: Any) -> None: ...

    @hookimpl
    def on_evnt(self, event: Any) -> None: ...


@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        (Unmarked(), "mark contribute with @loopctl.hookimpl"),
        (object(), "hooks are contribute(ctx), before_tool_call(ctx), "),
        (Misspelt(), "did you mean contribute(ctx)"),
        (WithDefault(), "'note' of contribute has a default"),
        (WrongArgument(), "contribute(context) does not fit; expected contribute(ctx)"),
        (Wrapper(), "wrappers are not supported"),
        (OldWrapper(), "wrappers are not supported"),
        (AsyncListener(), "on_event is sync"),
        (HalfMarked(), "before_tool_call is not marked"),
        (HalfBroken(), "did you mean on_event(event)"),
        (Named, "is a class; give an instance"),
    ],
)
def test_a_plugin_that_would_not_work_is_refused_and_nothing_of_it_stays(
    plugin: Any, says: str
) -> None:
    """CTX-24, G1, G4, G5: refused at registration, saying what is expected, rolled back."""
    registry = PluginRegistry()
    with pytest.raises(ConfigError) as caught:
        registry.add_plugin(plugin)
    assert says in str(caught.value)
    assert (registry.contributors, registry.decisions, registry.listeners) == ((), (), ())


def test_a_wrapper_is_refused_as_a_contributor_too() -> None:
    """CTX-4: wrappers are refused at registration."""
    with pytest.raises(ConfigError, match="wrappers"):
        PluginRegistry().add_contributor(Wrapper())


async def test_plugins_close_in_reverse_order_and_one_that_fails_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CTX-27: aclose is optional, awaited, reversed, isolated."""
    log: list[str] = []

    class Closing(Named):
        async def aclose(self) -> None:
            log.append(self.name)
            if self.name == "b":
                raise OSError("stuck")

    registry = PluginRegistry()
    for name in "abc":
        registry.add_plugin(Closing(name))
    registry.add_plugin(Named("without"))
    with caplog.at_level(logging.ERROR, "loopctl.plugins"):
        await registry.aclose()
    assert log == ["c", "b", "a"]
    assert "failed to close" in caplog.text
    await registry.aclose()
    assert log == ["c", "b", "a"]


def test_a_contributor_with_other_hooks_is_a_plugin() -> None:
    """CTX-24: its guard would be passed over in silence."""

    class Both(Named):
        @hookimpl
        def before_tool_call(self, ctx: Any) -> Deny:
            return Deny("no")

    with pytest.raises(ConfigError, match="add_plugin"):
        PluginRegistry().add_contributor(Both("x"))


async def test_a_guard_outlives_the_closing_of_its_session() -> None:
    """TOL-13, CTX-27: closing twice closes once, and decisions stay."""

    class Guard:
        closed = 0

        @hookimpl
        def before_tool_call(self, ctx: Any) -> Deny:
            return Deny("no")

        async def aclose(self) -> None:
            self.closed += 1

    guard, registry = Guard(), PluginRegistry()
    registry.add_plugin(guard)
    await registry.aclose()
    registry.add_contributor(lambda ctx: None)
    await registry.aclose()
    assert [decision.name for decision in registry.decisions] != []
    assert guard.closed == 1


def test_the_page_lists_every_hook_with_its_arguments() -> None:
    """CTX-24: and no other."""
    page = Path(__file__).parents[1] / "docs" / "plugins.md"
    listed = re.findall(r"^\| `(\w+\(.*?\))` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [f"{hook}({', '.join(arguments)})" for hook, arguments in HOOKS.items()]
