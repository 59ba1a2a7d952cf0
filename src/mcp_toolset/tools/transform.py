"""Argument transforms: hide, rename, default or re-describe one parameter of a tool; and `.prepared(…)`.

The model sees one schema, the tool gets the arguments of another, and a table made once converts them.
Converted arguments are checked against the tool's own schema, so that a transform never makes an invalid
call. A prepared tool and its calls are adapted to the turn for which the view was made.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast, get_origin

from pydantic_core import ValidationError

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import CallError, DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.binding import NameUse, Prepare, Reads, ToolBinding, ToolNames, ToolSelector, use_of
from mcp_toolset.tools.call import LOCAL_CONTEXT, ContextWith, ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import resolved_hints
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.validation import SchemaCheck, checks_of
from mcp_toolset.tools.view import KnownTools, UnboundName, unbound

TurnOf = Callable[[ToolContext], Any]  # Returns the turn's input from the context of one call; never waits.

_log = logging.getLogger("mcp_toolset.tools")


class Turns:
    """Values of several types for one turn: each function gets the value of its annotated type."""

    def __init__(self, *turns: object) -> None:
        self._turns = turns

    def of(self, kind: Any) -> object:
        """The input of a type; the first input if no type was asked for, `None` if there is none."""
        fitting = (turn for turn in self._turns if kind is None or isinstance(turn, kind))
        return next(fitting, None)

    def __repr__(self) -> str:
        return f"Turns({', '.join(map(repr, self._turns))})"


PER_CALL: Final = object()  # The turn of a toolset whose calls have their own turns.


@dataclass(frozen=True, slots=True)
class TurnStep:
    """The step of `.with_turn()`: calls are prepared with the function's result."""

    turn_of: TurnOf

    def inside(self, turn: object) -> object:
        return PER_CALL if turn is None else turn

    def __call__(self, binding: ToolBinding) -> ToolBinding:
        if binding.prepare is None:
            return binding
        return replace(binding, prepare=partial(self._prepared, binding.prepare))

    def _prepared(self, prepare: Prepare, call: ToolCall, context: ToolContext) -> ToolCall:
        try:
            turn = self.turn_of(context)
        except CallError:
            raise
        # The application's code may raise anything; the call must not run unprepared.
        except Exception:
            _log.exception("with_turn() failed about a call of %s", in_log(call.name))
            raise InvalidArgumentsError(
                f"the arguments of {call.name} could not be prepared, so it was not run"
            ) from None
        return prepare(call, ContextWith(context, turn=turn))


def turn_step(turn_of: TurnOf) -> TurnStep:
    if not callable(turn_of) or inspect.iscoroutinefunction(turn_of):
        raise DefinitionError(f"with_turn() takes a plain function of the context, not {turn_of!r}")
    return TurnStep(turn_of)


def turn_from_meta(key: str, kind: Any) -> TurnOf:
    """A function for `with_turn` that reads the turn from the `_meta` of a client's request.

    Any client can write this value: to decide who calls, use `context.principal`.

    Args:
        key: The key in `_meta`, with a prefix of yours such as `example.com/turn`.
        kind: A type that the value is parsed to; a request without the key has no turn.
    """
    from pydantic import TypeAdapter

    from mcp_toolset.tools.json_schema import UNUSABLE

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
    except UNUSABLE as fault:
        raise DefinitionError(f"turn_from_meta({key!r}): a turn cannot be a {kind!r}: {fault}") from None

    def turn_of(context: ToolContext) -> Any:
        if key not in context.meta:
            return None
        try:
            return adapter.validate_python(context.meta[key])
        except ValidationError as fault:
            first = fault.errors(include_url=False)[0]
            place = ".".join(map(str, (key, *first["loc"])))
            raise InvalidArgumentsError(
                f"the _meta of the request does not fit: {place}: {first['msg']}"
            ) from None

    return turn_of


PrepareDefinition = (
    Callable[[ToolBinding], ToolDefinition | None] | Callable[[ToolBinding, Any], ToolDefinition | None]
)
"""A tool's definition for a turn, or `None` to leave the tool out."""

PrepareCall = Callable[[ToolCall], Mapping[str, Any]] | Callable[[ToolCall, Any], Mapping[str, Any]]
"""The arguments of a call, to be validated next."""


