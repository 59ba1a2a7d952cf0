"""`DurableRounds`: the tool rounds of a loop that is a workflow of DBOS, and resumes after a crash.

DBOS records the result of each step of a workflow, and runs the workflow again in another process if its own
has ended. A step that was cut off runs again. The journal knows which calls of that step had begun, so that
none of them happens twice. DBOS itself is imported by the program (extra `dbos`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, cast

from mcp_toolset._numbers import require_positive
from mcp_toolset.calls.rules import AnyRule, Rules
from mcp_toolset.errors import DefinitionError, RoundError
from mcp_toolset.extensions.journal.guard import JournalGuard
from mcp_toolset.extensions.model_loop.calls import RoundCommit
from mcp_toolset.extensions.model_loop.tool_round import ToolRound, ToolRoundPlan
from mcp_toolset.stores.store import StorePlace
from mcp_toolset.tools.round_context import RoundContext
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.view import ToolAvailability, ToolView

QUESTIONS: Final = "mcp_toolset questions"
"""The event of a workflow that has the open questions of its round: `DBOS.get_event(id, QUESTIONS)`.

Its value has `questions`, each with `id`, `tool`, `question` and `schema`, and in `refused` why answers were
not taken.
"""

ANSWERS: Final = "mcp_toolset answers"
"""The topic to which the answers are sent: `DBOS.send(id, {"call_1": "yes"}, ANSWERS)`."""

TIMEOUT: Final = 24 * 60 * 60.0
"""Seconds that a round waits for the answers to its questions, unless told otherwise."""

Read = Callable[[ToolView], ToolRound]
Write = Callable[[RoundCommit], list[dict[str, Any]]]


class DurableRounds:
    """Runs the rounds of workflows; see docs/durable-loops.md.

    Enter it before `DBOS.launch()`, in the event loop of the program: recovered workflows use it at once.
    """

    def __init__(
        self,
        tools: Toolset,
        journal: StorePlace,
        rules: AnyRule | None = None,
        *,
        availability: ToolAvailability | None = None,
        principal: str | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        """Describe the rounds; nothing is opened yet.

        Args:
            tools: The tools of the loop; opened and closed with this.
            journal: The journal of calls, outside of this process: the path of a file, the URL of a
                store, or a `Store`.
            rules: Hooks, middleware and policies of the loop.
            availability: The tools that the model is offered.
            principal: The user of the loop.
            timeout: Seconds that a round waits for answers; then the model is told the open questions.

        Raises:
            DefinitionError: DBOS is not installed, or a number is not positive.
        """
        require_positive("DurableRounds", timeout=timeout)
        self._dbos = _dbos()
        self._tools = tools
        self._journal = JournalGuard(journal, served="dbos")
        self._rules = Rules.of(rules or Rules()).merged(self._journal)
        self._availability = availability
        self._principal = principal
        self._timeout = timeout
        self._open = AsyncExitStack()
        self._home: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        """Open the journal and the tools."""
        await self._open.enter_async_context(self._journal)
        await self._open.enter_async_context(self._tools)
        self._home = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close them."""
        self._home = None
        await self._open.aclose()

    async def openai(self, message: object) -> list[dict[str, Any]]:
        """Run the calls of a chat completion's message, and return the messages to send next.

        Args:
            message: The message, whose text is a result of an earlier step: a repeated step must see the
                same ids of calls.

        Raises:
            RoundError: it is not an assistant message, or the ids of its calls are not unique.
            DefinitionError: it was not called in a workflow, or this is not open.
        """
        return await self._ran(lambda view: ToolRound.from_openai(message, view), RoundCommit.to_openai)

    async def openai_responses(self, response: object) -> list[dict[str, Any]]:
        """The same for a `Response`, or its output items."""
        return await self._ran(
            lambda view: ToolRound.from_openai_responses(response, view), RoundCommit.to_openai_responses
        )

    async def anthropic(self, message: object) -> list[dict[str, Any]]:
        """The same for the response of Anthropic's `messages.create`."""
        return await self._ran(lambda view: ToolRound.from_anthropic(message, view), RoundCommit.to_anthropic)

    async def _ran(self, read: Read, write: Write) -> list[dict[str, Any]]:
        dbos = self._dbos
        if dbos.workflow_id is None:
            raise DefinitionError("a durable round is a step of a workflow; call it in a @DBOS.workflow()")
        found = await self._step("tool round", partial(self._begun, read, write))
        while "messages" not in found:
            await dbos.set_event_async(QUESTIONS, found["asked"])
            answers = await dbos.recv_async(ANSWERS, timeout_seconds=self._timeout)
            again = partial(self._answered, found["state"], found["session"], answers, write)
            found = await self._step("answered tool round", again)
        return cast("list[dict[str, Any]]", found["messages"])

    async def _step(self, name: str, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """A step of the workflow; its work is done in the loop in which the tools were opened."""
        return await self._dbos.run_step_async({"name": name}, self._at_home, work)

    async def _at_home(self, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        home = self._home
        if home is None:
            raise DefinitionError("open DurableRounds before DBOS.launch(): async with DurableRounds(…)")
        if home is asyncio.get_running_loop():
            return await work()
        # DBOS runs recovered workflows in a loop of its own.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(work), home))

    async def _begun(self, read: Read, write: Write) -> dict[str, Any]:
        # Models may number their calls anew in each reply, so that a step is a session of its own.
        session = f"{self._dbos.workflow_id}/{self._dbos.step_id}"
        plan = await read(self._tools.view(self._availability)).plan.apply(self._rules)
        return await self._run(plan, session, write)

    async def _answered(
        self, state: Mapping[str, Any], session: str, answers: Mapping[str, Any] | None, write: Write
    ) -> dict[str, Any]:
        view = self._tools.view(self._availability)
        plan = ToolRound.from_state(state, view, rules=self._rules).plan
        if answers is None:
            return {"messages": write(plan.commit())}
        refused: list[str] = []
        for id, answer in answers.items():
            try:
                plan.answer(id, answer)
            except RoundError as fault:
                refused.append(str(fault))
        return await self._run(plan, session, write, refused)

    async def _run(
        self, plan: ToolRoundPlan, session: str, write: Write, refused: Sequence[str] = ()
    ) -> dict[str, Any]:
        report = await plan.run_pending(context=RoundContext(session=session, principal=self._principal))
        if not report.questions:
            return {"messages": write(plan.newest.commit())}
        questions = [
            {
                "id": question.id,
                "tool": question.name,
                "question": question.question,
                "schema": question.schema,
            }
            for question in report.questions
        ]
        asked = {"questions": questions, "refused": list(refused)}
        return {"state": plan.newest.to_state(), "session": session, "asked": asked}


async def _awaited(work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    return await work()


def _dbos() -> Any:
    """The class `DBOS`."""
    try:
        from dbos import DBOS
    except ImportError:
        raise DefinitionError("durable rounds need the extra: pip install 'mcp-toolset[dbos]'") from None
    return DBOS
