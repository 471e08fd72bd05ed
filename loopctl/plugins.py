"""Plugins: registration order, isolation, closing (CTX-4, CTX-5, CTX-24, CTX-26, CTX-27).

Hooks are pluggy's, so they are marked, validated and ordered by its options. What pluggy would do
at a call, last-registered first and stopping at the first exception, is not what a loop wants:
the caller walks the implementations itself. Each plugin is registered through an adapter of its
own, because pluggy takes two equal objects for one and passes over what is not marked.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import pluggy

from loopctl._failures import error_text
from loopctl.context.contributors import Contributor
from loopctl.errors import ConfigError
from loopctl.hookspecs import HOOKS, PROJECT, SYNC, HookSpecs
from loopctl.offers import prefixes_of, tools_of
from loopctl.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from loopctl.compaction.types import CompactionContext
    from loopctl.events import Event
    from loopctl.models.connect import ModelFactory
    from loopctl.tools.decisions import DecisionHook
    from loopctl.tools.types import Tool

logger = logging.getLogger("loopctl.plugins")

_MARK = f"{PROJECT}_impl"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class InstalledPlugin:
    """A plugin and the distribution that it was found in; a session takes it as the plugin."""

    plugin: object
    """The object with the hooks."""
    name: str
    """The name of its entry point."""
    distribution: str
    version: str


class _Adapter:
    """One registered plugin or contributor; compared by identity, its hooks are attributes."""

    def __init__(self, owner: Any, distribution: str | None, installed: bool = False) -> None:
        self.owner = owner
        self.distribution = distribution
        self.installed = installed
        self.options: dict[str, dict[str, Any]] = {}
        self.offload = bool(getattr(owner, "offload", False))
        self.closed = False
        self.tools: tuple[Tool, ...] = ()
        self.prefixes: dict[str, ModelFactory] = {}

    def offer(self, hook: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
        """Make `function` this adapter's implementation of `hook`."""
        setattr(self, hook, function)
        self.options[hook] = {
            "wrapper": False,
            "hookwrapper": False,
            "optionalhook": False,
            "tryfirst": bool(options.get("tryfirst")),
            "trylast": bool(options.get("trylast")),
            "specname": None,
        }

    def hook(self, name: str) -> Callable[..., object] | None:
        """This adapter's implementation of a hook, if it has one."""
        return getattr(self, name) if name in self.options else None