UNPREPARED: Final = object()  # The turn of a toolset that is only inspected: no function is called.


@dataclass(frozen=True, slots=True)
class TurnFunction:
    """A function of one argument and, if its signature has it, of the turn's input."""

    function: Callable[..., Any]
    shown: str
    takes_turn: bool
    turn_type: Any

    def __call__(self, subject: object, turn: object) -> Any:
        if not self.takes_turn:
            return self.function(subject)
        return self.function(subject, turn.of(self.turn_type) if isinstance(turn, Turns) else turn)

    def require(self, turn: object) -> None:
        given = turn.of(self.turn_type) if isinstance(turn, Turns) else turn
        if self.takes_turn and self.turn_type is not None and not isinstance(given, self.turn_type):
            wanted = getattr(self.turn_type, "__name__", str(self.turn_type))
            raise DefinitionError(
                f"{self.shown} needs a turn of type {wanted}, not {turn!r}; make the view with "
                f"toolset.view(turn=…), serve toolset.with_turn(…), or annotate the parameter as {wanted} "
                "| None"
            )


def turn_function(function: Callable[..., Any]) -> TurnFunction:
    shown = f"the function {getattr(function, '__qualname__', repr(function))} of .prepared()"
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise DefinitionError(f"{shown} must be a plain function; fetch what it needs before the turn")
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(parameters) not in (1, 2):
        raise DefinitionError(
            f"{shown} must take (binding) or (binding, turn), for a call (call) or (call, turn)"
        )
    hints = resolved_hints(function, shown) if len(parameters) == 2 else {}
    return TurnFunction(function, shown, len(parameters) == 2, _checkable(hints.get(parameters[-1].name)))


def _checkable(annotation: Any) -> Any:
    try:
        isinstance(None, annotation)
    except TypeError:
        return get_origin(annotation) if isinstance(get_origin(annotation), type) else None
    return annotation


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """The step of `.prepared()`: its effect on a binding depends on the turn."""

    define: TurnFunction | None
    adjust: TurnFunction | None

    def for_turn(self, turn: object) -> Callable[[ToolBinding], ToolBinding | None]:
        if turn is UNPREPARED:
            return lambda binding: binding
        shown = None if turn is PER_CALL else turn
        if self.define is not None:
            self.define.require(shown)
        if self.adjust is not None and turn is not PER_CALL:
            self.adjust.require(turn)
        return partial(self._prepared, shown, turn)

    def _prepared(self, shown: object, turn: object, binding: ToolBinding) -> ToolBinding | None:
        done = binding if self.define is None else _defined(self.define, shown, binding)
        if done is None or self.adjust is None:
            return done
        return replace(done, prepare=partial(_adjusted, self.adjust, turn, done.prepare))


def prepared_step(define: PrepareDefinition | None, adjust: PrepareCall | None) -> PreparedStep:
    functions = [None if one is None else turn_function(one) for one in (define, adjust)]
    return PreparedStep(*functions)


def _defined(define: TurnFunction, turn: object, binding: ToolBinding) -> ToolBinding | None:
    try:
        definition = cast("object", define(binding, turn))
        return None if definition is None else _redefined(binding, definition)
    # The application's code may raise anything; only this tool is to suffer.
    except Exception:
        _log.exception("%s failed about %s; the tool is hidden", define.shown, in_log(binding.name))
        return None


def _redefined(binding: ToolBinding, definition: object) -> ToolBinding:
    if not isinstance(definition, ToolDefinition):
        raise TypeError(f"a tool is prepared into a ToolDefinition or None, not {definition!r}")
    before = binding.definition
    if definition.name != before.name:
        raise ValueError(f"{before.name!r} cannot become {definition.name!r}: use .renamed()")
    if (definition.input_schema, definition.output_schema) == (before.input_schema, before.output_schema):
        return replace(binding, definition=definition)
    arguments, output = checks_of(definition)
    return replace(binding, definition=definition, arguments=arguments, output=output)


