"""What a bridge does with hooks, errors, grants and `_meta`, over every transport and in both protocol eras.

All tests of a transport and an era share one client, and all but those on stdio share one bridge: a test
leaves no trace that another one sees. Each run has each transport and each era; `scripts/doors` has each
pair of them. What is told of calls in general is in `test_doors.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import TextContent
from tests.interaction.conftest import WAYS, Connect, way_of
from tests.support.every_run import in_every_run

EVERY_RUN = (
    *("memory legacy", "stdio modern", "stdio-sdk legacy"),
    *("sse legacy", "http legacy", "http modern"),
)
pytestmark = [pytest.mark.anyio, in_every_run(EVERY_RUN, way_of)]


@pytest.fixture(scope="module", params=WAYS)
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
async def shared(connect: Connect) -> AsyncGenerator[Client]:
    async with connect(within=float("inf")) as client:
        yield client


@pytest.fixture
async def client(shared: Client) -> AsyncGenerator[Client]:
    with anyio.fail_after(90):
        yield shared


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def seen(client: Any) -> dict[str, int]:
    return json.loads(text_of(await client.call_tool("up_seen", {})))


async def test_list_shows_local_mounted_and_the_four_fixed_tools(client: Client) -> None:
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert names[:4] == ["add", "count", "linger", "explode"]
    assert {"up_double", "up_guarded", "up_seen"} <= set(names)
    assert names[-4:] == ["search_tools", "resolve_tools", "call_tool", "call_read_only_tool"]
    assert not [name for name in names if name.startswith("deep_")]


async def test_n9_call_reaches_local_and_mounted_tools(client: Client) -> None:
    local = await client.call_tool("add", {"a": 1, "b": 4})
    assert (local.structured_content, text_of(local)) == ({"result": 5}, "5")
    mounted = await client.call_tool("up_double", {"n": 21})
    assert (mounted.structured_content, text_of(mounted)) == ({"result": 42}, "42")


async def test_x8_the_same_hooks_edit_and_reject_local_and_mounted_calls(client: Client) -> None:
    assert (await client.call_tool("add", {"a": 7, "b": 1})).structured_content == {"result": 107}
    refused = await client.call_tool("add", {"a": 13})
    assert refused.is_error and "13 is not added here" in text_of(refused)
    guarded = await client.call_tool("up_guarded", {})
    assert guarded.is_error and "not today" in text_of(guarded)
    assert "guarded" not in await seen(client)


async def test_n10_errors_of_tools_are_results(client: Client) -> None:
    local = await client.call_tool("explode", {})
    assert local.is_error and "the fuse was lit" in text_of(local)
    assert "Traceback" not in text_of(local)
    mounted = await client.call_tool("up_fail", {})
    assert mounted.is_error and text_of(mounted) == "it broke"


async def test_n10_errors_of_the_protocol_keep_their_code_and_data(client: Client) -> None:
    with pytest.raises(MCPError) as refused:
        await client.call_tool("up_refuse", {})
    assert refused.value.code == -31999
    assert refused.value.message == "upstream: refused by the upstream"
    assert refused.value.data == {"why": "test"}


async def test_n6_bad_arguments_are_a_result_that_names_them_and_run_nothing(client: Client) -> None:
    before = await seen(client)
    local = await client.call_tool("add", {"a": "one", "c": 3})
    assert local.is_error and "a:" in text_of(local) and "'c'" in text_of(local)
    mounted = await client.call_tool("up_double", {"n": "two"})
    assert mounted.is_error and "n:" in text_of(mounted)
    assert (await seen(client)).get("double") == before.get("double")


async def test_f22_a_result_that_breaks_its_schema_is_an_error_that_names_the_server(client: Client) -> None:
    lie = await client.call_tool("up_lie", {})
    assert lie.is_error and "upstream: up_lie" in text_of(lie)


@pytest.mark.parametrize("name", ["count", "up_steps"])
async def test_p5_progress_reaches_the_call_it_belongs_to(client: Client, name: str) -> None:
    heard: dict[str, list[tuple[float, str | None]]] = {}
    complete = anyio.Event()

    async def one(tag: str) -> None:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            heard.setdefault(tag, []).append((progress, message))
            if sum(map(len, heard.values())) == 48:
                complete.set()

        await client.call_tool(name, {"tag": tag}, progress_callback=note)

    async with anyio.create_task_group() as group:
        for number in range(16):
            group.start_soon(one, f"t{number}")
    with anyio.fail_after(30):
        await complete.wait()
    assert {tag: sorted(reports) for tag, reports in heard.items()} == {
        f"t{number}": [(1, f"t{number}"), (2, f"t{number}"), (3, f"t{number}")] for number in range(16)
    }


async def test_n9_trace_context_and_custom_meta_go_on_and_hop_by_hop_keys_do_not(client: Client) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    result = await client.call_tool("up_meta", {}, meta={"traceparent": trace, "example.com/key": 1})
    meta = json.loads(text_of(result))
    assert meta["traceparent"] == trace and meta["example.com/key"] == 1
    client_info = meta.get("io.modelcontextprotocol/clientInfo")
    assert client_info is None or client_info["name"] == "mcp-toolset"


async def test_h24_a_warm_list_asks_no_upstream_and_a_warm_call_asks_once(client: Client) -> None:
    before = await seen(client)
    for _ in range(3):
        await client.list_tools()
    await client.call_tool("up_double", {"n": 1})
    after = await seen(client)
    assert after.get("tools/list") == before.get("tools/list")
    assert after["double"] == before.get("double", 0) + 1


async def test_x1_search_resolve_call_and_no_other_way(client: Client, era: str) -> None:
    found = await client.call_tool("search_tools", {"query": "double a number", "limit": 3})
    assert found.structured_content is not None
    assert found.structured_content["hits"][0]["id"] == "deep_double"

    with pytest.raises(MCPError, match="Unknown tool: deep_double"):
        await client.call_tool("deep_double", {"n": 4})
    ungranted = await client.call_tool("call_tool", {"grant": "deep_double", "arguments": {"n": 4}})
    assert ungranted.is_error and "no live grant" in text_of(ungranted)

    resolved = await client.call_tool("resolve_tools", {"ids": ["deep_double", "deep_nothing"]})
    assert resolved.structured_content is not None
    granted, absent = resolved.structured_content["tools"]
    assert granted["definition"]["inputSchema"]["required"] == ["n"]
    assert absent["status"] == "not_available"

    result = await client.call_tool("call_tool", {"grant": granted["grant"], "arguments": {"n": 4}})
    assert result.structured_content == {"result": 8}
    read = await client.call_tool("call_read_only_tool", {"grant": granted["grant"], "arguments": {"n": 5}})
    assert read.structured_content == {"result": 10}
    wrong = await client.call_tool("call_tool", {"grant": granted["grant"], "arguments": {"n": "x"}})
    assert wrong.is_error and "n:" in text_of(wrong)

    names = [tool.name for tool in (await client.list_tools()).tools]
    assert ("deep_double" in names) == (era == "legacy")
    if era == "legacy":
        assert (await client.call_tool("deep_double", {"n": 6})).structured_content == {"result": 12}


async def test_x3_the_read_only_call_tool_refuses_what_may_change_things(client: Client) -> None:
    resolved = await client.call_tool("resolve_tools", {"ids": ["deep_meta"]})
    assert resolved.structured_content is not None
    grant = resolved.structured_content["tools"][0]["grant"]
    refused = await client.call_tool("call_read_only_tool", {"grant": grant})
    assert refused.is_error and "not annotated as read-only" in text_of(refused)
    assert not (await client.call_tool("call_tool", {"grant": grant})).is_error


async def test_f35_a_session_cannot_use_the_grant_of_another(
    connect: Connect, transport: str, era: str
) -> None:
    if transport.startswith("stdio"):
        pytest.skip("a stdio server has one client")
    async with connect() as first, connect() as second:
        resolved = await first.call_tool("resolve_tools", {"ids": ["deep_double"]})
        assert resolved.structured_content is not None
        grant = resolved.structured_content["tools"][0]["grant"]
        used = await second.call_tool("call_tool", {"grant": grant, "arguments": {"n": 1}})
        if era == "legacy":
            assert used.is_error and "no live grant" in text_of(used)
        else:
            assert used.structured_content == {"result": 2}
        guessed = await second.call_tool(
            "call_tool", {"grant": "deep_double.AAAAAAAAAAAAAAAA", "arguments": {"n": 1}}
        )
        assert guessed.is_error and "no live grant" in text_of(guessed)
