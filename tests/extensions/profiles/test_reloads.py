"""A configuration adds, changes and removes profiles while clients are connected and calls run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder, release, text_of, visitor
from tests.support.served import listening

pytestmark = pytest.mark.anyio


async def names(client: Client) -> list[str]:
    return sorted(tool.name for tool in (await client.list_tools()).tools)


def to(url: str, profile: str) -> Any:
    return streamable_http_client(f"{url}/p/{profile}/mcp")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_k4_a_reload_changes_profiles_without_a_call_lost(tmp_path: Path, era: str) -> None:
    folder = Folder(tmp_path)
    gate = folder.gate("gate")
    servers = {"one": folder.entry("a", "b", "held", gate=gate), "two": folder.entry("a")}
    work, home = {"tools": ["one/*"]}, {"tools": ["two/*"]}
    folder.write(servers, profiles={"work": work, "home": home})
    with anyio.fail_after(3 * BOUND):
        async with folder.server() as server, listening(server.http_app()) as url:
            await server.settled()
            async with (
                visitor(to(url, "work"), era) as (client, told),
                visitor(to(url, "home"), era) as (other, news),
            ):
                assert await names(client) == ["one_a", "one_b", "one_held"]
                assert await names(other) == ["two_a"]
                async with anyio.create_task_group() as group:
                    results = list[str]()

                    async def call() -> None:
                        results.append(text_of(await client.call_tool("one_held")))

                    group.start_soon(call)
                    view = await server.extensions["profiles"].view("work", None)
                    await until(lambda: view.answers.in_flight)
                    folder.write(
                        servers,
                        profiles={"work": {"tools": ["one/a"], "names": {"one_a": "first"}}, "new": home},
                    )
                    report = await server.reload(timeout=BOUND)
                    assert str(report) == "changed profiles"
                    await until(lambda: "tools" in told)
                    assert await names(client) == ["first"]
                    assert text_of(await client.call_tool("first")).startswith("a of")
                    async with Client(to(url, "new"), mode="auto", cache=None) as late:
                        assert await names(late) == ["two_a"]
                    await release(gate)
                assert results[0].startswith("held of")
                # Clients of one profile hear nothing of a change of another one.
                assert news == []
            folder.write(servers, profiles={"new": home})
            await server.reload(timeout=BOUND)
            async with httpx2.AsyncClient(timeout=BOUND) as http:
                for profile, status in (("work", 404), ("new", 400)):
                    assert (await http.post(f"{url}/p/{profile}/mcp", json={})).status_code == status


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(("before", "after"), [(None, "search"), ("search", None), (None, "list")])
async def test_k4_a_profile_keeps_its_clients_when_its_surface_is_written_or_removed(
    tmp_path: Path, era: str, before: str | None, after: str | None
) -> None:
    folder = Folder(tmp_path)
    servers = {"one": folder.entry("a")}

    def profile(surface: str | None) -> Any:
        return {"work": {"tools": ["one/*"], **({} if surface is None else {"surface": surface})}}

    folder.write(servers, profiles=profile(before))
    with anyio.fail_after(3 * BOUND):
        async with folder.server() as server, listening(server.http_app()) as url:
            await server.settled()
            async with visitor(to(url, "work"), era) as (client, told):
                assert ("one_a" in await names(client)) is (before is None)
                folder.write(servers, profiles=profile(after))
                await server.reload(timeout=BOUND)
                if (before == "search") is not (after == "search"):
                    await until(lambda: "tools" in told)
                assert ("one_a" in await names(client)) is (after != "search")
