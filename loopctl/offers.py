"""What a plugin brings when it is registered: tools and prefixes of models (CTX-24, CTX-26).

All of it or nothing: a hook is asked before anything of its plugin is registered, and what it
gives is checked as it comes, so that the plugin's own line shows in the traceback.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, cast

from loopctl._failures import error_text
from loopctl.errors import ConfigError
from loopctl.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from loopctl.models.connect import ModelFactory
    from loopctl.tools.types import Tool

_PREFIX = re.compile(r"[a-z][a-z0-9._-]*")


def tools_of(hook: Callable[..., object], plugin: str, taken: Container[str]) -> tuple[Tool, ...]:
    """The tools that `register_tools` of a plugin registers; `taken` are names that others have.

    Raises `ConfigError` for a hook that fails, what is no tool, and a name that is taken.
    """
    found: dict[str, Tool] = {}

    def register(given: Any) -> None:
        made = ToolRegistry().register(given)
        if made.name in found or made.name in taken:
            raise ConfigError(f"there is a tool {made.name!r} already")
        found[made.name] = made

    _until_answered(hook, "register_tools", plugin, register)
    return tuple(found.values())


def prefixes_of(
    hook: Callable[..., object], plugin: str, taken: Container[str]
) -> dict[str, ModelFactory]:
    """The prefixes that `register_models` of a plugin registers, by name.

    Raises `ConfigError` for a hook that fails, a prefix that cannot be written in front of a
    colon, one that is built in or taken, and a factory that cannot be called.
    """
    from loopctl.models.connect import is_built_in

    found: dict[str, ModelFactory] = {}

    def register(prefix: Any, factory: Any) -> None:
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise ConfigError(f"prefix {prefix!r}: write lower-case letters, digits and .-_")
        if not callable(factory):
            raise ConfigError(f"prefix {prefix!r}: the factory {factory!r} cannot be called")
        if is_built_in(prefix):
            raise ConfigError(f"the prefix {prefix!r} is loopctl's own")
        if prefix in found or prefix in taken:
            raise ConfigError(f"there is a prefix {prefix!r} already")
        found[prefix] = cast("ModelFactory", factory)

    _until_answered(hook, "register_models", plugin, register)
    return found


def _until_answered(
    hook: Callable[..., object], name: str, plugin: str, register: Callable[..., None]
) -> None:
    """Ask a hook; `register` works until it has answered."""
    asking = True

    def once(*given: Any) -> None:
        if not asking:
            raise ConfigError(f"plugin {plugin}: {name} has ended; register what it brings in it")
        register(*given)

    try:
        ask(hook, name, plugin, once)
    finally:
        asking = False


def ask(hook: Callable[..., object], name: str, plugin: str, given: object) -> None:
    """Call a sync hook that answers nothing; what goes wrong is a `ConfigError` that says where."""
    try:
        answer = hook(given)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise ConfigError("it is sync and must not be awaited")
    except ConfigError as error:
        raise ConfigError(f"plugin {plugin}: {name}: {error}") from error
    except Exception as error:
        raise ConfigError(f"plugin {plugin}: {name} failed: {error_text(error)}") from error
