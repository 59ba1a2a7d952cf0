"""The shared grants behave as those in memory, and a revocation reaches a copy in another replica."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from uuid import uuid4

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.shared.test_shared_state import replica
from tests.support.valkey import ValkeyProcess

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.catalog.grants.cached_grants import CachedGrants
from mcp_toolset.catalog.grants.store import GrantFilter, GrantRecord, StoredGrants, ToolGrant, key_of
from mcp_toolset.stores.redis import RedisStore, StoreConnection
from mcp_toolset.stores.store import MemoryStore
from mcp_toolset.tools.binding import StoreMiss

pytestmark = pytest.mark.anyio
NOW = 4_000_000_000.0

OWNERS, NAMES, SOURCES = ("", "ann", "bob"), ("read", "write"), ("", "crm")


def granted(handle: str, owner: str, name: str, source: str, uses: int | None) -> ToolGrant:
    key = key_of(handle)
    return ToolGrant(handle, name, source, name, "d1", owner, NOW + 60, issued=NOW, uses=uses, key=key)


operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("save"),
            st.sampled_from(OWNERS),
            st.sampled_from(NAMES),
            st.sampled_from(SOURCES),
            st.sampled_from([None, 1, 2]),
            st.sampled_from(["", "k"]),
        ),
        st.tuples(st.just("take"), st.integers(0, 5)),
        st.tuples(st.just("give"), st.integers(0, 5)),
        st.tuples(
            st.just("revoke"),
            st.sampled_from([None, *OWNERS]),
            st.sampled_from([None, *NAMES]),
            st.sampled_from([None, *SOURCES]),
        ),
    ),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(steps=operations)
async def test_r1_the_shared_grants_are_as_those_in_memory(valkey: ValkeyProcess, steps: list[tuple]) -> None:
    connection = StoreConnection(f"{valkey.url}?namespace={uuid4().hex}")
    shared = StoredGrants(RedisStore(connection))
    memory, keys, numbers = StoredGrants(MemoryStore()), list[str](), count()
    try:
        for what, *values in steps:
            if what == "save":
                owner, name, source, uses, replay = values
                grant = granted(f"h{next(numbers)}", owner, name, source, uses)
                record = GrantRecord(owner, replay, f"crm:{name}", NOW, NOW + 60, grant)
                stands = await shared.save([record], {"d1": {"name": name}})
                assert stands == await memory.save([record], {"d1": {"name": name}})
                keys.append(grant.key)
            elif what == "revoke":
                which = GrantFilter(owner=values[0], name=values[1], source=values[2])
                assert await shared.revoke(which) == await memory.revoke(which)
            elif keys:
                key = keys[values[0] % len(keys)]
                if what == "take":
                    assert await shared.take(key) == await memory.take(key)
                else:
                    await memory.give_back(key)
                    await shared.give_back(key)
            for key in keys:
                assert await shared.find("", key, "") == await memory.get(key)
            for owner in OWNERS[1:]:
                assert await shared.held(owner) == await memory.held(owner)
                assert await shared.records(owner) == await memory.records(owner)
                for name in NAMES:
                    assert await shared.find(owner, "", name) == await memory.latest(owner, name)
            assert await shared.records() == await memory.records()
    finally:
        await connection.aclose()


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not holds():
            await anyio.lowlevel.checkpoint()


def is_live(cache: CachedGrants, owner: str, reference: str) -> bool:
    try:
        grant = cache.find(owner, reference)
    except StoreMiss:
        return False
    return grant is not None and not grant.revoked


async def test_r2_a_revocation_reaches_the_copy_of_another_replica(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        here, there = one.grants(), other.grants()
        grant = replace(granted("h", "ann", "read", "", None), expires=NOW)
        await here.save([GrantRecord("ann", "", "read", NOW, NOW + 60, grant)], {})
        await _known(there, "ann", "h")
        assert is_live(there, "ann", "h"), "a warm check asks nothing"
        assert await here.revoke(GrantFilter(owner="ann")) == 1
        await until(lambda: not is_live(there, "ann", "h"))


async def test_r2_a_new_grant_takes_the_place_of_the_copy_of_an_older_one(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        here, there = one.grants(), other.grants()
        for handle in ("h1", "h2"):
            grant = replace(granted(handle, "ann", "read", "", None), digest=handle)
            await here.save([GrantRecord("ann", "", "read", NOW, NOW + 60, grant)], {})
            with anyio.fail_after(10):
                while await _known(there, "ann", "read") != handle:
                    await anyio.lowlevel.checkpoint()


async def _known(cache: CachedGrants, owner: str, reference: str) -> str:
    while True:
        try:
            grant = cache.find(owner, reference)
        except StoreMiss as miss:
            await miss.load()
            continue
        return "" if grant is None else grant.digest


async def test_r1_servers_that_name_one_url_share_its_grants(url: str) -> None:
    @tool
    def read(number: int) -> str:
        """Read an invoice."""
        return f"invoice {number}"

    one, other = (ToolsetServer(Toolset(read).deferred(), grants=url) for _ in range(2))
    with anyio.fail_after(60):
        for _ in range(2):  # a server can be opened again
            async with one, other:
                found = await one.call_tool("resolve_tools", {"ids": ["read"]})
                call = {"grant": found.structured["tools"][0]["grant"], "arguments": {"number": 7}}
                assert (await other.call_tool("call_tool", call)).text == "invoice 7"
                assert await one.grants.revoke_all_async() == 1


async def test_r1_a_grant_is_stored_without_owner_and_bearer_handle_in_names(
    url: str, valkey: ValkeyProcess
) -> None:
    async with replica(url) as one:
        store = one.grants().stored
        await store.save(
            [GrantRecord("", "", "read", NOW, NOW + 60, granted("secret-handle", "", "read", "", 1))], {}
        )
        await store.save(
            [GrantRecord("ann@x", "", "r", NOW, NOW + 60, granted("h", "ann@x", "r", "", 1))], {}
        )
        keys = [key.decode() for key in await one.connection.run("KEYS", one.connection.key("*"), to="look")]
        dump = [await one.connection.run("HGETALL", key, to="look") for key in keys if ":grants:" in key]
        assert dump
        assert "secret-handle" not in json.dumps(str(dump)) and not [key for key in keys if "ann" in key]
