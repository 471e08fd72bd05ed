"""From a function's signature to a JSON schema and a validator, made once with the tool (TOL-2).

Each parameter becomes a field of one pydantic model that nobody else sees. What a tool cannot
have is a `ConfigError` that names the parameter.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from loopctl import _json
from loopctl.errors import ConfigError
from loopctl.tools import docstrings
from loopctl.tools._typeddicts import modern
from loopctl.tools.arguments import ArgumentsInvalid, quote
from loopctl.tools.types import ToolContext


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes: its schema, its prose, the parameters that want the context.

    `defaulted` are fields whose default is the function's own: left out, they are not passed.
    """

    description: str
    input_schema: dict[str, Any]
    context: tuple[str, ...]
    model: type[BaseModel]
    names: Mapping[str, str]
    defaulted: frozenset[str]

    def validate(self, text: str) -> dict[str, Any]:
        """The keyword arguments in the JSON text of an object.

        A `null` where a default exists and null is not allowed means the default: strict schemas
        make models send it. Raises `ArgumentsInvalid`.
        """
        try:
            return self._load(text)
        except (ValidationError, UnicodeError):
            pass  # the second way is slower and knows more
        arguments = _json.loads(text)
        try:
            return self._load(_json.wire(arguments))
        except ValidationError as error:
            first = error
        for _ in range(_NULL_ROUNDS):
            if not _drop_nulls(arguments, first):
                break
            try:
                return self._load(_json.wire(arguments))
            except ValidationError as error:
                first = error
        raise ArgumentsInvalid(_problems(first))

    def _load(self, text: str | bytes) -> dict[str, Any]:
        made = self.model.__pydantic_validator__.validate_json(text)
        given = made.__pydantic_fields_set__
        names, defaulted = self.names, self.defaulted
        return {
            names[field]: value
            for field, value in made.__dict__.items()
            if field in given or field not in defaulted
        }


_NULL_ROUNDS = 3  # a null inside a union may show only after an outer one is gone


def read(
    function: Callable[..., Any], *, local: Mapping[str, Any], skip_first: bool = False
) -> Signature:
    """Read a function's signature and docstring.

    `local` are the names visible where the tool is made, for annotations that are text;
    `skip_first` leaves out the `self` of a method that is not bound yet.
    """
    plain = underlying(function)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{_called(function)} has no signature to read: {error}") from error
    bound = _bound_names(function)
    doc = docstrings.parse(_docstring(function, plain))
    context: list[str] = []
    fields: dict[str, tuple[str, Any, Any]] = {}
    defaulted: set[str] = set()
    for parameter in parameters[1:] if skip_first else parameters:
        if parameter.name in bound:
            continue
        annotation = _annotation(function, plain, parameter, local)
        if _is_context(annotation):
            context.append(parameter.name)
            continue
        field = f"field{len(fields)}"
        described = doc.parameters.get(parameter.name)
        fields[field] = (parameter.name, *_field(parameter, annotation, described))
        default = parameter.default
        if default is not inspect.Parameter.empty and not isinstance(default, FieldInfo):
            defaulted.add(field)
    model, schema = _model(function, fields)
    names = {field: name for field, (name, _, _) in fields.items()}
    return Signature(doc.description, schema, tuple(context), model, names, frozenset(defaulted))


def unpartial(function: Callable[..., Any]) -> Callable[..., Any]:
    """The callable inside partials."""
    found: Any = function
    while isinstance(found, functools.partial):
        found = cast("functools.partial[Any]", found).func
    return cast("Callable[..., Any]", found)