def _adjusted(
    adjust: TurnFunction, turn: object, inner: Prepare | None, call: ToolCall, context: ToolContext
) -> ToolCall:
    try:
        if turn is PER_CALL:
            turn = context.turn
            adjust.require(turn)
        arguments = cast("object", adjust(call, turn))
        if not isinstance(arguments, Mapping):
            raise TypeError(f"a call is prepared into a mapping of arguments, not {arguments!r}")
        done = call.with_arguments(dict(cast("Mapping[str, Any]", arguments)))
    except CallError:
        raise
    # The application's code may raise anything; the call must not run unprepared.
    except Exception:
        _log.exception("%s failed about a call of %s", adjust.shown, in_log(call.name))
        raise InvalidArgumentsError(
            f"the arguments of {call.name} could not be prepared, so it was not run"
        ) from None
    return done if inner is None else inner(done, context)


Schema = Mapping[str, Any]

_DATA: Final = frozenset({"enum", "const", "default", "examples", "example"})
"""Keywords whose values are data, not schemas."""

_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose values are schemas by name."""

_TYING: Final = (
    "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    "dependentSchemas", "dependentRequired", "dependencies",
)  # fmt: skip
"""Keywords of the root that can link parameters to each other; harmless if they do not name them."""

_WHOLE: Final = (
    "patternProperties", "propertyNames", "minProperties", "maxProperties",
    "$ref", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
"""Keywords of the root that concern all parameters at once."""


def refuse_ties(where: str, schema: Schema, names: set[str]) -> None:
    """Raise `DefinitionError` if a keyword of the root links parameters of these names to others."""
    for keyword in (*_WHOLE, *_TYING):
        if keyword in schema and (keyword in _WHOLE or _names_any(schema[keyword], names)):
            raise DefinitionError(
                f"{where}: {keyword!r} at the root of its schema ties parameters together, "
                f"so {', '.join(sorted(names))} can only be described"
            )


def _names_any(value: object, names: set[str]) -> bool:
    if isinstance(value, str):
        return value in names
    if isinstance(value, Mapping):
        known = cast("Mapping[str, object]", value)
        return any(key in names or key in _WHOLE for key in known) or any(
            _names_any(item, names) for item in known.values()
        )
    return isinstance(value, list) and any(_names_any(item, names) for item in cast("list[object]", value))


def detached(schema: Schema) -> Schema:
    """The schema with its references into the root, whose parameters change, to a copy of the root."""
    known: Mapping[str, Any] = schema.get("$defs") or {}
    key = "arguments"
    while key in known:
        key += "_"
    turned = _turned(schema, f"#/$defs/{key}")
    if turned == schema:
        return schema
    outer = ("$id", "$schema", "$defs", "definitions")
    own = {name: value for name, value in turned.items() if name not in outer}
    return {**turned, "$defs": {**turned.get("$defs", {}), key: own}}


def _turned(schema: Any, home: str) -> Any:
    if isinstance(schema, list):
        return [_turned(item, home) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    done: dict[str, Any] = {}
    for keyword, value in cast("Schema", schema).items():
        if keyword in ("$dynamicRef", "$recursiveRef"):
            raise DefinitionError(
                f"a schema with {keyword!r} cannot have its parameters changed, only described"
            )
        if keyword == "$ref" and isinstance(value, str):
            is_rooted = value == "#" or re.match(r"#/(?!\$defs/|definitions/)", value)
            done[keyword] = home + value[1:] if is_rooted else value
        elif keyword in _MAPS and isinstance(value, Mapping):
            done[keyword] = {name: _turned(one, home) for name, one in cast("Schema", value).items()}
        else:
            done[keyword] = value if keyword in _DATA else _turned(value, home)
    return done


def examples_mapped(schema: dict[str, Any], public: Mapping[str, str], *, hidden: set[str]) -> dict[str, Any]:

    def mapped(example: Any) -> Any:
        if not isinstance(example, Mapping):
            return example
        given = cast("Schema", example)
        return {public.get(name, name): value for name, value in given.items() if name not in hidden}

    changed: dict[str, Any] = {}
    if isinstance(schema.get("examples"), list):
        changed["examples"] = [mapped(example) for example in schema["examples"]]
    if "default" in schema:
        changed["default"] = mapped(schema["default"])
    return {**schema, **changed}


V = TypeVar("V")


BySelector = Mapping[str, V] | Mapping[Tool[..., Any], V] | Mapping[ToolSelector, V]
"""A value for each of some tools; mappings do not widen their keys, so all three types are named."""


class NamedStep(Generic[V]):
    """The step of a verb for each tool, given its value for that tool, if any."""

    def __init__(
        self,
        verb: str,
        by: Mapping[ToolSelector, V],
        act: Callable[[ToolBinding, V | None], ToolBinding | None],
    ) -> None:
        uses = ((use_of(selector, verb), value) for selector, value in by.items())
        self._by = [(use, value) for use, value in uses if use is not None]
        self._act = act
        self.is_bound = False
        """True if each name matched a tool when this was last used."""

    @property
    def names_only(self) -> bool:
        """True if it depends on the tools only: the members of a group of tools may change."""
        return all(use.tool is None for use, _ in self._by)

    def among(self, bindings: Iterable[ToolBinding]) -> Callable[[ToolBinding], ToolBinding | None]:
        table = self._told(ToolNames(bindings))
        return lambda binding: self._act(binding, table.get(binding.name))

    def unbound(self, bindings: Iterable[ToolBinding], known: KnownTools) -> list[UnboundName]:
        bindings = list(bindings)
        unbound_uses = unbound((use for use, _ in self._by), ToolNames(bindings), known)
        if len(known.sources) != 1 or not all(binding.source for binding in bindings):
            return unbound_uses
        return [replace(one, server=known.sources[0].source_name) for one in unbound_uses]

    def told(self, bindings: Iterable[ToolBinding]) -> Mapping[str, V]:
        return self._told(ToolNames(bindings))

    def _told(self, names: ToolNames) -> Mapping[str, V]:
        chosen: dict[str, tuple[int, V]] = {}
        self.is_bound = all(names.reached(use) and not names.is_ambiguous(use) for use, _ in self._by)
        for use, value in self._by:
            for name in names.reached(use):
                rank = _rank(use, name)
                if name not in chosen or rank < chosen[name][0]:
                    chosen[name] = (rank, value)
        return {name: value for name, (_, value) in chosen.items()}


def _rank(use: NameUse, name: str) -> int:
    if use.tool is not None:
        return 1
    return 3 if use.is_pattern else 0 if use.name == name else 2


class _Unset:
    def __repr__(self) -> str:
        return "unset"


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True)
class ArgumentTransform:
    """The transform of one parameter; made by `hide`, `rename`, `default` and `describe`.

    `|` combines several for the same parameter: `rename("q") | describe("What to look for")`.

    Attributes:
        hidden: True if the parameter is hidden from the model.
        value: The fixed value of a hidden parameter; unset means the tool's own default.
        name: The name that the model sees.
        fallback: The value if the model leaves it out.
        description: The description that the model reads.
    """

    hidden: bool = False
    value: Any = UNSET
    name: str | None = None
    fallback: Any = UNSET
    description: str | None = None

    def __or__(self, other: ArgumentTransform) -> ArgumentTransform:
        """Both transforms; where they set the same thing, the later wins."""
        if self.hidden != other.hidden:
            raise DefinitionError("hide() cannot be joined with a transform of what the model sees")
        return ArgumentTransform(
            self.hidden,
            self.value if other.value is UNSET else other.value,
            self.name if other.name is None else other.name,
            self.fallback if other.fallback is UNSET else other.fallback,
            self.description if other.description is None else other.description,
        )

    @property
    def only_describes(self) -> bool:
        """True if the arguments stay unchanged."""
        return not self.hidden and self.name is None and self.fallback is UNSET


def hide(*, value: Any = UNSET) -> ArgumentTransform:
    """Hide a parameter from the model: it always has `value`, or the tool's own default."""
    return ArgumentTransform(hidden=True, value=deepcopy(value) if value is not UNSET else UNSET)


