"""The ids of search hits: what they are, and that they go on standing for their tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.calling import Caller, listed

from mcp_toolset import (
    DynamicToolset,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.catalog.deferred.findable import HitIds
from mcp_toolset.grants import AccessDenied, GrantLedger

pytestmark = [pytest.mark.anyio, pytest.mark.needs("dynamic_tools")]


class Invoices(ToolProvider):
    """A mounted server with tools of invoices."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def list_definitions(self) -> list[ToolDefinition]:
        return [ToolDefinition(name, f"Do {name} for an invoice.") for name in self.names]

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(f"{call.name} ran")


@tool
def archive(number: int = 0) -> str:
    """Archive an invoice."""
    return "archive ran"


@tool(id="inv-7")
def forward(number: int = 0) -> str:
    """Forward an invoice."""
    return "forward ran"


async def asked(server: ToolsetServer, name: str, **arguments: Any) -> dict[str, Any]:
    result = await server.call(ToolCall(name, arguments), Caller("one"))
    assert not result.is_error, result.text
    return result.structured


async def found(server: ToolsetServer, query: str = "invoice") -> dict[str, str]:
    """The ids of what a search finds, by public name."""
    hits = (await asked(server, "search_tools", query=query))["hits"]
    return {hit["signature"].partition("(")[0]: hit["id"] for hit in hits}


Shape = Callable[[Toolset], Toolset]
PREFIXES: dict[str, tuple[Shape, Shape]] = {
    "another prefix": (lambda tools: tools.prefixed("gh"), lambda tools: tools.prefixed("hub")),
    "a first prefix": (lambda tools: tools, lambda tools: tools.prefixed("hub")),
    "no prefix any more": (lambda tools: tools.prefixed("gh"), lambda tools: tools),
}


@pytest.mark.parametrize("change", PREFIXES)
async def test_u33_h21_a_hit_still_resolves_after_its_prefix_has_changed(change: str):
    before, after = PREFIXES[change]

    def tools() -> Toolset:
        return Toolset(DynamicToolset(Invoices("read"), name="erp"), archive, forward)

    async with ToolsetServer(Toolset()) as server:
        handle = await server.attach(before(tools()).deferred())
        ids = await found(server)
        await server.replace(handle, after(tools()).deferred())
        again = await found(server)
        assert set(again) != set(ids) and sorted(again.values()) == sorted(ids.values())
        names = {id: name for name, id in again.items()}
        resolved = (await asked(server, "resolve_tools", ids=list(ids.values())))["tools"]
        for one in resolved:
            name = names[one["id"]]
            assert (one["status"], one["definition"]["name"]) == ("granted", name)
            for reference in (one["grant"], one["id"], name):
                done = await server.call(ToolCall("call_tool", {"grant": reference}), Caller("one"))
                assert not done.is_error and done.text.endswith(" ran")
        assert sorted(again.values()) == ["archive", "erp_read", "inv-7"]


async def test_u33_h21_the_id_is_the_public_name_where_a_server_has_its_usual_prefix():
    tools = DynamicToolset(Invoices("read", "erp_send", "pay.now"), name="erp").prefixed("erp")
    async with ToolsetServer(Toolset(tools).deferred()) as server:
        ids = await found(server)
        assert ids["erp_read"] == "erp_read"
        granted = (await asked(server, "resolve_tools", ids=[*ids, *ids.values()]))["tools"]
        assert {one["status"] for one in granted} == {"granted"}


async def test_u33_h21_the_host_and_what_is_left_out_go_by_ids_too():
    tools = Toolset(DynamicToolset(Invoices("read", "send"), name="erp").prefixed("x"))
    async with ToolsetServer(tools.deferred()) as server:
        assert {hit.id: hit.name for hit in server.search("invoice")} == {
            "erp_read": "x_read",
            "erp_send": "x_send",
        }
        for left_out in ("erp_read", "x_read"):
            hits = (await asked(server, "search_tools", query="invoice", exclude=[left_out]))["hits"]
            assert [hit["id"] for hit in hits] == ["erp_send"]


async def test_u33_h21_an_unknown_id_is_answered_with_those_that_may_be_meant():
    tools = Toolset(DynamicToolset(Invoices("read_invoice", "send_invoice"), name="erp"))
    async with ToolsetServer(tools.deferred()) as server:
        reasons = [
            one["reason"]
            for one in (await asked(server, "resolve_tools", ids=["erp_read_invoce", "zzz", "readInvoice"]))[
                "tools"
            ]
        ]
        assert reasons[0].startswith("no such tool; did you mean erp_read_invoice")
        assert reasons[0].endswith('\nNext: resolve_tools {"ids": ["erp_read_invoice"]}')
        assert reasons[1].startswith("no such tool; use the id of a search hit\nNext: search_tools ")
        assert "erp_read_invoice" in reasons[2]


def binding(name: str, own: str = "", *, source: str = "erp", text: str = "Of an invoice.") -> ToolBinding:
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(name)

    definition = ToolDefinition(own or name, text)
    return listed(definition, execute, name=name, source=source, deferred=True)


