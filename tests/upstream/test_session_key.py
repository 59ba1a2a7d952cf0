"""Which session with a server a request takes, as the rule in docs/sessions.md has it."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import RemoteToolset
from mcp_toolset.errors import DefinitionError
from mcp_toolset.upstream.routing import (
    ClientFacts,
    SessionKey,
    SessionOptions,
    UpstreamFacts,
    key_for,
    listing_key,
)

FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
ROOTS: dict[str, Any] = {"roots": {}}
APPS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/ui": {}}}
BOTH = UpstreamFacts(legacy=True, modern=True)
UNTRIED = UpstreamFacts(modern=True)
OLD = UpstreamFacts(legacy=True, modern=False)
OLD_HTTP = UpstreamFacts(legacy=True, modern=False, tied=True)
NEW = UpstreamFacts(legacy=False, modern=True)
BARE = ClientFacts("legacy", client="c1")
HOST = ClientFacts("legacy", FORMS | ROOTS, client="c1")
ANN = ClientFacts("legacy", FORMS, principal="ann", client="c1")
NEXT = ClientFacts("modern", FORMS | ROOTS)
PIPED = ClientFacts("modern", FORMS | ROOTS, client="pipe")
AUTO = SessionOptions()
SHOWS = SessionOptions(shows=True)


def session(declares: dict[str, Any] | None = None, **more: Any) -> SessionKey:
    return SessionKey("legacy", json.dumps(declares or {}, separators=(",", ":")), **more)


def rule(name: Any) -> SessionOptions:
    return SessionOptions(sessions=name)


MODERN = SessionKey("modern")
TABLE = [
    # Modern servers: one connection for all.
    ("modern client, server of both", NEXT, BOTH, AUTO, MODERN),
    ("modern client that can be asked nothing", ClientFacts("modern"), BOTH, AUTO, MODERN),
    ("legacy client, modern server", HOST, NEW, AUTO, MODERN),
    ("legacy client that can be asked nothing, modern server", BARE, NEW, AUTO, MODERN),
    # The client's own era, unless the server is known not to speak it.
    ("legacy client, server of both", HOST, BOTH, AUTO, session(FORMS | ROOTS, client="c1")),
    ("legacy client, legacy era untried", HOST, UNTRIED, AUTO, session(FORMS | ROOTS, client="c1")),
    ("legacy client without questions, server of both", BARE, BOTH, AUTO, session()),
    ("modern client, legacy server", ClientFacts("modern"), OLD, AUTO, session()),
    # Legacy servers and clients that can be asked nothing: one session per principal.
    ("nothing to ask", BARE, OLD, AUTO, session()),
    ("nothing to ask, over HTTP", BARE, OLD_HTTP, AUTO, session()),
    ("nothing to ask, a login", ClientFacts("legacy", principal="ann"), OLD, AUTO, session(principal="ann")),
    ("an extension alone", ClientFacts("legacy", APPS, client="c1"), OLD, AUTO, session(APPS)),
    ("a modern client with roots alone", ClientFacts("modern", ROOTS), OLD, AUTO, session()),
    # Legacy servers and legacy clients that can be asked: a session of their own.
    ("a host", HOST, OLD, AUTO, session(FORMS | ROOTS, client="c1")),
    ("a host, over HTTP", HOST, OLD_HTTP, AUTO, session(FORMS | ROOTS, client="c1")),
    ("a host with a login", ANN, OLD, AUTO, session(FORMS, principal="ann", client="c1")),
    ("a modern client on a pipe", PIPED, OLD, AUTO, session(FORMS | ROOTS, client="pipe")),
    # Legacy servers and modern clients: one session per capability set and principal, without roots.
    ("a modern client, over HTTP", NEXT, OLD_HTTP, AUTO, session(FORMS)),
    ("a modern client, over stdio", NEXT, OLD, AUTO, session(FORMS, turns=True)),
    # Options.
    ("shared", HOST, OLD, rule("shared"), session()),
    ("shared, server of both", HOST, BOTH, rule("shared"), MODERN),
    ("capabilities", HOST, OLD, rule("capabilities"), session(FORMS, turns=True)),
    ("capabilities, over HTTP", HOST, OLD_HTTP, rule("capabilities"), session(FORMS)),
    ("client", BARE, OLD, rule("client"), session(client="c1")),
    ("client, nothing tells it", NEXT, OLD, rule("client"), session(FORMS, turns=True)),
    ("call", HOST, OLD, rule("call"), session(FORMS | ROOTS, single=True)),
    ("call, nothing to ask", BARE, OLD, rule("call"), session()),
    ("protocol legacy", NEXT, BOTH, SessionOptions(protocol="legacy"), session(FORMS, turns=True)),
    ("protocol modern", HOST, BOTH, SessionOptions(protocol="modern"), MODERN),
]


@pytest.mark.parametrize(
    ("client", "upstream", "options", "expected"),
    [pytest.param(*row[1:], id=row[0].replace(" ", "_")) for row in TABLE],
)
def test_u34_u36_a_request_takes_the_session_of_the_rule(
    client: ClientFacts, upstream: UpstreamFacts, options: SessionOptions, expected: SessionKey
) -> None:
    assert key_for(client, upstream, options) == expected


@pytest.mark.parametrize(
    ("client", "wanted", "upstream", "era"),
    [
        (HOST, "modern", BOTH, "modern"),
        (NEXT, "legacy", BOTH, "legacy"),
        (NEXT, "legacy", UNTRIED, "legacy"),
        (NEXT, "legacy", NEW, "modern"),
        (HOST, "modern", OLD, "legacy"),
    ],
)
def test_u34_a_tool_that_needs_an_era_gets_it_where_the_server_has_it(
    client: ClientFacts, wanted: Any, upstream: UpstreamFacts, era: str
) -> None:
    options = SessionOptions(eras={"tool": wanted})
    assert key_for(client, upstream, options, "tool").era == era
    assert key_for(client, upstream, options, "another").era == key_for(client, upstream, AUTO).era


def test_u36_the_session_that_lists_takes_the_calls_of_those_who_can_be_asked_nothing() -> None:
    assert listing_key("legacy", AUTO) == key_for(BARE, OLD, AUTO)
    assert listing_key("modern", AUTO) == key_for(NEXT, NEW, AUTO)
    assert listing_key("legacy", SHOWS) is None
    assert listing_key("modern", SHOWS) == MODERN


def test_u34_a_legacy_session_that_fails_where_there_were_some_refuses_no_era() -> None:
    known = RemoteToolset(["server"], name="up").connection.pool.routing
    known.facts = BOTH
    assert not known.legacy_failed(None) and known.facts.legacy is True
    assert not known.legacy_failed(OSError("broken"))


CAPABILITIES = st.fixed_dictionaries(
    {},
    optional={
        "elicitation": st.sampled_from([{}, {"form": {}}, {"form": {}, "url": {}}]),
        "sampling": st.sampled_from([{}, {"tools": {}}]),
        "roots": st.sampled_from([{}, {"listChanged": True}]),
        "extensions": st.sampled_from([{"a/b": {}}]),
    },
)
CLIENTS = st.builds(
    ClientFacts,
    era=st.sampled_from(["legacy", "modern"]),
    declares=CAPABILITIES,
    principal=st.sampled_from(["", "ann", "bob"]),
    client=st.sampled_from(["", "one", "two"]),
    credentials=st.sampled_from(["", "a", "b"]),
)
UPSTREAMS = st.builds(
    UpstreamFacts,
    legacy=st.sampled_from([None, True, False]),
    modern=st.sampled_from([None, True, False]),
    tied=st.booleans(),
)
OPTIONS = st.builds(
    SessionOptions,
    protocol=st.sampled_from(["auto", "legacy", "modern"]),
    sessions=st.sampled_from(["auto", "capabilities", "client", "call", "shared"]),
    shows=st.booleans(),
)


@given(CLIENTS, UPSTREAMS, OPTIONS)
def test_p5_no_session_declares_more_than_its_client(
    client: ClientFacts, upstream: UpstreamFacts, options: SessionOptions
) -> None:
    said = json.loads(key_for(client, upstream, options).declares)
    assert said.items() <= client.declares.items()


@given(CLIENTS, CLIENTS, UPSTREAMS, OPTIONS)
def test_u36_who_shares_a_session_may_share_it(
    one: ClientFacts, other: ClientFacts, upstream: UpstreamFacts, options: SessionOptions
) -> None:
    first, second = key_for(one, upstream, options), key_for(other, upstream, options)
    if first != second or first.era == "modern" or first.single:
        return
    assert one.credentials == other.credentials
    if options.sessions == "shared":
        return
    assert one.principal == other.principal
    said = json.loads(first.declares)
    same_client = bool(one.client) and one.client == other.client
    assert "roots" not in said or same_client
    if {"elicitation", "sampling"} & said.keys() and not upstream.tied:
        assert same_client or first.turns


def test_a_rule_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DefinitionError, match="sessions is one of auto"):
        RemoteToolset("https://example.com/mcp", name="up", sessions=cast("Any", "none"))


def test_u34_an_era_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"eras\['draw'\] is one of legacy, modern, not 'old'"):
        RemoteToolset("https://example.com/mcp", name="up", eras=cast("Any", {"draw": "old"}))


@pytest.mark.needs("upstream_access")
@pytest.mark.parametrize("target", [["a-command"], "https://example.com/sse"])
def test_f43_credentials_are_forwarded_over_streamable_http_alone(target: Any) -> None:
    with pytest.raises(DefinitionError, match="over streamable HTTP"):
        RemoteToolset(target, name="up", forward_authorization=True)
