"""Texts of strangers are searched for credentials in time in proportion to their length."""

from __future__ import annotations

import pytest

from mcp_toolset.security.facts import without_credentials


@pytest.mark.parametrize("piece", ["eyJaaaaa-", "eyJaaaaa-a.", "bearer ", "bearer a-", "sk-a-", "a-"])
def test_u113_begun_credentials_are_searched_in_one_pass(piece: str) -> None:
    """With a pass for each beginning, two megabytes took more than an hour."""
    text = piece * (2_000_000 // len(piece))
    assert len(without_credentials(text)) <= len(text)


@pytest.mark.parametrize("before", ["", "token=", "x ", "(", "a.", "id-"])
def test_u113_a_web_token_is_blanked_wherever_it_stands(before: str) -> None:
    told = without_credentials(f"{before}eyJhbGciOiJ-9.eyJzdWIiOiIx.c2lnbmF0dXJl after")
    assert "eyJ" not in told
    assert "sub" not in told
    assert told.endswith(" after")
