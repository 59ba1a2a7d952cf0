"""`ToolRound`: one assistant turn with tool calls, from its message to a committed set of results.

A round goes from `open` to `committed` or `discarded`, once. Every step either succeeds or raises
`RoundError` and changes nothing. `round_plan` has the steps in between; `to_state` returns the round as plain
data after any of them, and `SuspendedRounds` as a sealed text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AsyncExitStack
from copy import deepcopy
from types import TracebackType
from typing import Any, Final, Self, cast

from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.rules import AnyRule
from mcp_toolset.calls.suspended import PATIENCE, Sealer, SuspendedStore, digest_of
from mcp_toolset.errors import DefinitionError, RequestStateError, RoundError
from mcp_toolset.extensions.model_loop.rounds.call_result import (
    NOTHING_OFFERED,
    InvalidCall,
    RoundCommit,
    examined,
    original_of,
    searched,
)
from mcp_toolset.extensions.model_loop.rounds.round_plan import ToolRoundPlan
from mcp_toolset.extensions.model_loop.rounds.round_status import RoundProgress, RoundState, RoundStatus
from mcp_toolset.extensions.model_loop.turns import (
    AssistantCall,
    AssistantTurn,
    turn_from_anthropic,
    turn_from_openai,
    turn_from_responses,
)
from mcp_toolset.security.key_ring import KeyRing
from mcp_toolset.stores.store import StorePlace
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.export import Export
from mcp_toolset.tools.validation import depth_exceeds
from mcp_toolset.tools.view import ToolView, required_view

_SEARCHING: Final = ("anthropic", "openai_responses")  # They have a search of their own.
MAX_ARGUMENT_DEPTH: Final = 200  # Levels of a call's arguments, also as JSON text.


class ToolRound:
    """The tool calls of one model reply, validated: calls that can run, and invalid calls."""

    # Without other attributes: `round.rules = …` would protect nothing.
    __slots__ = ("_plan", "calls", "issues")

    def __init__(self, plan: ToolRoundPlan) -> None:
        self._plan = plan
        plan.progress.holder = plan
        self.calls = plan.calls
        self.issues = plan.issues

    @classmethod
    def of(cls, message: object, export: Export, *, known: Container[str] = ()) -> ToolRound:
        """A round from the model's reply to a request that offered `export`, for any provider.

        Changes made for the provider are undone: in names, in arguments, and for the `null` that strict mode
        makes the model send for an optional argument.

        Args:
            message: The reply, as for `from_openai` and the other constructors.
            export: The result of `view.export(…)` for the request.
            known: As in `from_openai`.
        """
        if isinstance(cast("object", export), ToolView) or not hasattr(export, "provider"):
            raise DefinitionError(
                f"ToolRound.of(…) takes the export of the request, not a {type(export).__name__}: "
                'give view.export("openai"), or use ToolRound.from_openai(message, view)'
            )
        if not isinstance(export.view, ToolView) or export.provider not in _READERS:
            raise DefinitionError(
                f"replies to this export for {export.provider} are not read here; make calls with "
                "export.call(name, arguments, id), and a round of them with ToolRound.from_calls"
            )
        return cls._of(_READERS[export.provider](message), export.view, known, export)

    @classmethod
    def from_openai(
        cls, message: object, view: ToolView, *, known: Container[str] = (), export: Export | None = None
    ) -> ToolRound:
        """A round from the message of a chat completion.

        Args:
            message: A `ChatCompletionMessage`, or the same as a dictionary.
            view: The tools that were offered for this turn.
            known: Names of further tools that exist but were not offered (another view will do): their
                calls are issues with the reason `unavailable_tool`, like calls of tools of the view's
                toolset that are off.
            export: The result of `view.export(…)` for the request, if the tools were offered that way: it
                decodes names and arguments.

        Raises:
            RoundError: it is not an assistant message, or the ids of its calls are not unique.
        """
        return cls._of(turn_from_openai(message), view, known, export)

    @classmethod
    def from_openai_responses(
        cls, response: object, view: ToolView, *, known: Container[str] = (), export: Export | None = None
    ) -> ToolRound:
        """A round from a `Response`, the same as a dictionary, or its output items; see `from_openai`."""
        return cls._of(turn_from_responses(response), view, known, export)

    @classmethod
    def from_anthropic(
        cls, message: object, view: ToolView, *, known: Container[str] = (), export: Export | None = None
    ) -> ToolRound:
        """A round from the response of Anthropic's `messages.create`; see `from_openai`."""
        return cls._of(turn_from_anthropic(message), view, known, export)

    @classmethod
    def from_calls(
        cls, calls: Iterable[ToolCall], view: ToolView, *, known: Container[str] = ()
    ) -> ToolRound:
        """A round from decoded calls, each with a unique id; it fits every provider's messages."""
        required_view(view, "ToolRound.from_calls(…)")
        calls = list(calls)
        for call in calls:
            _check_arguments(call)
        made = tuple(AssistantCall(call.id, call.name, deepcopy(original_of(call))) for call in calls)
        pairs = zip(made, calls, strict=True)
        sorted_out = [examined(call, given.arguments, view, known) for call, given in pairs]
        return cls(_first_plan(AssistantTurn({}, made), sorted_out, view))

    @classmethod
    def _of(
        cls, turn: AssistantTurn, view: ToolView, known: Container[str], export: Export | None
    ) -> ToolRound:
        required_view(view, f"ToolRound.from_{turn.origin or 'calls'}(…)")
        if export is not None and not hasattr(export, "provider"):
            raise DefinitionError(
                f"export=… takes the result of view.export(…), not a {type(export).__name__}"
            )
        turn = turn.decoded(export)
        if export is None and turn.origin in _SEARCHING:
            _check_deferred(turn, view)
        offered = NOTHING_OFFERED if export is None else export.deferred
        sorted_out = [examined(call, call.arguments, view, known, offered) for call in turn.calls]
        if export is not None:
            sorted_out = searched(sorted_out, turn.calls, export)
        return cls(_first_plan(turn, sorted_out, view))

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        view: ToolView,
        *,
        known: Container[str] = (),
        hooks: AnyRule | None = None,
        rules: AnyRule | None = None,
    ) -> ToolRound:
        """Continue a round that was stored, in this process or another; `plan` has its state.

        Decisions, answers and results are kept. A call without a result becomes invalid if its tool no longer
        exists or its definition has changed. So does a call that was running when the round was stored,
        unless its tool is annotated `readOnlyHint` or `idempotentHint`.

        Args:
            state: The data from `to_state`, possibly via JSON.
            view: The present tools.
            known: As in `from_openai`.
            hooks: The hooks that were applied before, for what they must still see: results,
                and the calls behind calling tools.
            rules: The rules that were applied before; needed if they had middleware.

        Raises:
            RoundError: it is not a round's state, or of another version, or hooks or rules are missing.
        """
        from mcp_toolset.extensions.model_loop.rounds.round_state import restored

        required_view(view, "ToolRound.from_state(…)")
        return cls(restored(state, view, known, hooks, rules))

    def to_state(self) -> dict[str, Any]:
        """The round as plain JSON data; `RoundError` if a result has no JSON form."""
        return self.plan.to_state()

    @property
    def plan(self) -> ToolRoundPlan:
        """The newest plan, the only one that can continue."""
        return self._plan.newest

    @property
    def state(self) -> RoundState:
        """The state of the round."""
        return self._plan.state

    @property
    def status(self) -> RoundStatus:
        """Who must act next."""
        return self.plan.status

    @property
    def committed(self) -> RoundCommit | None:
        """The commit, also of a round that was stored after it; `None` before."""
        return self.plan.progress.committed

    def expect_at_most_one(self) -> ToolCall | None:
        """The only call, or `None` if the turn has none; `RoundError` if there are several, or an issue."""
        if (count := len(self.calls) + len(self.issues)) > 1:
            raise RoundError(f"expected at most one call, found {count}; go through them all")
        if self.issues:
            raise RoundError(f"expected a call that can run: {self.issues[0].message}")
        return self.calls[0] if self.calls else None

    def expect_one(self) -> ToolCall:
        """The only call of the turn; `RoundError` unless there is one that can run."""
        if call := self.expect_at_most_one():
            return call
        raise RoundError("expected one call, found none; require one with tool_choice")

    async def apply_hooks(self, hooks: AnyRule, *, context: ToolContext = LOCAL_CONTEXT) -> ToolRoundPlan:
        """Run the execution hooks on every call that can run; the plan replaces the round."""
        return await self._plan.apply_hooks(hooks, context=context)

    async def apply(self, *rules: AnyRule, context: ToolContext = LOCAL_CONTEXT) -> ToolRoundPlan:
        """Apply rules to the calls: hooks, middleware or both; see `ToolRoundPlan.apply`."""
        return await self._plan.apply(*rules, context=context)

    def discard(self) -> None:
        """Discard the assistant's turn; `RoundError` if the round was continued by a plan."""
        self._plan.discard()


