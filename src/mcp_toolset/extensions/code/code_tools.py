"""`CodeTools`: `run_code` and `run_read_only_code`, which run a snippet for a caller.

Each call of the snippet is a call of `call_tool`, or of `call_read_only_tool`, with the caller's context: the
same gate, checks, middleware, hooks, policy, limits and observers as for any call.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Final
from weakref import WeakValueDictionary

import anyio
from pydantic import Field

from mcp_toolset._records import replace
from mcp_toolset.calls.suspended.store import SuspendedStore
from mcp_toolset.catalog.grants.ledger import LONGEST_REFERENCE, owner_of
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import FOREIGN
from mcp_toolset.errors import CallError
from mcp_toolset.extensions.code.limits import CodeLimits
from mcp_toolset.extensions.code.monty_sandbox import MontySandbox
from mcp_toolset.extensions.code.sandbox import Called, Program, Sandbox
from mcp_toolset.extensions.code.served_run import PARKED, ServedRun
from mcp_toolset.extensions.code.waiting_runs import WaitingRun, WaitingRuns
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.names import FIXED_TOOLS
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.function import Tool, tool
from mcp_toolset.tools.export.python_name import Functions

if TYPE_CHECKING:
    from mcp_toolset.extending.host import Host

RUN_CODE: Final = "run_code"
RUN_READ_ONLY_CODE: Final = "run_read_only_code"

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


class CodeTools:
    """The two tools of a server, and the runs that they have begun.

    Attributes:
        waiting: The runs that wait for answers: in a store, where every replica finds them, else here.
    """

    def __init__(self, limits: CodeLimits, sandbox: Sandbox | None, host: Host) -> None:
        """Run snippets in a sandbox that is given, else in that of the extra `code`."""
        self._stated = limits
        self._host = host
        self._sandbox = sandbox or MontySandbox(limits.workers)
        self._shares_workers = sandbox is None
        self._places = WeakValueDictionary[str, anyio.Semaphore]()

    def tools(self) -> list[Tool[..., Any]]:
        """The two tools; they are given the caller itself, as a call of `call_tool` is."""
        return [
            self._tool(RUN_CODE, "Run code", RUN_TEXT, FIXED_TOOLS[2], reads=False),
            self._tool(RUN_READ_ONLY_CODE, "Run read-only code", READ_TEXT, FIXED_TOOLS[3], reads=True),
        ]

    def _tool(self, name: str, shown: str, text: str, by: str, *, reads: bool) -> Tool[..., Any]:
        """A tool whose code calls tools by `by`."""

        @tool(
            name=name,
            title=shown,
            description=text,
            read_only=reads,
            destructive=not reads,
            idempotent=reads,
            open_world=True,
        )
        async def run(
            context: ToolContext, code: Code, grants: Grants = None, title: Title = ""
        ) -> ToolResult:
            return await self._run(by, code, grants, context)

        return run

    @cached_property
    def waiting(self) -> WaitingRuns:
        return WaitingRuns(self._host.need(SuspendedStore))

    async def close(self) -> None:
        """End the processes of the sandbox, and forget the runs that wait."""
        self.waiting.clear()
        await self._sandbox.close()

    async def _run(
        self, by: str, code: str, grants: Sequence[str] | None, context: ToolContext
    ) -> ToolResult:
        if isinstance(context, WireContext) and context.replay.foreign:
            raise CallError(f"{FOREIGN}; run the code again")
        bound = _digest([by, code, grants, owner_of(context)])
        before = await self._before(context, bound)
        # A run that goes on keeps its functions; the grant of each is checked by each call.
        granted = await self._host.in_scope(grants, context) if before is None else before.granted
        program = Program(code, Functions(granted), self._limits())
        if before is not None:
            program = replace(program, state=before.state, printed=before.printed)
        run = ServedRun(program, context, granted, partial(self._called, by), before)
        share = context.share if isinstance(context, WireContext) else ""
        keep = partial(self.waiting.keep, owner=bound, share=share)
        return await run.result(self._sandbox, self._place(share), keep)

    def _limits(self) -> CodeLimits:
        """The limits; a value may be long where long results do not go to the model as they are."""
        if not self._host.reshapes:
            return self._stated
        return replace(self._stated, value=max(self._stated.value, MAX_VALUE))

    def _place(self, share: str) -> AbstractAsyncContextManager[object]:
        """Where a run waits for a worker: all runs of one caller together leave one to others."""
        if not share or not self._shares_workers:
            return nullcontext()
        return self._places.setdefault(share, anyio.Semaphore(max(1, self._stated.workers - 1)))

    async def _before(self, context: ToolContext, owner: str) -> WaitingRun | None:
        """The run that the client comes back to, if it does."""
        if not isinstance(context, WireContext):
            return None
        handle = context.replay.parked.pop(PARKED, None)
        return None if handle is None else await self.waiting.take(handle, owner)

    async def _called(self, by: str, grant: str, called: Called, id: str, context: ToolContext) -> ToolResult:
        """Make one call of a run."""
        arguments = {"grant": grant, "arguments": called.arguments}
        return await self._host.call(ToolCall(by, arguments, id), context)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
