"""`InvalidCall`: a model's call that cannot run but can be recovered from, with its reason."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from typing import Final

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import CallError, UnknownToolError
from mcp_toolset.extensions.model_loop.turns.turn import Arguments, AssistantCall
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall
from mcp_toolset.tools.export.table import Export, ToolMark
from mcp_toolset.tools.view.view import ToolView

NOTHING_OFFERED: Final[Mapping[str, ToolMark]] = {}


class InvalidCallReason(StrEnum):
    """Why a call of the model cannot run."""

    UNKNOWN_TOOL = "unknown_tool"
    UNAVAILABLE_TOOL = "unavailable_tool"
    INVALID_JSON = "invalid_json"
    INVALID_ARGUMENTS = "invalid_arguments"
    CHANGED_TOOL = "changed_tool"
    """The round was stored, and its tool has changed since the model saw it."""
    INTERRUPTED = "interrupted"
    """The round was stored while its tool ran; whether the tool took effect is unknown."""


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """A call that cannot run. The model reads why, and can call again.

    Attributes:
        call: The call as the model sent it; its arguments are text if they were not a JSON object.
        reason: For the application.
        message: For the model; it does not reveal whether an unavailable tool exists.
    """

    call: AssistantCall
    reason: InvalidCallReason
    message: str


def examined(
    call: AssistantCall,
    given: Arguments,
    view: ToolView,
    known: Container[str],
    offered: Mapping[str, ToolMark] = NOTHING_OFFERED,
) -> ToolCall | InvalidCall:
    """A call that can run, or what is wrong with it.

    Args:
        call: The call in the turn.
        given: The arguments to run it with.
        view: The tools that can be called.
        known: Names of further tools that exist but were not offered; the view knows those of its toolset.
        offered: Deferred tools that the provider's own search has shown to the model, in their versions:
            this grants the call by name.
    """
    binding = view.get(call.name)
    if binding is None or (binding.deferred and call.name not in offered):
        return not_callable(call, known=call.name in known or view.knows(call.name))
    if binding.deferred and offered[call.name] != ToolMark.of(binding):
        return changed(call)
    fault = f"Invalid arguments for {call.name}: "
    if isinstance(given, str) or isinstance(call.arguments, str):
        return InvalidCall(call, InvalidCallReason.INVALID_JSON, f"{fault}they are not the JSON of an object")
    decoded = ToolCall(call.name, deepcopy(dict(given)), call.id, deepcopy(call.arguments))
    # Arguments that differ from the model's have been prepared, or edited, in an earlier round.
    if binding.prepare is not None and given == call.arguments:
        try:
            decoded = binding.prepare(decoded, LOCAL_CONTEXT)
        except CallError as refusal:
            return InvalidCall(call, InvalidCallReason.INVALID_ARGUMENTS, str(refusal))
    if misfit := binding.misfit(decoded):
        return InvalidCall(call, InvalidCallReason.INVALID_ARGUMENTS, misfit)
    return decoded


def searched(
    examined: Sequence[ToolCall | InvalidCall], calls: Sequence[AssistantCall], export: Export
) -> list[ToolCall | InvalidCall]:
    """The same for a request with a search of the application: tools may have changed since the request."""
    if export.search is None or not calls:
        return list(examined)
    present = export.search.present()
    pairs = zip(examined, calls, strict=True)
    return [_searched(one, given, export, export.search.name, present) for one, given in pairs]


def _searched(
    one: ToolCall | InvalidCall,
    given: AssistantCall,
    export: Export,
    search: str,
    present: Mapping[str, ToolBinding],
) -> ToolCall | InvalidCall:
    if isinstance(one, InvalidCall):
        if one.reason not in (InvalidCallReason.UNKNOWN_TOOL, InvalidCallReason.UNAVAILABLE_TOOL):
            return one
        return replace(one, message=f"{one.message}; {_to_search(search)}")
    offered, now = (export.view or {}).get(one.name), present.get(one.name)
    if now is None:
        gone = f"{one.name} is not there any more, so it was not run; {_to_search(search)}"
        return InvalidCall(given, InvalidCallReason.CHANGED_TOOL, gone)
    return one if offered is None or ToolMark.of(offered) == ToolMark.of(now) else changed(given)


def _to_search(name: str) -> str:
    return f"find tools with {name}, and call them in the turn after that"


def not_callable(call: AssistantCall, *, known: bool) -> InvalidCall:
    """The issue of a call whose tool does not exist, or is not for this model."""
    reason = InvalidCallReason.UNAVAILABLE_TOOL if known else InvalidCallReason.UNKNOWN_TOOL
    return InvalidCall(call, reason, str(UnknownToolError(call.name)))


def changed(call: AssistantCall) -> InvalidCall:
    """The issue of a call whose tool was replaced or redefined while the round was stored."""
    told = f"{call.name} has changed since it was called, so it was not run; read it again before you call it"
    return InvalidCall(call, InvalidCallReason.CHANGED_TOOL, told)


def interrupted(call: AssistantCall) -> InvalidCall:
    """The issue of a call that was running when the round was stored."""
    told = f"{call.name} was interrupted and may have taken effect or not; find out before you call it again"
    return InvalidCall(call, InvalidCallReason.INTERRUPTED, told)
