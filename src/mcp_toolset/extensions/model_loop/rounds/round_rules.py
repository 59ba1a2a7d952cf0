"""Hooks, observers and middleware on the calls of a round, and the questions that middleware asks the user.

A question of a middleware or of a hook inside it is a question of the round. At that time the tool has not
run; with the answer the call runs again from the start, and the question is answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.pipeline.chain import completed
from mcp_toolset.calls.pipeline.decision import Complete, Reject, rejection
from mcp_toolset.calls.pipeline.hook_chain import decided, seen
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.observers import CallObserver, Observation, digest_of, noting, tell
from mcp_toolset.calls.pipeline.reporting import report_of
from mcp_toolset.calls.pipeline.rules import Rules
from mcp_toolset.errors import CannotAskError, InvalidOutputError
from mcp_toolset.extensions.model_loop.rounds.call_result import HandledCall, RejectedCall
from mcp_toolset.extensions.model_loop.rounds.invalid_call import InvalidCall
from mcp_toolset.extensions.model_loop.turns.turn import AssistantCall
from mcp_toolset.tools.core.asking import ElicitationAnswer, InputRequired, elicitation
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolBinding, ToolView

Answer = ToolCall | HandledCall | RejectedCall
"""The outcome of hooks for a call: answered, refused, or to be run with its last input."""


async def ask_hooks(
    call: ToolCall, view: ToolView, hooks: HookSet, seeing: HookSet, context: ToolContext
) -> Answer:
    """Run the hooks of a tool on a call, in order, after its gate.

    A hook gets a copy of the arguments, and the arguments that it returns are checked again even if it edited
    that copy in place. Answers and refusals of hooks are shown to the result hooks in `seeing`. A call of a
    calling tool such as `call_tool` is left for when it runs.
    """
    binding = view[call.name]
    if binding.redirect is not None:
        return call
    found = await decided(call, binding, hooks.execution_hooks(binding, view.names), context)
    if isinstance(found, ToolCall):
        return found
    call, decision = found
    made = _completed(binding, decision) if isinstance(decision, Complete) else decision
    shown_to = seeing.result_hooks(binding, view.names)
    if isinstance(made, Reject):
        return RejectedCall(call, made, await seen(call, rejection(made), shown_to, context))
    return HandledCall(call, await seen(call, made, shown_to, context))


def _completed(binding: ToolBinding, decision: Complete) -> Reject | ToolResult:
    try:
        return completed(binding, decision)
    except InvalidOutputError as fault:
        return Reject(str(fault))


def asks_anything(hooks: HookSet, view: ToolView) -> bool:
    names = view.names
    return any(hooks.execution_hooks(one, names) or hooks.result_hooks(one, names) for one in view.values())


class HooksLeft(HookSet):
    """The hooks that a run of calls must still ask: all but the execution hooks outside of middleware."""

    def __init__(self, hooks: HookSet, inside: HookSet | None = None) -> None:
        """Take the hooks of `hooks`, but as execution hooks those of `inside` alone."""
        super().__init__()
        vars(self).update(vars(hooks))
        self._execution = [] if inside is None else [*inside._execution]


async def ask_hooks_observed(
    call: ToolCall,
    view: ToolView,
    hooks: HookSet,
    seeing: HookSet,
    context: ToolContext,
    *,
    observers: Sequence[CallObserver],
    round: str,
) -> Answer:
    """Run hooks on a call; report it if they answered or refused it."""
    if not observers:
        return await ask_hooks(call, view, hooks, seeing, context)
    digest = digest_of(observers)
    seen = Observation(binding=view[call.name], arguments=digest(call.arguments) if digest else "")
    with noting(seen):
        answer = await ask_hooks(call, view, hooks, seeing, context)
    if not isinstance(answer, ToolCall):
        tell(observers, replace(report_of(seen, call, context, answer.result), round=round))
    return answer


def tell_invalid(
    invalid: Iterable[InvalidCall],
    view: ToolView,
    context: ToolContext,
    *,
    observers: Sequence[CallObserver],
    round: str,
) -> None:
    if not observers:
        return
    for issue in invalid:
        call, seen = (
            ToolCall(issue.call.name, {}, issue.call.id),
            Observation(binding=view.get(issue.call.name)),
        )
        report = report_of(seen, call, context, None)
        reason = issue.reason.value.replace("_", " ")
        tell(observers, replace(report, outcome="refused", reason=reason, round=round))


def tell_given(
    call: AssistantCall, result: ToolResult, view: ToolView, *, observers: Sequence[CallObserver], round: str
) -> None:
    """Report a result that came from the application or the user."""
    if not observers:
        return
    seen = Observation(binding=view.get(call.name))
    report = report_of(seen, ToolCall(call.name, {}, call.id), LOCAL_CONTEXT, result)
    tell(observers, replace(report, round=round))


Answers = dict[str, ElicitationAnswer]
"""The user's answers to the questions of one call, by their keys; and the edits of its hooks."""


