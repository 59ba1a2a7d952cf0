"""Middleware around the calls of a round, and the questions that middleware asks the user.

A question of a middleware or of a hook inside it is a question of the round. At that time the tool has not
run; with the answer the call runs again from the start, and the question is answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.rules import Rules
from mcp_toolset.calls.rounds.round_hooks import HooksLeft
from mcp_toolset.errors import CannotAskError
from mcp_toolset.tools.core.asking import ElicitationAnswer, InputRequired, elicitation
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.view.view import ToolView

if TYPE_CHECKING:
    from mcp_toolset.tools.core.call import ToolCall

Answers = Mapping[str, ElicitationAnswer]
"""The user's answers to the questions of one call, by their keys."""


@dataclass(frozen=True, slots=True)
class Around:
    """The middleware around the calls of a round, and the hooks inside.

    Attributes:
        rules: The middleware, without hooks.
        inside: By the ids of calls that have middleware, the execution hooks to run inside of it.
    """

    rules: Rules = field(default_factory=Rules)
    inside: Mapping[str, HookSet] = field(default_factory=dict[str, HookSet])

    def guards(self, call: ToolCall, view: ToolView) -> bool:
        """Whether a call has middleware around it; for a calling tool, that of the called tool."""
        if not self.rules.has_middleware or call.name not in view:
            return False
        binding = view[call.name]
        return binding.redirect is None and bool(self.rules.around(binding, view.names))

    def with_middleware(self, added: Rules) -> Around:
        """The same with more middleware, inside the present one."""
        return replace(self, rules=replace(self.rules.merged(added), hooks=HookSet()))

    def asking(self, call: ToolCall, hooks: HookSet) -> Around:
        """The same with hooks to run for one call when it runs."""
        own = self.inside.get(call.id, HookSet(deadline=hooks.deadline))
        return replace(self, inside={**self.inside, call.id: own.merged(hooks)})

    def rules_of(self, call: ToolCall, hooks: HookSet) -> Rules:
        """The rules for the run of one call; `hooks` are all of the round's."""
        return replace(self.rules, hooks=HooksLeft(hooks, self.inside.get(call.id)))

    def rules_of_all(self, hooks: HookSet) -> Rules:
        """The rules for a call that another call stands for."""
        return replace(self.rules, hooks=hooks)


_OWN: Final = frozenset({"elicit", "ask", "round", "_inner", "_answers", "_has_run"})


class AnsweringContext(ToolContext):
    """The context of a call of a round for middleware and hooks: their questions become the round's."""

    __slots__ = ("_answers", "_has_run", "_inner", "round")

    def __init__(
        self, inner: ToolContext, answers: Answers, has_run: Callable[[], bool], round: str = ""
    ) -> None:
        """Wrap `inner`; `answers` are known, and none can be added once the tool `has_run`."""
        self._inner, self._answers, self._has_run, self.round = inner, answers, has_run, round

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
            raise CannotAskError("the tool has run already, and would run again with the answer; ask before")
        raise InputRequired({key or question: elicitation(question, schema)})

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_inner"), name)
