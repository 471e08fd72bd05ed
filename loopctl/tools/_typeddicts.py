"""`typing.TypedDict` for Pythons below 3.12, where pydantic takes only its backport (TOL-2)."""

from __future__ import annotations

import sys
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin


def modern(annotation: Any) -> Any:
    """The annotation with every `typing.TypedDict` in it replaced by its equal of the backport."""
    return annotation if sys.version_info >= (3, 12) else _modern(annotation, ())


def _modern(annotation: Any, above: tuple[Any, ...]) -> Any:
    if typing.is_typeddict(annotation):
        old = type(annotation).__module__ == "typing"
        return _rebuilt(annotation, (*above, annotation)) if old else annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None or origin is Literal or not arguments:
        return annotation
    if origin is Annotated:
        return Annotated[(_modern(arguments[0], above), *annotation.__metadata__)]
    inner = tuple(_known(argument, above) for argument in arguments)
    if inner == arguments:
        return annotation
    if origin is types.UnionType:
        return Union[inner]  # noqa: UP007 - made at run time
    return annotation.copy_with(inner) if hasattr(annotation, "copy_with") else origin[inner]


def _known(argument: Any, above: tuple[Any, ...]) -> Any:
    return argument if argument in above else _modern(argument, above)


def _rebuilt(old: Any, above: tuple[Any, ...]) -> Any:
    import typing_extensions  # pydantic itself stands on it

    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(old, include_extras=True).items():
        optional = name in old.__optional_keys__
        # Annotations that were text hide these two from the class itself, so they win.
        while (marker := get_origin(hint)) in (typing.Required, typing.NotRequired):
            optional = marker is typing.NotRequired
            hint = get_args(hint)[0]
        hint = _known(hint, above)
        fields[name] = typing_extensions.NotRequired[hint] if optional else hint
    # Called by another name: type checkers take the call itself for a declaration.
    make: Any = typing_extensions.TypedDict
    made = make(old.__name__, fields)
    made.__doc__ = old.__doc__
    made.__module__ = old.__module__
    return made