@dataclass(frozen=True, slots=True)
class Around:
    """The middleware around the calls of a round, and the hooks inside.

    Attributes:
        rules: The middleware, without hooks.
        inside: By the ids of calls that have middleware, the execution hooks to run inside of it.
        had_hooks: Whether hooks had been applied when the round was stored.
    """

    rules: Rules = field(default_factory=Rules)
    inside: Mapping[str, HookSet] = field(default_factory=dict[str, HookSet])
    had_hooks: bool = False

    def guards(self, call: ToolCall, view: ToolView) -> bool:
        """Whether a call has middleware around it; for a calling tool, that of the called tool."""
        is_inside = call.id in self.inside
        if call.name not in view or not (is_inside or self.rules.guards or self.rules.has_middleware):
            return False
        binding = view[call.name]
        guarded = is_inside or self.rules.guards or self.rules.around(binding, view.names)
        return binding.redirect is None and bool(guarded)

    def with_middleware(self, added: Rules) -> Around:
        """The same with more middleware, inside the present one."""
        return replace(self, rules=replace(self.rules.merged(added), hooks=HookSet()))

    def asking(self, call: ToolCall, hooks: HookSet) -> Around:
        own = self.inside.get(call.id, HookSet(deadline=hooks.deadline))
        return replace(self, inside={**self.inside, call.id: own.merged(hooks)})

    def rules_of(self, call: ToolCall, hooks: HookSet) -> Rules:
        """The rules for the run of one call; `hooks` are all of the round's."""
        return replace(self.rules, hooks=HooksLeft(hooks, self.inside.get(call.id)))

    def rules_of_all(self, hooks: HookSet) -> Rules:
        """The rules for a call that another call stands for."""
        return replace(self.rules, hooks=hooks)


_EDITS: Final = "mcp-toolset/edits"
_OWN: Final = frozenset({"elicit", "ask", "edits", "keep", "round", "_inner", "_answers", "_has_run"})


class AnsweringContext(ToolContext):
    """The context of a call of a round for middleware and hooks: their questions become the round's."""

    __slots__ = ("_answers", "_has_run", "_inner", "round")

    def __init__(
        self, inner: ToolContext, answers: Answers, has_run: Callable[[], bool], round: str = ""
    ) -> None:
        """Wrap `inner`; `answers` are known, and none can be added once the tool `has_run`."""
        self._inner, self._answers, self._has_run, self.round = inner, answers, has_run, round

    @property
    def edits(self) -> Mapping[str, Any]:
        """The edits of the run of this call that ended with a question."""
        known = self._answers.get(_EDITS)
        return {} if known is None else known.content

    def keep(self, edits: Mapping[str, Any]) -> None:
        """Keep the edits of a call that ends with a question, for its next run."""
        if edits:
            self._answers[_EDITS] = ElicitationAnswer("accept", edits)

    async def elicit(
        self, question: str, schema: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> ElicitationAnswer:
        """The user's answer; without one the call ends here and runs again with it."""
        found = self._answers.get(key or question)
        if found is not None:
            return found
        if self._inner.can_ask:
            return await self._inner.elicit(question, schema, key=key)
        if self._has_run():
            raise CannotAskError(
                "the tool has run already, and would run again with the answer; ask before it runs"
            )
        raise InputRequired({key or question: elicitation(question, schema)})

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_inner"), name)
