"""The configuration of README.md that knows its callers decides as the page says (I1, I3, I8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_toolset import Identity
from mcp_toolset.config import load_config
from mcp_toolset.policy import Policy
from mcp_toolset.security.patterns import ToolFacts, hints_of

FILE = Path(__file__).parents[2] / "examples/guarded/mcp.json"


@pytest.mark.needs("approvals")
def test_i3_reads_are_allowed_deletions_are_asked_about_and_interns_know_no_crm() -> None:
    config = load_config(FILE, environ={})
    assert not config.misconfigured and not config.warnings
    policy = Policy.of(config.permissions)
    reads, deletes = hints_of({"readOnlyHint": True}), hints_of({"destructiveHint": True})
    tools = [
        ToolFacts("git_log", server="git", own="log", hints=reads),
        ToolFacts("git_reset", server="git", own="reset", hints=deletes),
        ToolFacts("crm_find", server="crm", own="find", hints=reads),
    ]
    kinds = {
        role: [
            policy.decide_facts(tool, policy.group(Identity.of("app", role, roles=[role]))).kind
            for tool in tools
        ]
        for role in ("clerk", "intern")
    }
    assert kinds == {"clerk": ["allow", "ask", "allow"], "intern": ["allow", "ask", "deny"]}
