"""The state of a registry in a `Store`: kept, shared, and never overwritten."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.catalog.registry.state import RegistryState
from mcp_toolset.catalog.registry.state_store import StoredState
from mcp_toolset.errors import ConfigError, InvalidStateError, StaleStateError
from mcp_toolset.shared import Entry, Put, Store
from mcp_toolset.stores.store import MemoryStore

pytestmark = pytest.mark.anyio


class Far(Store):
    """What one process has of a database; it can be down, and its answers can be lost."""

    name = "the names of the shop"

    def __init__(self, there: Store) -> None:
        self.there = there
        self.asked: list[str] = []
        self.is_down = self.loses = False
        self.users = 0

    async def __aenter__(self) -> Far:
        self.users += 1
        return self

    async def __aexit__(self, *ended: object) -> None:
        self.users -= 1

    def _answers(self, step: str) -> None:
        self.asked.append(step)
        if self.is_down:
            raise ConnectionError("it is down")

    async def get(self, *places: tuple[str, str]) -> Sequence[Entry | None]:
        self._answers("get")
        return await self.there.get(*places)

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        self._answers("write")
        standing = await self.there.write(*puts)
        if self.loses:
            raise ConnectionError("the answer was lost")
        return standing

    async def names(self, shelf: str) -> Sequence[str]:
        return await self.there.names(shelf)

    async def lives(self, owner: str) -> bool:
        return False


@pytest.fixture
def there() -> MemoryStore:
    return MemoryStore()


@tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


@tool
def drop() -> None:
    """Drop it all."""


def server(store: Store | str | Path) -> ToolsetServer:
    return ToolsetServer(Toolset(add, drop), name="shop", state=store)


async def test_what_is_decided_is_kept_in_the_store_from_one_run_to_the_next(there: MemoryStore):
    one = Far(there)
    with anyio.fail_after(60):
        async with server(one) as first:
            assert one.users == 1
            await first.choose({"drop": False})
        assert one.users == 0
        async with server(Far(there)) as second:
            assert [tool["name"] for tool in second.tools()] == ["add"]
            assert second.registry.generation == first.registry.generation


async def test_servers_of_other_names_have_other_states_in_one_store(there: MemoryStore):
    async with server(there) as first:
        await first.choose({"drop": False})
    async with ToolsetServer(Toolset(add, drop), name="stall", state=there) as other:
        assert [tool["name"] for tool in other.tools()] == ["add", "drop"]


async def test_what_is_neither_a_path_nor_a_known_url_nor_a_store_is_refused():
    with pytest.raises(ConfigError, match="the URL of the store of switched-on tools begins with one of"):
        server("mysql://host/db")


async def test_a_call_asks_the_store_nothing(there: MemoryStore):
    store = Far(there)
    with anyio.fail_after(60):
        async with server(store) as served:
            store.asked.clear()
            await served.call_tool("add", {"a": 1})
            assert store.asked == []


async def test_of_two_writers_the_second_is_told_and_overwrites_nothing(there: MemoryStore):
    one, other = StoredState(Far(there), "shop"), StoredState(Far(there), "shop")
    assert await one.load() is None and await other.load() is None
    await one.save(RegistryState(1))
    with pytest.raises(StaleStateError, match="another process has saved"):
        await other.save(RegistryState(2))
    assert await other.load() == RegistryState(1)
    await other.save(RegistryState(2))
    with pytest.raises(StaleStateError):
        await one.save(RegistryState(3))


async def test_a_save_that_was_done_without_an_answer_is_its_own(there: MemoryStore):
    store = Far(there)
    state = StoredState(store, "shop")
    store.loses = True
    with pytest.raises(InvalidStateError, match="could not save the state"):
        await state.save(RegistryState(1))
    store.loses = False
    await state.save(RegistryState(2))
    assert await StoredState(there, "shop").load() == RegistryState(2)


async def test_a_server_does_not_open_without_its_state_and_names_the_store(there: MemoryStore):
    store = Far(there)
    store.is_down = True
    with pytest.raises(InvalidStateError, match="the names of the shop: .*could not load the state"):
        async with server(store):
            pass
    assert store.users == 0


async def test_a_store_that_fails_later_is_a_line_in_the_log(
    there: MemoryStore, caplog: pytest.LogCaptureFixture
):
    store = Far(there)
    with anyio.fail_after(60), caplog.at_level(logging.WARNING, "mcp_toolset.registry"):
        async with server(store) as served:
            store.is_down = True
            await served.choose({"drop": False})
            assert not (await served.call_tool("add", {"a": 1})).is_error
    assert "could not save the state" in caplog.text


async def test_what_is_no_state_is_left_alone(there: MemoryStore):
    await there.write(Put("registry", "shop", b"somebody's notes"))
    with pytest.raises(InvalidStateError, match="not a usable state"):
        await StoredState(there, "shop").load()
    [entry] = await there.get(("registry", "shop"))
    assert entry is not None and entry.value == b"somebody's notes"
