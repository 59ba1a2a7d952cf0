"""How long clients may keep a list: the strictest of its parts, in the era that has such hints (N10, P4)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.caching import CacheHint as ServerHint
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from tests.interaction.test_crossings import LIBRARY
from tests.interaction.test_questions import upstreams
from tests.support.asking import Person, connected
from tests.support.warm import Warm

from mcp_toolset import CacheHint, Prompts, RemoteToolset, Toolset, ToolsetError, ToolsetServer, tool
from mcp_toolset.protocol.eras import LONGEST, STRICTEST, strictest
from mcp_toolset.tools.opening import settled

pytestmark = pytest.mark.anyio

MINUTE = 60_000


@tool
def plain() -> str:
    """Say something."""
    return "said"


def shelf(name: str, ttl_ms: int, scope: Any, *, announces: bool = True, listed: Any = None) -> Server[Any]:
    """A server whose lists all have one hint."""

    async def tools(ctx: Any, params: Any) -> types.ListToolsResult:
        if listed is not None:
            listed.send_nowait(name)
        return types.ListToolsResult(tools=[types.Tool(name=f"{name}_read", input_schema={"type": "object"})])

    async def call(ctx: Any, params: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[])

    async def prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name=f"{name}_plan")])

    async def get(ctx: Any, params: Any) -> types.GetPromptResult:
        return types.GetPromptResult(messages=[])

    hint: Any = ServerHint(ttl_ms=ttl_ms, scope=scope)
    more: dict[str, Any] = {}
    if announces:
        more["on_subscriptions_listen"] = ListenHandler(InMemorySubscriptionBus())
    return Server(
        name,
        version="1",
        cache_hints={"tools/list": hint, "prompts/list": hint},
        on_list_tools=tools,
        on_call_tool=call,
        on_list_prompts=prompts,
        on_get_prompt=get,
        **more,
    )


def mounted(*servers: Server[Any]) -> list[RemoteToolset]:
    return [RemoteToolset(each, name=each.name) for each in servers]


async def hints(server: ToolsetServer) -> list[tuple[int, str]]:
    """Of the tools and of the prompts, as a client of 2026-07-28 reads them."""
    async with connected(server, "2026-07-28") as client:
        await server.settled()
        lists = [await client.list_tools(), await client.list_prompts()]
        return [(each.ttl_ms, each.cache_scope) for each in lists]


async def test_n10_p4_a_list_of_several_carries_the_strictest_of_their_hints() -> None:
    erp, crm = shelf("erp", MINUTE, "public"), shelf("crm", 5 * MINUTE, "public")
    assert await hints(ToolsetServer(Toolset(*mounted(erp)))) == [(MINUTE, "public")] * 2
    assert await hints(ToolsetServer(Toolset(*mounted(erp, crm)))) == [(MINUTE, "public")] * 2
    wiki = shelf("wiki", 2 * MINUTE, "private")
    assert await hints(ToolsetServer(Toolset(*mounted(crm, wiki)))) == [(2 * MINUTE, "private")] * 2
    silent = shelf("silent", 0, "public")
    assert await hints(ToolsetServer(Toolset(*mounted(erp, silent)))) == [(0, "public")] * 2


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (CacheHint(2 * MINUTE, "public"), (MINUTE, "public")),
        (CacheHint(1000, "public"), (1000, "public")),
        (CacheHint(2 * MINUTE), (MINUTE, "private")),
        (STRICTEST, (0, "private")),
    ],
)
async def test_n10_p4_the_application_says_how_long_its_own_part_may_be_kept(own: Any, told: Any) -> None:
    prompts = Prompts()
    prompts.add(name="own")(lambda: "the application's own")
    server = ToolsetServer(
        Toolset(plain, *mounted(shelf("erp", MINUTE, "public"))), prompts=prompts, list_hint=own
    )
    assert await hints(server) == [told, told]
    assert await hints(server.derived(name="again")) == [told, told]


async def test_n10_a_list_before_grants_is_for_one_client_alone() -> None:
    erp, crm = mounted(shelf("erp", MINUTE, "public"), shelf("crm", MINUTE, "public"))
    (of_tools, of_prompts) = await hints(ToolsetServer(Toolset(erp, crm.deferred())))
    assert of_tools == (MINUTE, "private") and of_prompts == (MINUTE, "public")


@pytest.fixture(scope="module")
def libraries(warm: Warm) -> Generator[dict[str, Any]]:
    with upstreams(warm, *LIBRARY) as made:
        yield made


@pytest.mark.parametrize("upstream", ["legacy", "modern"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_n10_p4_hints_cross_where_both_sides_are_of_the_era_that_has_them(
    mode: str, upstream: str, libraries: dict[str, Any]
) -> None:
    server = ToolsetServer(Toolset(RemoteToolset(libraries[f"stdio_{upstream}"], name="library")))
    async with connected(server, mode) as client:
        await server.settled()
        lists = [await client.list_tools(), await client.list_prompts(), await client.list_resources()]
        told = (MINUTE, "public") if (mode, upstream) == ("2026-07-28", "modern") else (0, "private")
        for each in lists:
            assert (each.ttl_ms, each.cache_scope) == told
            assert ("ttl_ms" in each.model_fields_set) == (mode != "legacy")


async def test_n10_p4_time_that_has_passed_is_gone_where_no_changes_are_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send, listed = anyio.create_memory_object_stream[str](16)
    quiet = shelf("quiet", MINUTE, "public", announces=False, listed=send)
    (mount, told) = mounted(quiet, shelf("loud", MINUTE, "public"))
    async with send, listed, mount, told:
        await settled([mount, told])
        assert listed.receive_nowait() == "quiet"
        now = anyio.current_time()
        monkeypatch.setattr(anyio, "current_time", lambda: now + 45)
        left = mount.list_hint()
        assert left is not None and 0 < left.ttl_ms <= 15_000 and left.scope == "public"
        assert told.list_hint() == CacheHint(MINUTE, "public")
        monkeypatch.setattr(anyio, "current_time", lambda: now + 75)
        assert mount.list_hint() == CacheHint(0, "public")
        monkeypatch.undo()
        with anyio.fail_after(40):
            assert await listed.receive() == "quiet"
    assert mount.list_hint() == STRICTEST


async def test_n10_the_same_list_is_told_later_with_less_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    hour = 60 * MINUTE
    quiet = shelf("quiet", hour, "public", announces=False)
    async with connected(ToolsetServer(Toolset(*mounted(quiet))), "2026-07-28") as client:
        first = await client.list_tools()
        now = anyio.current_time()
        monkeypatch.setattr(anyio, "current_time", lambda: now + 45 * 60)
        later = await client.list_tools()
        monkeypatch.undo()
    assert later.tools == first.tools
    assert 0 < later.ttl_ms <= hour // 4 < first.ttl_ms <= hour


async def test_n10_a_server_without_tools_has_no_part_in_the_hint_of_the_list() -> None:
    async def prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name="plan")])

    prompting: Server[Any] = Server("prompting", version="1", on_list_prompts=prompts)
    mounts = mounted(shelf("erp", MINUTE, "public"), prompting)
    assert await hints(ToolsetServer(Toolset(*mounts))) == [(MINUTE, "public"), (0, "private")]


async def test_p4_what_was_read_in_several_rounds_is_not_to_be_kept() -> None:
    async def read(ctx: Any, params: types.ReadResourceRequestParams) -> Any:
        if params.input_responses is None:
            asked = types.ElicitRequestFormParams(
                message="Sure?", requested_schema={"type": "object", "properties": {}}
            )
            return types.InputRequiredResult(
                input_requests={"sure": types.ElicitRequest(params=asked)}, request_state="once"
            )
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, text="a secret")],
            ttl_ms=MINUTE,
            cache_scope="public",
        )

    async def resources(ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri="a://1", name="one")])

    vault: Server[Any] = Server("vault", version="1", on_list_resources=resources, on_read_resource=read)
    server = ToolsetServer(Toolset(*mounted(vault)))
    async with connected(server, "2026-07-28", elicitation_callback=Person({})) as client:
        found = await client.read_resource("a://1")
        assert (found.ttl_ms, found.cache_scope) == (0, "private")


@pytest.mark.parametrize("wrong", [{"ttl_ms": -1}, {"ttl_ms": 1.5}, {"ttl_ms": True}, {"scope": "all"}])
def test_a_hint_that_no_client_could_read_is_refused(wrong: Any) -> None:
    with pytest.raises(ToolsetError, match="not"):
        CacheHint(**wrong)


HINTS = st.builds(CacheHint, st.integers(0, LONGEST), st.sampled_from(["public", "private"]))


@given(st.lists(HINTS, min_size=1), st.floats(0, 1e6))
def test_n10_p4_no_part_is_kept_longer_or_shown_wider_than_it_allows(parts: Any, seconds: float) -> None:
    whole = strictest(parts)
    assert all(whole.ttl_ms <= part.ttl_ms for part in parts)
    assert whole.scope == "private" or all(part.scope == "public" for part in parts)
    assert strictest([whole, *parts]) == whole and CacheHint.of(whole.to_wire()) == whole
    assert whole.in_seconds().ttl_ms <= whole.ttl_ms
    assert whole.aged(seconds).ttl_ms <= max(0, whole.ttl_ms - seconds * 1000)
