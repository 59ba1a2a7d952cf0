"""What a policy hides from a caller is nowhere: in lists, searches, previews, handshakes and errors (I3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.support.direct_callers import LEGACY, MODERN, Caller
from tests.support.office import Office

from mcp_toolset import CacheHint, Identity, RemoteToolset, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.policy import Policy

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])

BOSS = Identity.of(None, "boss", roles=["boss"])
ANN = Identity.of(None, "ann", roles=["clerk"])
BOB = Identity.of(None, "bob", roles=["clerk"])
POLICY = Policy(deny=["payroll*", "*_shred", "audit"], roles={"boss": Policy(allow=["*"])})
SECRETS = ("payroll", "shred", "audit")
"""Words that are in the name of everything that clerks are not to know of, and of nothing else."""


@tool
def audit() -> str:
    """Look closely."""
    return "looked"


@tool
def hello() -> str:
    """Greet."""
    return "hello"


@asynccontextmanager
async def office(policy: Policy | None = POLICY, **options: Any) -> AsyncGenerator[ToolsetServer]:
    toolset = Toolset(
        audit,
        hello,
        Office("files", "read", "shred").mounted(),
        Office("payroll", "raise", "list").mounted(),
        Office("mail", "send", "shred").mounted().deferred(),
        Office("payroll2", "pay").mounted().deferred(),
    )
    with anyio.fail_after(60):
        async with ToolsetServer(toolset, policy=policy, **options) as server:
            yield server


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("tools/call", {"name": "search_tools", "arguments": {"query": "raise pay list shred send"}}),
    ("tools/call", {"name": "search_tools", "arguments": {"query": "pay", "resolve": 5}}),
    ("tools/call", {"name": "resolve_tools", "arguments": {"ids": ["pay", "mail_shre"]}}),
]


@ERAS
@pytest.mark.parametrize("who", [ANN, None], ids=["clerk", "nobody"])
async def test_i3_what_is_hidden_stands_in_no_answer(who: Identity | None, version: str) -> None:
    async with office() as server:
        caller, boss = Caller(server, who, version), Caller(server, BOSS, version)
        for one in (caller, boss):
            await one.open()
            for method, params in ASKED:
                await one.ask(method, params)
        assert not [word for word in SECRETS if word in caller.seen]
        assert all(word in boss.seen for word in SECRETS)
        assert all(word in caller.seen for word in ("files_read", "mail_send", "Use files", "files://"))


@ERAS
async def test_i3_calls_of_what_is_hidden_are_answered_as_those_of_what_does_not_exist(version: str) -> None:
    async with office() as server:
        ann, boss = Caller(server, ANN, version), Caller(server, BOSS, version)
        await ann.open()
        await boss.open()
        for name in ("audit", "files_shred", "payroll_raise", "mail_shred", "payroll2_pay"):
            unknown = await ann.call("no_such_tool")
            hidden = await ann.call(name, of=["the", "wrong", "shape"])
            assert str(hidden).replace(name, "no_such_tool") == str(unknown)
            assert "error" in hidden
        assert "error" not in await boss.call("audit")
        assert "error" not in await boss.call("payroll_raise")


PROBES: list[tuple[str, dict[str, Any], str]] = [
    ("prompts/get", {"name": "@_plan"}, "@"),
    ("resources/read", {"uri": "@://text"}, "@"),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "@_plan"}}, "@"),
    ("completion/complete", {"ref": {"type": "ref/resource", "uri": "@://{id}"}}, "@"),
]


@ERAS
@pytest.mark.parametrize(("method", "params", "mark"), PROBES)
async def test_i3_the_prompts_and_resources_of_a_hidden_server_do_not_exist(
    method: str, params: dict[str, Any], mark: str, version: str
) -> None:
    def about(name: str) -> dict[str, Any]:
        argument = {"argument": {"name": "id", "value": ""}} if method.startswith("comp") else {}
        told = {
            key: each.replace(mark, name)
            if isinstance(each, str)
            else {at: of.replace(mark, name) for at, of in each.items()}
            for key, each in params.items()
        }
        return {**told, **argument}

    async with office() as server:
        ann, boss = Caller(server, ANN, version), Caller(server, BOSS, version)
        await ann.open()
        await boss.open()
        hidden, none = await ann.ask(method, about("payroll")), await ann.ask(method, about("nowhere"))
        assert str(hidden).replace("payroll", "nowhere") == str(none)
        assert "error" in hidden
        assert "error" not in await boss.ask(method, about("payroll"))
        assert "error" not in await ann.ask(method, about("files"))


async def test_i3_a_grant_of_the_boss_is_none_of_a_clerk() -> None:
    async with office() as server:
        boss, ann = Caller(server, BOSS), Caller(server, ANN)
        resolved = await boss.call("resolve_tools", ids=["payroll2_pay"])
        (granted,) = resolved["structuredContent"]["tools"]
        assert granted["status"] == "granted"
        ran = await boss.call("call_tool", grant=granted["grant"])
        assert not ran.get("isError")
        stolen = await ann.call("call_tool", grant=granted["grant"])
        invented = await ann.call("call_tool", grant="g_none")
        assert stolen["isError"]
        assert str(stolen).replace(granted["grant"], "g_none") == str(invented)


async def test_i3_callers_of_one_group_see_one_list_and_it_is_private() -> None:
    async with office(list_hint=CacheHint(60_000, "public")) as server:
        ann, bob, boss = (Caller(server, one) for one in (ANN, BOB, BOSS))
        answers = [await one.ask("tools/list") for one in (ann, bob, boss)]
        assert answers[0] == answers[1] != answers[2]
        assert {answer["cacheScope"] for answer in answers} == {"private"}
        assert (await ann.ask("prompts/list"))["cacheScope"] == "private"


@pytest.mark.parametrize(
    ("policy", "scope"),
    [
        (None, "public"),
        (Policy(deny=["b*"]), "public"),
        (Policy(roles={"x": Policy(deny=["b*"])}), "private"),
    ],
)
async def test_i3_a_list_that_is_the_same_for_every_caller_may_be_shared(
    policy: Policy | None, scope: str
) -> None:
    toolset = Toolset(hello)
    async with ToolsetServer(toolset, policy=policy, list_hint=CacheHint(60_000, "public")) as server:
        assert (await Caller(server, ANN).ask("tools/list"))["cacheScope"] == scope


async def test_i3_a_policy_that_says_nothing_changes_nothing() -> None:
    async with office(None) as plain, office(Policy()) as empty:
        for method, params in ASKED[:4]:
            assert await Caller(plain, ANN).ask(method, params) == await Caller(empty, ANN).ask(
                method, params
            )


async def test_i3_a_tool_with_the_catalog_finds_what_its_caller_may_find() -> None:
    @tool
    def seek(query: str, context: ToolContext) -> list[str]:
        """Search."""
        return [hit.name for hit in context.search(query)]

    toolset = Toolset(seek, Office("payroll", "pay").mounted().deferred())
    async with ToolsetServer(toolset, policy=POLICY, capabilities=["catalog"]) as server:
        for who, names in ((ANN, []), (BOSS, ["payroll_pay"])):
            answer = await Caller(server, who).call("seek", query="pay")
            assert answer["structuredContent"] == {"result": names}


@ERAS
async def test_i3_a_hidden_server_that_is_down_is_not_named(version: str) -> None:
    down = [RemoteToolset(["no-such-program"], name=name) for name in ("payroll", "payroll2")]
    toolset = Toolset(hello, Office("mail", "send").mounted().deferred(), down[0], down[1].deferred())
    with anyio.fail_after(60):
        async with ToolsetServer(toolset, policy=POLICY) as server:
            await server.settled()
            ann, boss = Caller(server, ANN, version), Caller(server, BOSS, version)
            for one in (ann, boss):
                await one.open()
                await one.tools()
                await one.found("anything")
                await one.found("anything", server="payroll2")
                await one.call("resolve_tools", ids=["other"])
            assert "payroll" not in ann.seen.replace('"payroll2_', "")
            assert "payroll2" in boss.seen
            told = [(await one.call("payroll_pay"))["error"][1] for one in (ann, boss)]
            assert told[0].startswith("Unknown tool: payroll_pay; find tools with search_tools\n")
            assert "server `payroll`" in told[1]


@pytest.mark.needs("result_cache")
async def test_i3_a_result_that_was_cached_for_one_caller_is_none_of_another() -> None:
    from mcp_toolset.middleware import ResultCache

    runs: list[str] = []

    @tool(read_only=True, idempotent=True)
    def audit() -> str:
        """Look closely."""
        runs.append("ran")
        return "looked"

    async with ToolsetServer(
        Toolset(audit), policy=POLICY, middleware=[ResultCache(60, shared=True)]
    ) as server:
        boss, ann = Caller(server, BOSS), Caller(server, ANN)
        for _ in range(2):
            assert (await boss.call("audit"))["content"][0]["text"] == "looked"
        assert runs == ["ran"]
        assert (await ann.call("audit"))["error"][1] == "Unknown tool: audit"