def entry_point(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function or method that runs when this is called."""
    found: Any = unpartial(function)
    return cast("Callable[..., Any]", found if inspect.isroutine(found) else found.__call__)


def underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function inside partials, methods, wrappers and callable objects."""
    found: Any = inspect.unwrap(entry_point(function))
    return cast("Callable[..., Any]", getattr(found, "__func__", found))


class _Schema(GenerateJsonSchema):
    """Schemas without made-up titles, the same in every process, and without warnings."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        return (
            _json.to_plain(dft)
            if isinstance(dft, (set, frozenset))
            else super().encode_default(dft)
        )

    def emit_warning(self, kind: Any, detail: str) -> None:
        """A default that JSON cannot say is left out of the schema; the function still has it."""


def _model(
    function: Callable[..., Any], fields: Mapping[str, tuple[str, Any, Any]]
) -> tuple[type[BaseModel], dict[str, Any]]:
    definitions: dict[str, Any] = {field: (kind, info) for field, (_, kind, info) in fields.items()}
    config = ConfigDict(extra="forbid", protected_namespaces=())
    try:
        try:
            model = create_model("Arguments", __config__=config, **definitions)
        except Exception:
            # At its first model, and only then, pydantic reads the metadata of every package that
            # is installed, and fails where one is broken.
            model = create_model("Arguments", __config__=config, **definitions)
        schema = model.model_json_schema(schema_generator=_Schema)
    except Exception as error:
        raise ConfigError(_blame(function, fields, error)) from error
    del schema["title"]
    for name, definition in schema.get("$defs", {}).items():
        if definition.get("title") == name:
            del definition["title"]
    return model, schema


def _blame(
    function: Callable[..., Any], fields: Mapping[str, tuple[str, Any, Any]], error: Exception
) -> str:
    for name, kind, _ in fields.values():
        try:
            TypeAdapter(kind).json_schema(schema_generator=_Schema)
        except Exception as cause:
            return _refusal(function, name, f"its type has no JSON schema: {_first_line(cause)}")
    return f"the tool {_called(function)!r} has no JSON schema: {_first_line(error)}"


def _annotation(
    function: Callable[..., Any],
    plain: Callable[..., Any],
    parameter: inspect.Parameter,
    local: Mapping[str, Any],
) -> Any:
    problem = _FORBIDDEN.get(parameter.kind)
    if problem is None and parameter.annotation is inspect.Parameter.empty:
        problem = "it needs a type annotation"
    if problem is not None:
        raise ConfigError(_refusal(function, parameter.name, problem))
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        hints = typing.get_type_hints(
            holder, getattr(plain, "__globals__", {}), dict(local), include_extras=True
        )
    except Exception as error:
        problem = f"its annotation {parameter.annotation!r} cannot be resolved: {error}"
        raise ConfigError(_refusal(function, parameter.name, problem)) from error
    return modern(hints[parameter.name])


_FORBIDDEN: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "a model cannot give *args; take a list",
    inspect.Parameter.VAR_KEYWORD: "a model cannot give **kwargs; name the parameters",
    inspect.Parameter.POSITIONAL_ONLY: "arguments come by name; it must not be positional-only",
}


def _field(parameter: inspect.Parameter, kind: Any, described: str | None) -> tuple[Any, Any]:
    """The type and the field info of one parameter, under the parameter's own name."""
    settings: dict[str, Any] = {"alias": parameter.name}
    default = parameter.default
    if isinstance(default, FieldInfo):
        kind = Annotated[kind, default]
    elif default is not inspect.Parameter.empty:
        settings["default"] = default
    if described is not None and not _is_described(kind):
        settings["description"] = described
    return kind, Field(**settings)


def _is_described(kind: Any) -> bool:
    found = [item for item in get_args(kind)[1:] if isinstance(item, FieldInfo)]
    return get_origin(kind) is Annotated and any(item.description for item in found)


def _is_context(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_context(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return any(_is_context(option) for option in get_args(annotation))
    kind = annotation if origin is None else origin
    return isinstance(kind, type) and issubclass(kind, ToolContext)


def _bound_names(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters that partials have given a value: they are no longer the model's."""
    names: set[str] = set()
    found: Any = function
    while isinstance(found, functools.partial):
        partial = cast("functools.partial[Any]", found)
        names.update(partial.keywords)
        found = partial.func
    return frozenset(names)


def _docstring(function: Callable[..., Any], plain: Callable[..., Any]) -> str | None:
    """The function's own words; a callable object may speak through its class instead."""
    found = unpartial(function)
    return plain.__doc__ or (None if inspect.isroutine(found) else type(found).__doc__)


def _drop_nulls(arguments: Any, error: ValidationError) -> bool:
    """Take out the nulls that the error complains of; whether there were any."""
    dropped = False
    for problem in error.errors(include_url=False, include_context=False):
        if problem["input"] is not None:
            continue
        holder: Any = None
        key: Any = None
        value = arguments
        for step in problem["loc"]:  # steps that are no key name the member of a union
            inside = (isinstance(value, dict) and step in value) or (
                isinstance(value, list) and isinstance(step, int) and step < len(cast("Any", value))
            )
            if inside:
                holder, key = cast("Any", value), step
                value = holder[key]
        if value is None and isinstance(holder, dict):
            del holder[key]
            dropped = True
    return dropped


def _problems(error: ValidationError) -> Sequence[str]:
    return [
        f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {_PROBLEMS[problem['type']]}"
        if problem["type"] in _PROBLEMS
        else f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
        f", not {quote(problem['input'])}"
        for problem in error.errors(include_url=False, include_context=False)
    ]


_PROBLEMS = {
    "missing": "this field is required",
    "extra_forbidden": "there is no such field",
}


def _refusal(function: Callable[..., Any], parameter: str, problem: str) -> str:
    return f"the parameter {parameter!r} of the tool {_called(function)!r}: {problem}"


def _called(function: Callable[..., Any]) -> str:
    plain = underlying(function)
    return str(getattr(plain, "__qualname__", plain))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
