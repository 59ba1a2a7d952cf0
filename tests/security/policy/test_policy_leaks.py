"""With any policy: a hidden tool or server is in no answer to its caller, and everything else works (I3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.direct_callers import LEGACY, MODERN, Caller
from tests.support.office import Office

from mcp_toolset import Identity, ToolBinding, Toolset, ToolsetServer, tool
from mcp_toolset.policy import Policy

SERVERS = {"zinc": ("alpha", "bravo"), "yoke": ("carol", "delta"), "wolf": ("eagle", "fritz")}
"""Words that no text of this package has, so that one in an answer is a tool or a server."""

DEFERRED = ("yoke", "wolf")


@tool
def local_hazel() -> str:
    """Do nothing."""
    return "done"


names = st.sampled_from(
    [
        "*",
        "local_*",
        "*_alpha",
        "zinc/*",
        "yoke/*",
        "wolf/*",
        "yoke_carol",
        "wolf/fritz",
        "*a*",
        "destructive:*",
    ]
)
lists = st.lists(names, max_size=3)
rules = st.builds(lambda allow, deny: Policy(allow=allow, deny=deny), st.none() | lists, lists)
policies = st.builds(
    lambda allow, ask, deny, roles, servers: Policy(
        allow=allow, ask=ask, deny=deny, roles=roles, servers=servers
    ),
    st.none() | lists,
    lists,
    lists,
    st.dictionaries(st.sampled_from(["one", "two"]), rules, max_size=2),
    st.dictionaries(st.sampled_from(sorted(SERVERS)), rules, max_size=2),
)
callers = st.none() | st.builds(
    lambda roles: Identity.of(None, "ann", roles=roles), st.lists(st.sampled_from(["one", "two"]), max_size=2)
)


def hidden_words(policy: Policy, tools: Iterable[ToolBinding], caller: Identity | None) -> set[str]:
    """The names of the tools that are denied, and those of the servers that have no other tool."""
    verdicts = {one.name: policy.decide(one, caller).kind for one in tools}
    denied = {name for name, kind in verdicts.items() if kind == "deny"}
    words = {name.partition("_")[2] for name in denied}
    return words | {
        server for server, owned in SERVERS.items() if {f"{server}_{one}" for one in owned} <= denied
    }


async def asked(caller: Caller) -> None:
    """Everything that a curious client asks for; names of its own choice are not what it was told."""
    await caller.open()
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        await caller.ask(method)
    listed = await caller.tools()
    if "search_tools" in listed:
        found = await caller.found("to do what", limit=50, resolve=5)
        await caller.call("resolve_tools", ids=[hit["id"] for hit in found["hits"]] or ["none"])
        await caller.found("to", server="nowhere")
    for uri in ("nowhere://text", "none"):
        await caller.ask("resources/read", {"uri": uri})
    await caller.ask("prompts/get", {"name": "none"})
    await caller.call("no_such_tool")
    await caller.call("zin")


async def check(policy: Policy, caller: Identity | None) -> None:
    toolsets: list[Any] = [
        mounted.deferred() if name in DEFERRED else mounted
        for name, owned in SERVERS.items()
        for mounted in (Office(name, *owned).mounted(),)
    ]
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(local_hazel, *toolsets), policy=policy) as server:
            await server.settled()
            words = hidden_words(
                policy, (one for one in server.bindings() if "_tool" not in one.name), caller
            )
            for version in (LEGACY, MODERN):
                one = Caller(server, caller, version)
                await asked(one)
                assert not [word for word in words if word in one.seen], (words, one.seen)
                shown = {owned for every in SERVERS.values() for owned in every} - words
                assert all(word in one.seen for word in shown), (shown, one.seen)


@given(policies, callers)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_i3_under_any_policy_what_is_hidden_is_in_no_answer(policy: Policy, caller: Identity | None) -> None:
    anyio.run(check, policy, caller)
