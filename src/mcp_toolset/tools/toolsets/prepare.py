"""`.prepared(…)`: a tool and its calls adapted to the turn for which the view was made."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast, get_origin

from pydantic_core import ValidationError

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import CallError, DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.binding.binding import Prepare, ToolBinding
from mcp_toolset.tools.core.call import ContextWith, ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.declare.signature import resolved_hints
from mcp_toolset.tools.schema.validation import checks_of
from mcp_toolset.tools.text.hidden_text import in_log

TurnOf = Callable[[ToolContext], Any]  # Returns the turn's input from the context of one call; never waits.

_log = logging.getLogger("mcp_toolset.tools")


class Turns:
    """Values of several types for one turn: each function gets the value of its annotated type."""

    def __init__(self, *turns: object) -> None:
        self._turns = turns

    def of(self, kind: Any) -> object:
        """The input of a type; the first input if no type was asked for, `None` if there is none."""
        fitting = (one for one in self._turns if kind is None or isinstance(one, kind))
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

    from mcp_toolset.tools.core.json_schema import UNUSABLE

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
        one
        for one in inspect.signature(function).parameters.values()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
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
