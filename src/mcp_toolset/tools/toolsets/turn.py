"""The input of a turn, for `.prepared()` and providers: where it comes from, and which toolset gets it.

In an owned loop the application passes it: `tools.view(turn=Turn(user="ann"))`. Over MCP a function takes it
from each request: `tools.with_turn(function of the context)`. Toolsets that need turns of different types
each have their own `with_turn`, or in a loop the value of their type among `Turns`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pydantic_core import ValidationError

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import CallError, DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.binding.binding import Prepare, ToolBinding
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.text.hidden_text import in_log

TurnOf = Callable[[ToolContext], Any]
"""Returns the turn's input from the context of one call; never waits."""

_log = logging.getLogger("mcp_toolset.tools")
_OWN: Final = frozenset({"_context", "turn"})


class Turns:
    """Values of several types for one turn: each function gets the value of its annotated type."""

    def __init__(self, *turns: object) -> None:
        """Hold the values, each of another type."""
        self._turns = turns

    def of(self, kind: Any) -> object:
        """The input of a type; the first input if no type was asked for, `None` if there is none."""
        fitting = (one for one in self._turns if kind is None or isinstance(one, kind))
        return next(fitting, None)

    def __repr__(self) -> str:
        """The inputs."""
        return f"Turns({', '.join(map(repr, self._turns))})"


class PerCall:
    """The turn of a toolset whose calls have their own turns."""


PER_CALL: Final = PerCall()


class TurnContext(ToolContext):
    """A wrapper of a context with the turn of its call."""

    __slots__ = ("_context", "turn")

    def __init__(self, context: ToolContext, turn: object) -> None:
        """Wrap `context`."""
        self._context = context
        self.turn = turn

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_context"), name)


@dataclass(frozen=True, slots=True)
class TurnStep:
    """The step of `.with_turn()`: calls are prepared with the function's result."""

    turn_of: TurnOf

    def inside(self, turn: object) -> object:
        """The turn that the inner toolset is compiled for: a given turn wins over those of calls."""
        return PER_CALL if turn is None else turn

    def __call__(self, binding: ToolBinding) -> ToolBinding:
        """The binding; each of its calls is prepared with its own turn."""
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
        return prepare(call, TurnContext(context, turn))


def turn_step(turn_of: TurnOf) -> TurnStep:
    """The step of a function. Raises `DefinitionError`: it is not a plain function of the context."""
    if not callable(turn_of) or inspect.iscoroutinefunction(turn_of):
        raise DefinitionError(f"with_turn() takes a plain function of the context, not {turn_of!r}")
    return TurnStep(turn_of)


def turn_from_meta(key: str, kind: Any) -> TurnOf:
    """A function for `with_turn` that reads the turn from the `_meta` of a client's request.

    Any client can write this value: to decide who calls, use `context.principal`.

    Args:
        key: The key in `_meta`, with a prefix of yours such as `example.com/turn`.
        kind: A model, dataclass or other type that the value is parsed to; a request without the key
            has no turn.

    Raises:
        DefinitionError: the type cannot be parsed from JSON.
    """
    from pydantic import TypeAdapter

    from mcp_toolset.tools.schema.json_schema import UNUSABLE

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
