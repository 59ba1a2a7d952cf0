"""Middleware around the calls of a round, and the questions that it asks on the way.

A question of a middleware or of a hook inside it is a question of the round. Nothing has run by then;
with the answer the call is run again from the start, and finds the answer where it had asked.
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
"""What the user has answered to the questions of one call, by their keys."""


@dataclass(frozen=True, slots=True)
class Around:
    """What is around the calls of a round.

    Attributes:
        rules: The middleware; its hooks are none.
        inside: By the ids of calls that have middleware, the execution hooks to ask inside of it.
    """

    rules: Rules = field(default_factory=Rules)
    inside: Mapping[str, HookSet] = field(default_factory=dict[str, HookSet])

    def guards(self, call: ToolCall, view: ToolView) -> bool:
        """Whether a call has middleware around it; a call that stands for another has that one's."""
        if not self.rules.has_middleware or call.name not in view:
            return False
        binding = view[call.name]
        return binding.redirect is None and bool(self.rules.around(binding, view.names))

    def with_middleware(self, added: Rules) -> Around:
        """The same with more middleware, inside of what there is."""
        return replace(self, rules=replace(self.rules.merged(added), hooks=HookSet()))

    def asking(self, call: ToolCall, hooks: HookSet) -> Around:
        """The same with hooks to be asked about one call when it is run."""
        own = self.inside.get(call.id, HookSet(deadline=hooks.deadline))
        return replace(self, inside={**self.inside, call.id: own.merged(hooks)})

    def rules_of(self, call: ToolCall, hooks: HookSet) -> Rules:
        """What a run of one call goes through; `hooks` are all of the round's."""
        return replace(self.rules, hooks=HooksLeft(hooks, self.inside.get(call.id)))

    def rules_of_all(self, hooks: HookSet) -> Rules:
        """What a call goes through that another one stands for."""
        return replace(self.rules, hooks=hooks)


_OWN: Final = frozenset({"elicit", "ask", "round", "_inner", "_answers", "_has_run"})


class AnsweringContext(ToolContext):
    """The surroundings of a call of a round, for middleware and hooks: what they ask, the round asks."""

    __slots__ = ("_answers", "_has_run", "_inner", "round")

    def __init__(
        self, inner: ToolContext, answers: Answers, has_run: Callable[[], bool], round: str = ""
    ) -> None:
        """Look through to `inner`; `answers` are there, and once the tool `has_run` none can come."""
        self._inner, self._answers, self._has_run, self.round = inner, answers, has_run, round

    async def elicit(
        self, question: str, schema: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> ElicitationAnswer:
        """The user's answer; if there is none yet, the call ends here and is run again with it."""
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
