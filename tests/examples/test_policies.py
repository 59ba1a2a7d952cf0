"""The programs and the file of docs/policies.md do what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.policies.app import cancel_order, find_order, policy
from tests.support.direct_callers import Caller

from mcp_toolset import Identity, Toolset, ToolsetServer
from mcp_toolset.config import load_config
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.policy import Policy
from mcp_toolset.security.patterns import ToolFacts, hints_of

pytestmark = pytest.mark.anyio
FILE = Path(__file__).parents[2] / "examples/policies/mcp.json"


async def test_i3_the_program_hides_a_tool_from_those_who_are_not_named() -> None:
    async with ToolsetServer(Toolset(find_order, cancel_order), policy=policy) as server:
        listed = {
            role: await Caller(server, Identity.of(None, "ann", roles=[role])).tools()
            for role in ("guest", "clerk", "manager")
        }
    assert listed == {
        "guest": ["find_order"],
        "clerk": ["find_order", "cancel_order"],
        "manager": ["find_order", "cancel_order"],
    }


@pytest.mark.needs("approvals")
async def test_i3_the_loop_runs_the_tool_for_a_manager_alone() -> None:
    from examples.policies.loop import cancel

    assert await cancel(Identity.of(None, "ann", roles=["manager"])) == "cancelled 7"
    with pytest.raises(UnknownToolError):
        await cancel(Identity.of(None, "bob"))


@pytest.mark.needs("inbound_auth")
def test_i8_the_file_decides_as_the_page_says() -> None:
    config = load_config(FILE, environ={"CI_TOKEN": "x" * 20})
    decided = Policy.of(config.permissions)
    reads = hints_of({"readOnlyHint": True})
    tools = [
        ToolFacts("git_log", server="git", own="git_log", hints=reads),
        ToolFacts("git_reset", server="git", own="git_reset", hints=hints_of(None)),
        ToolFacts("payroll_list", server="payroll", own="list", hints=reads),
        ToolFacts("payroll_pay", server="payroll", own="pay", hints=hints_of(None)),
    ]
    kinds = {
        role: [decided.decide_facts(tool, decided.group(caller)).kind for tool in tools]
        for role, caller in (
            ("nobody", None),
            ("admin", Identity.of(None, "a", roles=["admin"])),
            ("robot", Identity.of("ci", roles=["robot"])),
        )
    }
    assert kinds == {
        "nobody": ["allow", "deny", "deny", "deny"],
        "admin": ["allow"] * 4,
        "robot": ["allow", "deny", "allow", "deny"],
    }
