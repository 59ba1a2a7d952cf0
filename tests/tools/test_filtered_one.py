"""`filtered` with one selector that is not in a list, and with an empty list."""

from __future__ import annotations

import pytest

from mcp_toolset import Toolset, tool
from mcp_toolset.errors import UnknownToolError


@tool
def read() -> str:
    """Read."""
    return "read"


@tool
def delete() -> str:
    """Delete."""
    return "deleted"


TOOLS = Toolset(read, delete)


def test_u20_one_selector_needs_no_list() -> None:
    assert TOOLS.filtered(exclude="delete").names() == ["read"]
    assert TOOLS.filtered(exclude=delete).names() == ["read"]
    assert TOOLS.filtered(include="read").names() == ["read"]


def test_u20_the_error_says_whether_it_was_to_be_taken_or_left_out() -> None:
    with pytest.raises(UnknownToolError, match=r"delte \(in exclude\); did you mean delete\?"):
        TOOLS.filtered(exclude=["delte"])
    with pytest.raises(UnknownToolError, match=r"reed \(in include\)"):
        TOOLS.filtered(include="reed")


def test_u20_an_empty_list_takes_none() -> None:
    assert TOOLS.filtered(include=[]).names() == []