class _Hooks(pluggy.PluginManager):
    """pluggy's manager, reading the options that an adapter states."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        return plugin.options.get(name) if isinstance(plugin, _Adapter) else None


class PluginRegistry:
    """The plugins and contributors of one session, in registration order.

    Tools that plugins bring go into `tools`, the session's registry.
    """

    def __init__(self, tools: ToolRegistry | None = None) -> None:
        self._hooks = _Hooks(PROJECT)
        self._hooks.add_hookspecs(HookSpecs)
        self._adapters: list[_Adapter] = []
        self._tools = ToolRegistry() if tools is None else tools
        self.contributors: tuple[Contributor, ...] = ()
        """Who is consulted before a turn, in the order of asking."""
        self.decisions: tuple[DecisionHook, ...] = ()
        """Who decides about tool calls, in the order of asking."""
        self.advisers: tuple[tuple[str, Callable[[CompactionContext], Any]], ...] = ()
        """Who is asked before a pass, by name."""
        self.listeners: tuple[tuple[str, Callable[[Event], object]], ...] = ()
        """Who is told of events, by name."""

    def add_plugin(self, plugin: Any, *, distribution: str | None = None) -> None:
        """Register an object with marked hooks; all of them or, on an error, none.

        An `InstalledPlugin` brings its distribution along; it is silent beside an object of the
        same class that was given by itself, whichever came first; one that cannot bring its tools
        or models here is left out and reported as a warning of the logger `loopctl.plugins`.
        Raises `ConfigError` for an object without hooks, a misspelt or wrongly written one, and
        for tools or models that cannot be taken from an object given by itself.
        """
        installed = isinstance(plugin, InstalledPlugin)
        if installed:
            plugin, distribution = plugin.plugin, plugin.distribution
        adapter = _Adapter(plugin, distribution, installed)
        for name, function, options in _marked(plugin):
            hook = options.get("specname") or name
            _check(plugin, name, hook, function, options)
            adapter.offer(hook, function, options)
        if not adapter.options:
            raise ConfigError(_no_hooks(plugin))
        _refuse_unmarked(plugin, adapter.options)
        twins = [each for each in self._adapters if _twins(each, adapter)]
        if adapter.installed and (twins or not self._takes(adapter)):
            self._adapters.append(adapter)  # it is kept only to be closed
            return
        if not adapter.installed:
            self._ask_for_offers(adapter, leaving=twins)
        for twin in twins:
            self._withdraw(twin)
        self._register(adapter)

    def add_contributor(self, contributor: Any, *, distribution: str | None = None) -> None:
        """Register an object with a method `contribute(ctx)`, or a function of `ctx`.

        Raises `ConfigError` for anything else.
        """
        function = getattr(contributor, "contribute", None)
        if isinstance(contributor, type) or not callable(function):
            function = contributor
        if isinstance(contributor, type) or not callable(function):
            raise ConfigError(
                f"{_name(contributor)} is no contributor: give an object with a method"
                " contribute(ctx), or a function of ctx"
            )
        _check_takes_one(contributor, function)
        others = [] if function is contributor else _marked(contributor)
        if any(name != "contribute" for name, _, _ in others):
            raise ConfigError(f"{_name(contributor)} has more hooks; give it to add_plugin")
        options: dict[str, Any] = getattr(function, _MARK, None) or {}
        if options.get("wrapper") or options.get("hookwrapper"):
            raise ConfigError(f"{_name(contributor)}: wrappers are not supported")
        adapter = _Adapter(contributor, distribution)
        adapter.offer("contribute", _positional(function), options)
        self._register(adapter)

    def _takes(self, adapter: _Adapter) -> bool:
        """Whether what an installed plugin brings can be had here; if not, it is reported."""
        try:
            self._ask_for_offers(adapter)
        except (Exception, SystemExit) as error:
            said = str(error) if isinstance(error, ConfigError) else error_text(error)
            logger.warning("a plugin of %s is left out: %s", adapter.distribution, said)
            return False
        return True

    def _ask_for_offers(self, adapter: _Adapter, leaving: Collection[_Adapter] = ()) -> None:
        """Ask a plugin for its tools and prefixes; the names of those who leave are free."""
        who = _name(adapter.owner)
        tools: tuple[Tool, ...] = ()
        if (hook := adapter.hook("register_tools")) is not None:
            free = {tool.name for each in leaving for tool in self._tools_of(each)}
            tools = tools_of(hook, who, {*self._tools.names} - free)
        if (hook := adapter.hook("register_models")) is not None:
            others = [each for each in self._adapters if each not in leaving]
            adapter.prefixes = prefixes_of(hook, who, {p for each in others for p in each.prefixes})
        adapter.tools = tools

    def _tools_of(self, adapter: _Adapter) -> list[Tool]:
        """The tools of a plugin that nobody has replaced since."""
        return [tool for tool in adapter.tools if self._tools.get(tool.name) is tool]

    def _withdraw(self, adapter: _Adapter) -> None:
        """Take out everything of a plugin; it is kept only to be closed."""
        if self._hooks.is_registered(adapter):
            self._hooks.unregister(adapter)
        for tool in self._tools_of(adapter):
            self._tools.unregister(tool.name)
        adapter.tools, adapter.prefixes = (), {}

    def _register(self, adapter: _Adapter) -> None:
        self._hooks.register(adapter, name=f"{len(self._adapters)}:{_name(adapter.owner)}")
        self._adapters.append(adapter)
        self.contributors = tuple(
            Contributor(_name(a.owner), a.distribution, f, a.offload)
            for a, f in self._ordered("contribute")
        )
        self.decisions = self._decision_hooks()
        self.advisers = tuple((_name(a.owner), f) for a, f in self._ordered("before_compaction"))
        self.listeners = tuple((_name(a.owner), f) for a, f in self._ordered("on_event"))
        for tool in adapter.tools:
            self._tools.register(tool, origin=adapter.distribution or _name(adapter.owner))

    @property
    def prefixes(self) -> Mapping[str, ModelFactory]:
        """The prefixes of models that plugins bring, for `connect`."""
        return MappingProxyType({p: f for a in self._adapters for p, f in a.prefixes.items()})

    def _decision_hooks(self) -> tuple[DecisionHook, ...]:
        found = self._ordered("before_tool_call")
        if not found:
            return ()
        from loopctl.tools.decisions import DecisionHook

        return tuple(
            DecisionHook(name=_name(a.owner), distribution=a.distribution, ask=f) for a, f in found
        )

    def _ordered(self, hook: str) -> list[tuple[_Adapter, Callable[..., Any]]]:
        """The implementations: tryfirst, plain, trylast, each in registration order."""
        place = {id(adapter): index for index, adapter in enumerate(self._adapters)}
        caller: pluggy.HookCaller = getattr(self._hooks.hook, hook)
        ranked = sorted(
            caller.get_hookimpls(),
            key=lambda i: (i.trylast - i.tryfirst, place[id(i.plugin)]),
        )
        return [(cast("_Adapter", impl.plugin), impl.function) for impl in ranked]

    async def aclose(self) -> None:
        """Await each plugin's optional `aclose()`, the last registered first (CTX-27).

        One that fails is logged and does not keep the others from closing. Each is closed once.
        All stay registered: a guard must not vanish from a session that is used once more.
        """
        for adapter in reversed(self._adapters):
            if adapter.closed:
                continue
            adapter.closed = True
            close = getattr(adapter.owner, "aclose", None)
            if not callable(close):
                continue
            try:
                pending: Any = close()
                if inspect.isawaitable(pending):
                    await pending
            except Exception:
                logger.exception("plugin %s failed to close", _name(adapter.owner))


def hooks_of(plugin: object) -> tuple[str, ...]:
    """The names of a plugin's hooks, by registering it where nobody asks.

    Raises what registering it in a session would raise.
    """
    registry = PluginRegistry()
    registry.add_plugin(plugin)
    (adapter,) = registry._adapters  # pyright: ignore[reportPrivateUsage]
    return tuple(adapter.options)


def hook_of(plugin: object, hook: str) -> Callable[..., Any]:
    """A plugin's implementation of a hook that it has."""
    return next(
        f for name, f, options in _marked(plugin) if (options.get("specname") or name) == hook
    )


