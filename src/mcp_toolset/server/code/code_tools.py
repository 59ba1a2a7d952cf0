"""`CodeTools`: `run_code` and `run_read_only_code`, which run a snippet for a caller.

Each call of the snippet is a call of `call_tool`, or of `call_read_only_tool`, with the caller's context: the
same gate, checks, middleware, hooks, policy, limits and observers as for any call.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import field
from functools import partial
from typing import Annotated, Any, Final
from weakref import WeakValueDictionary

import anyio
from pydantic import Field

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.code.code_mode import CodeMode
from mcp_toolset.calls.code.sandbox import Called, Program, Sandbox
from mcp_toolset.calls.suspended.store import SuspendedStore
from mcp_toolset.catalog.deferred.tool_names import CODE_TOOLS, FIXED_TOOLS
from mcp_toolset.catalog.grants.ledger import LONGEST_REFERENCE, owner_of
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import FOREIGN
from mcp_toolset.errors import CallError
from mcp_toolset.server.code.monty_sandbox import MontySandbox
from mcp_toolset.server.code.served_run import PARKED, ServedRun
from mcp_toolset.server.code.waiting_runs import WaitingRun, WaitingRuns
from mcp_toolset.tools.binding.binding import DEFERRED_CATALOG, ToolBinding
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.function import Tool, tool
from mcp_toolset.tools.export.python_name import Functions

MAX_CODE: Final = 100_000
"""Characters of a snippet."""

MAX_VALUE: Final = 4_000_000
"""Bytes of a value, where the server keeps long results."""

MAX_GRANTS: Final = 100
"""Grants that one run may use."""

RUN_TEXT: Final = (
    "Run Python that calls granted tools: for several calls in one, or to compute on long results. Each is "
    "an async function with keyword arguments, as resolve_tools shows with stubs=true: "
    "`got = await orders_list(month='2026-11')`. asyncio.gather runs calls at once; a failed call raises "
    "RuntimeError. The value of the last expression comes back, and what was printed. json, re, math, "
    "datetime can be imported; there are no files and no network."
)
READ_TEXT: Final = "Like run_code, for tools that change nothing: others are refused."

Code = Annotated[str, Field(description="Python.", max_length=MAX_CODE)]
Grants = Annotated[
    list[Annotated[str, Field(max_length=LONGEST_REFERENCE)]] | None,
    Field(description="Grants from resolve_tools; all that you hold, if left out.", max_length=MAX_GRANTS),
]
Title = Annotated[str, Field(description="What it does, in a few words.", max_length=200)]

Scope = Callable[[Sequence[str] | None, ToolContext], Awaitable[Mapping[str, str]]]
"""The tools of some grants of a caller, or of all that it holds: public names, each with its grant."""

Call = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]


@dataclass(eq=False)
class CodeTools:
    """The two tools of a server, and the runs that they have begun.

    Attributes:
        mode: The limits.
        sandbox: What runs the snippets.
        scope: Finds what a caller was granted.
        call: The ordinary way of a call.
        waiting: The runs that wait for answers.
    """

    mode: CodeMode
    sandbox: Sandbox
    scope: Scope
    call: Call
    waiting: WaitingRuns = field(default_factory=WaitingRuns)
    _places: WeakValueDictionary[str, anyio.Semaphore] = field(
        default_factory=WeakValueDictionary[str, anyio.Semaphore], init=False
    )

    def bindings(self) -> list[ToolBinding]:
        """The two tools; they are given the caller itself, as a call of `call_tool` is."""

        @tool(
            name=CODE_TOOLS[0],
            title="Run code",
            description=RUN_TEXT,
            read_only=False,
            destructive=True,
            idempotent=False,
            open_world=True,
        )
        async def run_code(
            context: ToolContext, code: Code, grants: Grants = None, title: Title = ""
        ) -> ToolResult:
            return await self._run(FIXED_TOOLS[2], code, grants, context)

        @tool(
            name=CODE_TOOLS[1],
            title="Run read-only code",
            description=READ_TEXT,
            read_only=True,
            destructive=False,
            idempotent=True,
            open_world=True,
        )
        async def run_read_only_code(
            context: ToolContext, code: Code, grants: Grants = None, title: Title = ""
        ) -> ToolResult:
            return await self._run(FIXED_TOOLS[3], code, grants, context)

        return [_placed(run_code), _placed(run_read_only_code)]

    async def close(self) -> None:
        """End the processes of the sandbox, and forget the runs that wait."""
        self.waiting.clear()
        await self.sandbox.close()

    async def _run(
        self, by: str, code: str, grants: Sequence[str] | None, context: ToolContext
    ) -> ToolResult:
        if isinstance(context, WireContext) and context.replay.foreign:
            raise CallError(f"{FOREIGN}; run the code again")
        bound = _digest([by, code, grants, owner_of(context)])
        before = await self._before(context, bound)
        # A run that goes on keeps its functions; the grant of each is checked by each call.
        granted = await self.scope(grants, context) if before is None else before.granted
        program = Program(code, Functions(granted), self.mode)
        if before is not None:
            program = replace(program, state=before.state, printed=before.printed)
        run = ServedRun(program, context, granted, partial(self._called, by), before)
        share = context.share if isinstance(context, WireContext) else ""
        keep = partial(self.waiting.keep, owner=bound, share=share)
        return await run.result(self.sandbox, self._place(share), keep)

    def _place(self, share: str) -> AbstractAsyncContextManager[object]:
        """Where a run waits for a worker: all runs of one caller together leave one to others."""
        if not share or self.mode.sandbox is not None:
            return nullcontext()
        return self._places.setdefault(share, anyio.Semaphore(max(1, self.mode.workers - 1)))

    async def _before(self, context: ToolContext, owner: str) -> WaitingRun | None:
        """The run that the client comes back to, if it does."""
        if not isinstance(context, WireContext):
            return None
        handle = context.replay.parked.pop(PARKED, None)
        return None if handle is None else await self.waiting.take(handle, owner)

    async def _called(self, by: str, grant: str, called: Called, id: str, context: ToolContext) -> ToolResult:
        """Make one call of a run."""
        arguments = {"grant": grant, "arguments": called.arguments}
        return await self.call(ToolCall(by, arguments, id), context)


def code_tools(mode: CodeMode, scope: Scope, call: Call, store: SuspendedStore | None = None) -> CodeTools:
    """The tools of a server, with the sandbox that `mode` names, else with that of the extra `code`.

    Runs that wait are kept in `store`, where every replica finds them, else in this process.
    """
    return CodeTools(mode, mode.sandbox or MontySandbox(mode.workers), scope, call, WaitingRuns(store))


def _placed(made: Tool[..., Any]) -> ToolBinding:
    """A tool of the catalog, with its title among its annotations, where older clients look for it."""
    hints = {"title": made.definition.title, **(made.definition.annotations or {})}
    definition = replace(made.definition, annotations=hints)
    return replace(made.bind(), definition=definition, place=DEFERRED_CATALOG)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