def rename(name: str) -> ArgumentTransform:
    """Show a parameter under another name. Raises `DefinitionError`: the name is not a non-empty text."""
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"a parameter cannot be renamed to {name!r}; give a non-empty name")
    return ArgumentTransform(name=name)


def default(value: Any) -> ArgumentTransform:
    """Make a parameter optional: it has `value` if the model leaves it out."""
    return ArgumentTransform(fallback=deepcopy(value))


def describe(text: str) -> ArgumentTransform:
    """Replace the description of a parameter."""
    return ArgumentTransform(description=text)


@dataclass(frozen=True, slots=True)
class ArgumentMap:
    """Converts the model's arguments to the tool's."""

    inner: Mapping[str, str]  # The tool's name of each renamed parameter, by the name that the model sees.
    fixed: Mapping[str, Any]  # Hidden parameters with their values.
    fallbacks: Mapping[str, Any]  # Values of parameters that the model may leave out.
    blocked: frozenset[str]  # Names that only the tool uses; a model cannot set them.

    def inward(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = {
            self.inner.get(name, name): value for name, value in arguments.items() if name not in self.blocked
        }
        absent = {name: value for name, value in self.fallbacks.items() if name not in given}
        return {**given, **deepcopy(absent), **deepcopy(dict(self.fixed))}


Transforms = Mapping[str, ArgumentTransform]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The transforms of one tool, applied to one version of its definition; no table if only texts differ."""

    definition: ToolDefinition
    table: ArgumentMap | None = None
    arguments: SchemaCheck | None = None

    def of(self, binding: ToolBinding) -> ToolBinding:
        if self.table is None or self.arguments is None:
            return replace(binding, definition=self.definition)
        run = partial(_run, binding, self.table)
        return replace(
            binding,
            definition=self.definition,
            arguments=self.arguments,
            execute=run,
            prepare=None,
            reads=None if binding.reads is None else partial(_read, binding, binding.reads, self.table),
        )


def arrange(binding: ToolBinding, transforms: Transforms) -> Arrangement:
    where = f"tool {binding.name!r} ({binding.place})" if binding.place else f"tool {binding.name!r}"
    before = binding.definition
    if binding.contract is not None:
        raise DefinitionError(f"{where} is listed by a manifest; change the arguments in its contract")
    _check(where, before.input_schema, transforms)
    moving = {name: transform for name, transform in transforms.items() if not transform.only_describes}
    if moving:
        _require_movable(where, binding, moving)
    shown = _shown(before.input_schema, transforms)
    definition = replace(before, input_schema=shown)
    if not moving:
        return Arrangement(definition)
    table = _table(moving)
    check = SchemaCheck(_guarded(shown, table.blocked), tool=binding.name, part="inputSchema")
    return Arrangement(definition, table, check)


class ArgumentStep(NamedStep[Transforms]):
    """The step of `.with_arguments()`; its result for a tool is made once for each definition."""

    def __init__(self, by: Mapping[ToolSelector, Transforms]) -> None:
        super().__init__("with_arguments", by, self._transformed)
        self._made: dict[str, tuple[ToolDefinition, Arrangement | str]] = {}

    def _transformed(self, binding: ToolBinding, transforms: Transforms | None) -> ToolBinding | None:
        if transforms is None:
            return binding
        made = self._arranged(binding, transforms)
        return None if isinstance(made, str) else made.of(binding)

    def refused(self, bindings: Iterable[ToolBinding]) -> list[tuple[str, str]]:
        bindings = list(bindings)
        told = self.told(bindings)
        made = [
            (binding.name, self._arranged(binding, told[binding.name]))
            for binding in bindings
            if binding.name in told
        ]
        return [(name, reason) for name, reason in made if isinstance(reason, str)]

    def _arranged(self, binding: ToolBinding, transforms: Transforms) -> Arrangement | str:
        known = self._made.get(binding.name)
        if known is None or known[0] != binding.definition:
            known = (binding.definition, _arranged(binding, transforms))
            self._made[binding.name] = known
        return known[1]


def _arranged(binding: ToolBinding, transforms: Transforms) -> Arrangement | str:
    try:
        return arrange(binding, transforms)
    except DefinitionError as fault:
        if not binding.source:
            raise
        _log.warning("%s; it is left out", in_log(fault))
        return str(fault)


async def _run(binding: ToolBinding, table: ArgumentMap, call: ToolCall, context: ToolContext) -> ToolResult:
    call = call.with_arguments(table.inward(call.arguments))
    if binding.prepare is not None:
        call = binding.prepare(call, context)
    if not binding.arguments.is_valid(call.arguments):
        # The model must not read a hidden value, and the text of a problem may quote it.
        faults = () if table.fixed else binding.arguments.problems(call.arguments)
        raise InvalidArgumentsError(
            f"Invalid arguments for {call.name}: {'; '.join(faults) or 'they do not fit together'}"
        )
    return await binding.execute(call, context)


def _read(binding: ToolBinding, reads: Reads, table: ArgumentMap, call: ToolCall) -> Any:
    call = call.with_arguments(table.inward(call.arguments))
    return reads(call if binding.prepare is None else binding.prepare(call, LOCAL_CONTEXT))


def _check(where: str, schema: Schema, transforms: Transforms) -> None:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    for name, transform in transforms.items():
        if name not in properties:
            known = ", ".join(properties) or "none"
            raise DefinitionError(f"{where} has no parameter {name!r} to transform; its parameters: {known}")
        if transform.hidden and transform.value is UNSET and name in schema.get("required", ()):
            raise DefinitionError(f"{where}: parameter {name!r} is required; hide it with hide(value=…)")
        for value in (transform.value, transform.fallback):
            _require_fitting(where, schema, name, value)
    names = [one.name or name for name, one in _every(properties, transforms).items() if not one.hidden]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DefinitionError(f"{where}: two parameters would be named {twice[0]!r}; choose another name")


def _require_fitting(where: str, schema: Schema, name: str, value: Any) -> None:
    if value is UNSET:
        return
    kept = {
        key: schema[key] for key in ("$schema", "$id", "$defs", "definitions", "properties") if key in schema
    }
    problems = SchemaCheck(kept, tool=name, part="inputSchema").problems({name: value})
    if problems:
        raise DefinitionError(f"{where}: parameter {name!r} cannot be {value!r}: {problems[0]}")


def _require_movable(where: str, binding: ToolBinding, moving: Transforms) -> None:
    if binding.manual:
        raise DefinitionError(
            f"{where} is manual: the application gets its arguments as the model gives them, "
            "so its parameters can only be described"
        )
    names = {*moving, *(one.name for one in moving.values() if one.name is not None)}
    refuse_ties(where, binding.definition.input_schema, names)


def _every(properties: Mapping[str, Any], transforms: Transforms) -> dict[str, ArgumentTransform]:
    return {name: transforms.get(name, ArgumentTransform()) for name in properties}


def _table(moving: Transforms) -> ArgumentMap:
    inner = {one.name: name for name, one in moving.items() if one.name is not None}
    away = {name for name, one in moving.items() if one.hidden or one.name is not None}
    return ArgumentMap(
        inner=inner,
        fixed={name: one.value for name, one in moving.items() if one.value is not UNSET},
        fallbacks={name: one.fallback for name, one in moving.items() if one.fallback is not UNSET},
        blocked=frozenset(away - inner.keys()),
    )


def _shown(schema: Schema, transforms: Transforms) -> dict[str, Any]:
    if any(not transform.only_describes for transform in transforms.values()):
        schema = detached(schema)
    every = _every(schema.get("properties") or {}, transforms)
    visible = {name: one for name, one in every.items() if not one.hidden}
    public = {name: one.name or name for name, one in visible.items()}
    properties = {public[name]: _property(schema["properties"][name], one) for name, one in visible.items()}
    required = [public.get(name, name) for name in schema.get("required", ()) if _stays(name, every)]
    kept = {key: value for key, value in schema.items() if key != "required"}
    shown = {**kept, "properties": properties, **({"required": required} if required else {})}
    return examples_mapped(shown, public, hidden=every.keys() - public.keys())


def _stays(name: str, every: Mapping[str, ArgumentTransform]) -> bool:
    one = every.get(name)
    return one is None or (not one.hidden and one.fallback is UNSET)


def _property(schema: Any, one: ArgumentTransform) -> Any:
    changed: dict[str, Any] = {}
    if one.description is not None:
        changed["description"] = one.description
    if one.fallback is not UNSET:
        changed["default"] = deepcopy(one.fallback)
    if not changed:
        return schema
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    return {**schema, **changed}


def _guarded(shown: Schema, blocked: frozenset[str]) -> dict[str, Any]:
    """The schema that is checked: names that only the tool uses are refused, even if any name is allowed."""
    return {**shown, "properties": {**shown["properties"], **dict.fromkeys(blocked, False)}}