def _twins(one: _Adapter, other: _Adapter) -> bool:
    """Whether one was installed and the other given, and they are the same plugin."""
    if one.installed == other.installed:
        return False
    if inspect.ismodule(one.owner):
        return one.owner is other.owner
    return type(one.owner) is type(other.owner)


def _name(plugin: Any) -> str:
    if inspect.isroutine(plugin) or isinstance(plugin, type):
        return str(getattr(plugin, "__qualname__", plugin))
    if inspect.ismodule(plugin):
        return plugin.__name__
    return type(plugin).__qualname__


def _marked(plugin: Any) -> list[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """The marked functions of an object or module, in the order of its names."""
    found: list[tuple[str, Callable[..., Any], dict[str, Any]]] = []
    for name in dir(plugin):
        static = inspect.getattr_static(plugin, name, None)
        if isinstance(static, property):
            continue
        try:
            function = getattr(plugin, name)
        except Exception:
            continue
        options = getattr(function, _MARK, None) if callable(function) else None
        if isinstance(options, dict):
            found.append((name, function, cast("dict[str, Any]", options)))
    return found


def _check(
    plugin: Any, name: str, hook: str, function: Callable[..., Any], options: dict[str, Any]
) -> None:
    who = f"plugin {_name(plugin)}"
    if hook not in HOOKS:
        import difflib

        near = difflib.get_close_matches(hook, HOOKS, n=1)
        meant = f"did you mean {near[0]}({', '.join(HOOKS[near[0]])})? " if near else ""
        raise ConfigError(f"{who}: there is no hook {hook!r}; {meant}hooks are {_hook_list()}")
    if options.get("wrapper") or options.get("hookwrapper"):
        raise ConfigError(f"{who}: {name} is a wrapper; wrappers are not supported")
    if isinstance(plugin, type):
        raise ConfigError(f"{who} is a class; give an instance")
    wanted = HOOKS[hook]
    expected = f"{hook}({', '.join(wanted)})"
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty:
            raise ConfigError(
                f"{who}: parameter {parameter.name!r} of {name} has a default and would never be"
                f" passed; expected {expected}"
            )
    given = tuple(inspect.signature(function).parameters)
    if given != wanted:
        raise ConfigError(f"{who}: {name}({', '.join(given)}) does not fit; expected {expected}")
    if hook in SYNC and inspect.iscoroutinefunction(function):
        raise ConfigError(f"{who}: {hook} is sync; expected def {expected}")


def _check_takes_one(contributor: Any, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(object())
    except TypeError as error:
        raise ConfigError(
            f"{_name(contributor)}: a contributor takes exactly one argument, ctx ({error})"
        ) from None


def _positional(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function under the name that the hook's argument has, whatever the original calls it."""

    def contribute(ctx: Any) -> Any:
        return function(ctx)

    return contribute


def _refuse_unmarked(plugin: Any, taken: Collection[str]) -> None:
    """A method named like a hook and not marked would be passed over: a guard that never guards."""
    for hook in HOOKS:
        unmarked = inspect.getattr_static(plugin, hook, None) is not None and hook not in taken
        if unmarked and getattr(getattr(plugin, hook, None), _MARK, None) is None:
            raise ConfigError(
                f"plugin {_name(plugin)}: {hook} is not marked; mark it with @loopctl.hookimpl or"
                " rename it"
            )


def _no_hooks(plugin: Any) -> str:
    import difflib

    names = [name for name in dir(plugin) if not name.startswith("_")]
    meant = sorted(
        {
            match
            for name in names
            for match in difflib.get_close_matches(name, HOOKS, n=1, cutoff=0.75)
        }
    )
    hint = (
        f"mark {', '.join(meant)} with @loopctl.hookimpl" if meant else f"hooks are {_hook_list()}"
    )
    return f"{_name(plugin)} has no hook marked with @loopctl.hookimpl; {hint}"


def _hook_list() -> str:
    return ", ".join(f"{hook}({', '.join(arguments)})" for hook, arguments in HOOKS.items())