class Desk:
    """A catalog that is asked as one session."""

    def __init__(self, *tools: ToolBinding, hidden: str = "") -> None:
        unseen = AccessDenied(shown=False)
        self.ledger = GrantLedger()
        self.catalog = DeferredCatalog(
            self.ledger, access=lambda tool, context: unseen if tool.name == hidden else None
        )
        self.catalog.update(tools)

    async def resolve(self, *ids: str, replay: str = "") -> list[dict[str, Any]]:
        (resolving,) = (one for one in self.catalog.fixed() if one.name == "resolve_tools")
        done = await resolving.execute(
            ToolCall("resolve_tools", {"ids": list(ids)}), Caller("s", replay=replay)
        )
        return done.structured["tools"]


async def test_u33_h21_an_id_that_several_tools_have_is_refused_and_names_them():
    theirs, mine = binding("git_log", "log", source="other"), binding("g_log", "log", source="git")
    desk = Desk(theirs, mine)
    (refused,) = await desk.resolve("git_log")
    ids = {hit.name: hit.id for hit in desk.catalog.search("invoice")}
    assert ids["git_log"] == "other_log" and ids["g_log"].startswith("git_log_")
    assert refused["status"] == "not_available"
    assert refused["reason"].startswith(
        f"several tools have this id; use {ids['g_log']} or other_log\nNext: resolve_tools "
    )
    granted = await desk.resolve(*ids.values())
    assert [one["definition"]["name"] for one in granted] == list(ids)


async def test_u33_h21_what_a_caller_may_not_know_of_makes_no_id_ambiguous_and_is_suggested_to_nobody():
    theirs, mine = binding("git_log", "log", source="other"), binding("g_log", "log", source="git")
    (granted,) = await Desk(theirs, mine, hidden="git_log").resolve("git_log")
    assert granted["definition"]["name"] == "g_log"
    secret, other = binding("erp_read"), binding("erp_dance")
    told = [
        (await desk.resolve("erp_read"))[0] for desk in (Desk(secret, other, hidden="erp_read"), Desk(other))
    ]
    assert told[0] == told[1] and told[0]["status"] == "not_available"
    (near,) = await Desk(secret, other, hidden="erp_read").resolve("erp_rea")
    assert "erp_read" not in near["reason"].replace("erp_rea;", "")


async def test_u33_h21_a_replay_gets_no_more_by_the_other_id_of_a_tool():
    desk = Desk(binding("x_pay", "pay"))
    (refused,) = await desk.resolve("x_read", replay="turn")
    desk.catalog.update([binding("x_read", "read")])
    (again,) = await desk.resolve("erp_read", replay="turn")
    assert (again["id"], again["status"]) == ("erp_read", "not_available")
    assert again["reason"] == refused["reason"]
    assert (await desk.resolve("erp_read", replay="next"))[0]["status"] == "granted"


async def test_u33_h21_a_tool_that_is_held_back_keeps_its_id():
    desk = Desk(binding("erp_read", "read"))
    (hit,) = desk.catalog.search("invoice")
    held = binding("erp/read", "read")
    desk.catalog.update([], [(held, "held: its schema has changed")])
    (now,) = desk.catalog.search("invoice")
    assert now.id == hit.id == "erp_read" and now.state == "changed"
    for id in ("erp_read", "erp/read"):
        (refused,) = await desk.resolve(id)
        assert refused["status"] == "not_available"
        assert "held: its schema has changed; a person must accept it" in refused["reason"]


async def test_u33_h21_local_tools_of_one_name_have_ids_that_stay():
    def named(module: str) -> Toolset:
        def say() -> str:
            """Say something about an invoice."""
            return module

        say.__module__, say.__qualname__ = module, "say"
        return Toolset(tool(say))

    one, two = named("one"), named("two")
    async with ToolsetServer(Toolset()) as server:
        handle = await server.attach(Toolset(one.prefixed("a"), two.prefixed("b")).deferred())
        assert await found(server) == {"a_say": "one:say", "b_say": "two:say"}
        await server.replace(handle, Toolset(one, two.prefixed("c")).deferred())
        assert await found(server) == {"say": "one:say", "c_say": "two:say"}
        resolved = (await asked(server, "resolve_tools", ids=["two:say", "say"]))["tools"]
        assert [entry["definition"]["name"] for entry in resolved] == ["c_say", "say"]


async def test_u33_h21_a_server_that_is_there_twice_is_told_apart_by_public_names():
    mount = DynamicToolset(Invoices("read"), name="erp")
    async with ToolsetServer(Toolset(mount.prefixed("a"), mount.prefixed("b")).deferred()) as server:
        assert await found(server) == {"a_read": "a_read", "b_read": "b_read"}


def test_u33_h21_ids_follow_what_comes_and_goes():
    ids = HitIds()
    ids.add([binding("x_read", "read"), binding("read", "read", source="")])
    assert [ids.id_of("x_read"), ids.id_of("read")] == ["erp_read", "read"]
    ids.remove(["read", "never there"])
    assert ids.named("read") == [] and ids.named("erp_read") == ["x_read"] == ids.named("x_read")
    ids.add([binding("x_read", "send")])
    assert ids.named("erp_read") == [] and ids.named("erp_send") == ["x_read"]
    ids.remove(["x_read"])
    assert ids.named("erp_send") == []


async def test_u33_h21_an_id_has_no_more_than_the_characters_of_a_name():
    rude = binding("safe", "read\u202e all\n" + "x" * 300)
    (hit,) = Desk(rude).catalog.search("invoice")
    assert hit.id.isascii() and hit.id.replace("_", "").isalnum() and len(hit.id) <= 64
