"""Which session with a legacy upstream a call takes, as the rule in docs/sessions.md has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import RemoteToolset
from mcp_toolset.bridge.forward import WireContext
from mcp_toolset.bridge.link import Link
from mcp_toolset.bridge.sessions import SessionPlan, plan_for
from mcp_toolset.config import SessionRule
from mcp_toolset.errors import DefinitionError

CAPABILITIES = st.fixed_dictionaries(
    {},
    optional={
        "elicitation": st.sampled_from([{}, {"form": {}}, {"form": {}, "url": {}}]),
        "sampling": st.sampled_from([{}, {"tools": {}}]),
        "roots": st.sampled_from([{}, {"listChanged": True}]),
    },
)
CALLERS = st.builds(
    SimpleNamespace,
    declares=CAPABILITIES,
    client_key=st.sampled_from([None, "one", "two"]),
    principal=st.sampled_from([None, "ann", "bob"]),
    authorization=st.sampled_from([None, "Bearer a", "Bearer b"]),
)
LINKS = st.sampled_from([Link("up", "stdio"), Link("up", "sse"), Link("up", "http")])
RULES = st.sampled_from(get_args(SessionRule))


def plan(rule: SessionRule, link: Link, caller: Any, *, forwards: bool = False) -> SessionPlan | None:
    return plan_for(rule, link, cast("WireContext", caller), forwards=forwards)


def declared(found: SessionPlan | None) -> Mapping[str, Any]:
    return {} if found is None else json.loads(found.declares)


@given(RULES, LINKS, CALLERS, st.booleans())
def test_p5_no_session_declares_more_than_its_caller(
    rule: SessionRule, link: Link, caller: Any, forwards: bool
) -> None:
    assert declared(plan(rule, link, caller, forwards=forwards)).items() <= caller.declares.items()


@given(RULES, LINKS, CALLERS, CALLERS, st.booleans())
def test_p5_who_shares_a_session_may_share_it(
    rule: SessionRule, link: Link, one: Any, other: Any, forwards: bool
) -> None:
    first, second = plan(rule, link, one, forwards=forwards), plan(rule, link, other, forwards=forwards)
    if first is None or first != second or first.single:
        return
    said = declared(first)
    if said:
        assert one.principal == other.principal
    if forwards:
        assert one.authorization == other.authorization
    same_client = one.client_key is not None and one.client_key == other.client_key
    assert "roots" not in said or same_client
    if said and rule != "capabilities" and link.transport != "http":
        assert same_client or first.alone


@given(LINKS, CALLERS)
def test_p5_a_shared_server_is_never_told_that_it_may_ask(link: Link, caller: Any) -> None:
    assert plan("shared", link, caller) is None


@given(RULES, LINKS, CALLERS)
def test_p5_a_caller_that_answers_nothing_takes_the_session_that_lists(
    rule: SessionRule, link: Link, caller: Any
) -> None:
    caller.declares = {}
    assert plan(rule, link, caller) is None


def test_a_rule_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DefinitionError, match="sessions is one of auto"):
        RemoteToolset("https://example.com/mcp", name="up", sessions=cast("Any", "none"))


@pytest.mark.parametrize("target", [["a-command"], "https://example.com/sse"])
def test_f43_credentials_are_forwarded_over_streamable_http_alone(target: Any) -> None:
    with pytest.raises(DefinitionError, match="over streamable HTTP"):
        RemoteToolset(target, name="up", forward_authorization=True)