_READERS: Final[Mapping[str, Callable[[object], AssistantTurn]]] = {
    "openai": turn_from_openai,
    "openai_responses": turn_from_responses,
    "anthropic": turn_from_anthropic,
}


def _check_deferred(turn: AssistantTurn, view: ToolView) -> None:
    """Refuse to judge calls of deferred tools without the export that says which of them were offered."""
    for call in turn.calls:
        binding = view.get(call.name)
        if binding is not None and binding.deferred:
            raise RoundError(
                f"{call.name} is a deferred tool, and only the export of the request says whether the model "
                "could find it: use ToolRound.of(message, export), or give export=…"
            )


def _check_arguments(call: ToolCall) -> None:
    if not isinstance(call, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(
            f"ToolRound.from_calls(…) takes ToolCalls, not {call!r}; for messages use ToolRound.from_openai, "
            "from_openai_responses or from_anthropic"
        )
    if not isinstance(call.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RoundError(
            f"call {call.id} ({call.name}) has {call.arguments!r} as arguments; give a dictionary"
        )
    if depth_exceeds([call.arguments, call.original], MAX_ARGUMENT_DEPTH):
        raise RoundError(
            f"the arguments of call {call.id} ({call.name}) are nested more than {MAX_ARGUMENT_DEPTH} levels "
            "deep; flatten them"
        )


def _first_plan(
    turn: AssistantTurn, sorted_out: Iterable[ToolCall | InvalidCall], view: ToolView
) -> ToolRoundPlan:
    found = list(sorted_out)
    pending = tuple(call for call in found if isinstance(call, ToolCall))
    issues = tuple(call for call in found if isinstance(call, InvalidCall))
    return ToolRoundPlan(pending, (), (), issues, turn, view, HookSet(), RoundProgress())


_KIND: Final = "suspended round"
_MEND: Final = "show the model its turn again"


class SuspendedRounds:
    """Suspends rounds, and resumes them for the same caller, while its `async with` block is open.

    With a `JournalGuard` among the rules, a call that ran after the round was suspended does not run again.
    """

    def __init__(
        self,
        store: StorePlace | KeyRing,
        *,
        keys: KeyRing | None = None,
        patience: float = PATIENCE,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Seal with the keys of a store.

        Args:
            store: The path of a file, the URL of a store, or a `Store`. It has the keys, and knows which
                texts were used: each is used once. A `KeyRing` alone knows no use, and is not opened.
            keys: Seals the rounds in place of the keys of the store.
            patience: Seconds for which a round can be resumed.
            now: Seconds since the epoch.
        """
        ring = store if isinstance(store, KeyRing) else keys
        self._store = SuspendedStore(None if isinstance(store, KeyRing) else store, keys=ring)
        self._once = None if isinstance(store, KeyRing) else self._store.used(_KIND)
        self._patience = patience
        self._sealer = Sealer(_KIND, lambda: ring or self._store.keys, mend=_MEND, now=now)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the store.

        Raises:
            StoreError: it cannot be opened, or is of another program.
        """
        await self._open.enter_async_context(self._store.running())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self._open.aclose()

    def suspend(self, round: ToolRound | ToolRoundPlan, *, context: ToolContext = LOCAL_CONTEXT) -> str:
        """The round as a text, to be kept anywhere; it goes on for the principal and session of `context`."""
        state, what = round.to_state(), digest_of(context.session or "")
        return self._sealer.seal(state, who=context.principal, what=what, seconds=self._patience)

    async def resume(
        self,
        text: str,
        view: ToolView,
        *,
        known: Container[str] = (),
        context: ToolContext = LOCAL_CONTEXT,
        hooks: AnyRule | None = None,
        rules: AnyRule | None = None,
    ) -> ToolRound:
        """Go on with a round, here or in another process; see `ToolRound.from_state`.

        Args:
            text: What `suspend` returned.
            view: The present tools. A call whose tool has changed since, or is gone, becomes invalid.
            known: As in `from_openai`.
            context: The context that the calls will run with.
            hooks: The hooks that were applied before.
            rules: The rules that were applied before, such as the journal.

        Raises:
            RoundError: the text cannot be used, here, now or any more; or hooks or rules are missing.
            StoreError: it cannot be known now whether it was used.
        """
        what = digest_of(context.session or "")
        try:
            suspended = self._sealer.open(text, who=context.principal, what=what)
            made = ToolRound.from_state(suspended.data, view, known=known, hooks=hooks, rules=rules)
            seconds = 2 * self._patience
            if self._once is not None and not await self._once.use(suspended.id, seconds=seconds):
                raise self._sealer.refused("it was used before; see what its calls have done")
        except RequestStateError as fault:
            raise RoundError(str(fault)) from None
        return made
