"""Tools made of functions, sync or async (TOL-1, TOL-7)."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast, overload

from loopctl import _json
from loopctl._threads import Threads
from loopctl.errors import ConfigError
from loopctl.tools import schema
from loopctl.tools.results import to_output
from loopctl.tools.types import ToolContext, ToolOutput

Resource: TypeAlias = str | Callable[[dict[str, Any]], str | None]
"""A key, or a function from a call's arguments to its key: one key, one call at a time."""

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a tool may be called (TOL-3)."""


class FunctionTool:
    """A tool made of a function by `tool`. Calling it calls the function.

    In a class body it is taken from an instance like a method: `tools=[library.search]`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        description: str,
        signature: schema.Signature,
        read_only: bool = False,
        concurrency_safe: bool = False,
        timeout: float | None = None,
        resource: Resource | None = None,
        unbound: bool = False,
    ) -> None:
        self.name = name
        self.description = description
        self.input_schema = signature.input_schema
        self.read_only = read_only
        self.concurrency_safe = concurrency_safe
        self.timeout = timeout
        self.resource = resource
        self.unbound = unbound
        self._function = function
        self._signature = signature
        self._is_async = inspect.iscoroutinefunction(schema.entry_point(function))

    def validate(self, text: str) -> dict[str, Any]:
        """The function's keyword arguments, from the JSON text of an object.

        Raises `ArgumentsInvalid`.
        """
        return self._signature.validate(text)

    async def invoke(
        self, values: dict[str, Any], ctx: ToolContext[Any], threads: Threads
    ) -> object:
        """Call the function with validated values; a sync one in a thread. Returns what it does."""
        for name in self._signature.context:
            values[name] = ctx
        if self._is_async:
            return await self._function(**values)
        value = await threads.run(functools.partial(_call_sync, self._function, values))
        return await value if inspect.isawaitable(value) else value

    async def call(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolOutput:
        """Validate plain JSON arguments, call the function, and make an output of its value."""
        values = self.validate(_json.dumps(_json.to_plain(arguments)))
        return to_output(await self.invoke(values, ctx, Threads()))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as in a test."""
        return self._function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool:
        if instance is None or not self.unbound:
            return self
        bound = copy.copy(self)
        bound._function = functools.partial(self._function, instance)
        bound.unbound = False
        return bound

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    concurrency_safe: bool = False,
    timeout: float | None = None,
    resource: Resource | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    concurrency_safe: bool = False,
    timeout: float | None = None,
    resource: Resource | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function, method, partial or callable object, sync or async.

    Name, description and the descriptions of the parameters come from the signature and the
    docstring (Google, NumPy or Sphinx style) unless given. `read_only` says that it changes
    nothing, `concurrency_safe` that it may run beside other calls; `timeout` is its deadline in
    seconds (`None`: the session's); calls with the same `resource` never run together. A
    parameter annotated `ToolContext` is given the call's context and is not the model's.

    Raises `ConfigError` for what cannot be a tool, naming the parameter.
    """
    frame = inspect.currentframe()  # annotations that are text may name the caller's local classes
    local = frame.f_back.f_locals if frame is not None and frame.f_back is not None else {}
    del frame  # it holds itself

    def make(function: Callable[..., Any]) -> FunctionTool:
        return _make(
            function,
            local=local,
            name=name,
            description=description,
            read_only=read_only,
            concurrency_safe=concurrency_safe,
            timeout=timeout,
            resource=resource,
        )

    return make if function is None else make(function)


def _make(
    function: Callable[..., Any],
    *,
    local: dict[str, Any],
    name: str | None,
    description: str | None,
    read_only: bool,
    concurrency_safe: bool,
    timeout: float | None,
    resource: Resource | None,
) -> FunctionTool:
    if isinstance(function, type) or not callable(function):
        raise ConfigError(f"{function!r} cannot be a tool: give a function or a callable object")
    called = check_name(_own_name(function) if name is None else name)
    plain = schema.underlying(function)
    if inspect.isasyncgenfunction(plain):
        raise ConfigError(
            f"the tool {called!r} is an async generator: return a value, and tell what happens"
            " meanwhile with ToolContext.progress"
        )
    check_timeout(called, timeout)
    unbound = _is_method_to_be(function)
    signature = schema.read(function, local=local, skip_first=unbound)
    return FunctionTool(
        function,
        name=called,
        description=signature.description if description is None else description,
        signature=signature,
        read_only=read_only,
        concurrency_safe=concurrency_safe,
        timeout=timeout,
        resource=resource,
        unbound=unbound,
    )


def check_name(name: object) -> str:
    """The name itself; raises `ConfigError` when no tool may be called so."""
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise ConfigError(
            f"the tool name {name!r} must be 1 to 64 letters, digits, '_' or '-': give name=…"
        )
    return name


def check_timeout(name: str, timeout: object) -> None:
    """Raises `ConfigError` for a timeout that is not a number of seconds above 0, or None."""
    if timeout is None:
        return
    good = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not good or math.isnan(cast("float", timeout)) or cast("float", timeout) <= 0:
        raise ConfigError(f"timeout={timeout!r} of the tool {name!r}: must be seconds > 0, or None")


def _call_sync(function: Callable[..., Any], values: dict[str, Any]) -> object:
    value = function(**values)
    # What comes bit by bit is read here, in the thread, so that it cannot block the event loop.
    return list(cast("Iterator[object]", value)) if isinstance(value, Iterator) else value


def _own_name(function: Callable[..., Any]) -> str:
    found = schema.unpartial(function)
    return found.__name__ if inspect.isroutine(found) else type(found).__name__


def _is_method_to_be(function: Callable[..., Any]) -> bool:
    """Whether this is a method seen from inside its class's body."""
    if not inspect.isfunction(function):
        return False
    holder = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return (
        bool(holder)
        and not holder.endswith("<locals>")
        and first is not None
        and first.name == "self"
        and first.annotation is inspect.Parameter.empty
    )
