"""Clients are told of changes of their own lists, and of nothing that a policy hides from them (I3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from tests.faults.harness import until
from tests.support.direct_callers import LEGACY, MODERN, Caller
from tests.support.office import Office

from mcp_toolset import Identity, Toolset, ToolsetServer
from mcp_toolset.policy import Policy

PROMPTS_CHANGED = "notifications/prompts/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
TOOLS_CHANGED = "notifications/tools/list_changed"

pytestmark = pytest.mark.anyio

BOSS, ANN = Identity.of(None, "boss", roles=["boss"]), Identity.of(None, "ann")
POLICY = Policy(deny=["payroll*"], roles={"boss": Policy(allow=["*"])})
ALL = {TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED}
EVERYTHING = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


@asynccontextmanager
async def listening(server: ToolsetServer, *who: Identity) -> AsyncGenerator[list[Caller]]:
    """A legacy and a modern client of each caller, told of every list."""
    callers = [Caller(server, one, version) for one in who for version in (LEGACY, MODERN)]
    async with anyio.create_task_group() as group:
        for caller in callers:
            await caller.open()
            if caller.version == MODERN:
                group.start_soon(caller.ask, "subscriptions/listen", {"notifications": EVERYTHING})
        await until(lambda: all(caller.version == LEGACY or caller.told for caller in callers))
        settled(*callers)
        yield callers
        server.answers.end_streams()


def settled(*callers: Caller) -> None:
    for caller in callers:
        caller.told.clear()


async def test_i3_a_server_that_joins_is_news_for_those_who_may_know_of_it() -> None:
    with anyio.fail_after(60):
        toolset = Toolset(Office("files", "read").mounted())
        async with ToolsetServer(toolset, policy=POLICY) as server, listening(server, ANN, BOSS) as callers:
            *anns, legacy, modern = callers
            await server.attach(Office("payroll", "pay").mounted())
            await until(lambda: all(set(one.told) >= ALL for one in (legacy, modern)))
            assert [one.told for one in anns] == [[], []]
            settled(*callers)
            await server.attach(Office("mail", "send").mounted())
            await until(lambda: all(set(one.told) >= ALL for one in callers))
            assert all(len(one.told) == len(ALL) for one in callers)


async def test_i3_updates_of_a_resource_reach_nobody_from_whom_its_server_is_hidden() -> None:
    with anyio.fail_after(60):
        toolset = Toolset(Office("files", "read").mounted(), Office("payroll", "pay").mounted())
        async with ToolsetServer(toolset, policy=POLICY) as server:
            await server.settled()
            offering = server.offering
            await offering.settle()
            for uri, who, leads in (
                ("files://text", ANN, True),
                ("payroll://text", ANN, False),
                ("payroll://text", BOSS, True),
                ("payroll://text", None, False),
            ):
                assert offering.leads(uri, who) is leads
