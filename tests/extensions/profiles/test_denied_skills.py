"""In a profile, what a policy denies is as what is not there (K4)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.extensions.skills import skill_server
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

SKILLS = {"extensions": {"io.modelcontextprotocol/skills": {}}}


@asynccontextmanager
async def of_profile(
    server: ToolsetServer, name: str, era: str = "modern", capabilities: dict[str, Any] | None = None
) -> AsyncGenerator[RawClient]:
    view: Any = await server.extensions["profiles"].view(name, None)
    async with raw_client(view, era, capabilities) as client:
        yield client


# MEDIUM: a skill that a policy denies answers otherwise than one that is not there.
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_k4_a_server_hidden_in_a_profile_is_not_told_from_none_by_its_skills(era: str) -> None:
    def mounted(name: str) -> Toolset[Any]:
        return RemoteToolset([sys.executable, skill_server.__file__, "modern", name], name=name).prefixed(
            name
        )

    profiles = {"one": {"permissions": {"deny": ["two/*"]}}}
    tools = Toolset(mounted("one"), mounted("two"), name="hub")
    with anyio.fail_after(60):
        async with ToolsetServer(tools, keep=False, profiles=profiles) as server:
            await server.settled()
            async with of_profile(server, "one", era, SKILLS) as client:
                hidden = await client.ask("skills/get", uri="skill://two/refunds/SKILL.md")
                none = await client.ask("skills/get", uri="skill://six/refunds/SKILL.md")
    assert json.dumps(hidden).replace("//two/", "//six/") == json.dumps(none)
