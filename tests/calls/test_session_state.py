"""State that tools keep for each caller."""

from __future__ import annotations

import pytest

from mcp_toolset import SessionState, ToolContext
from mcp_toolset.errors import CallError, DefinitionError


class Caller(ToolContext):
    pass


def caller(
    session: str | None = None, principal: str | None = None, revision: str = "2025-11-25"
) -> ToolContext:
    made = Caller()
    made.session, made.principal, made.protocol_version = session, principal, revision
    return made


def test_s6_each_session_and_each_user_has_a_value_of_its_own() -> None:
    baskets = SessionState(list[str])
    baskets.of(caller("one")).append("a")
    assert baskets.of(caller("one")) == ["a"]
    assert baskets.of(caller("two")) == []
    baskets.of(caller("one", "ann")).append("b")
    assert baskets.of(caller("three", "ann")) == ["b"], "a user's state follows the user"
    assert baskets.of(caller("one")) == ["a"]


def test_s6_state_is_replaced_and_forgotten() -> None:
    counts = SessionState(int)
    counts.set(caller("one"), 5)
    assert counts.of(caller("one")) == 5
    counts.forget(caller("one"))
    assert counts.of(caller("one")) == 0


def test_s6_a_program_without_a_client_is_one_caller() -> None:
    counts = SessionState(int)
    counts.set(ToolContext(), 5)
    assert counts.of(ToolContext()) == 5


def test_s6_callers_that_cannot_be_told_apart_share_nothing() -> None:
    with pytest.raises(CallError, match="neither a session nor an authenticated user"):
        SessionState(int).of(caller(revision="2026-07-28"))


def test_s6_state_is_made_by_what_can_be_called() -> None:
    with pytest.raises(DefinitionError, match=r"takes what makes a value"):
        SessionState([])  # pyright: ignore[reportArgumentType]


def test_s6_the_least_recently_used_state_is_forgotten_first() -> None:
    counts = SessionState(int, max_callers=2)
    for name in ("one", "two"):
        counts.set(caller(name), 1)
    assert counts.of(caller("one")) == 1
    counts.set(caller("three"), 1)
    assert (counts.of(caller("one")), counts.of(caller("three"))) == (1, 1)
    assert counts.of(caller("two")) == 0
