"""The state of a registry in a store that has to be waited for: kept, shared, and never overwritten."""

from __future__ import annotations

import logging

import anyio
import pytest
from tests.support.far_store import FarState

from mcp_toolset import RegistryState, StateStore, Toolset, ToolsetServer, tool
from mcp_toolset.catalog.registry.state_store import StoredState
from mcp_toolset.errors import InvalidStateError, StaleStateError

pytestmark = pytest.mark.anyio


@tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


@tool
def drop() -> None:
    """Drop it all."""


def server(store: StateStore) -> ToolsetServer:
    return ToolsetServer(Toolset(add, drop), state=store)


async def test_what_is_decided_is_kept_in_the_store_from_one_run_to_the_next(port: int, space: str):
    with anyio.fail_after(60):
        async with server(FarState(port, space)) as first:
            await first.choose({"drop": False})
        async with server(FarState(port, space)) as second:
            assert [tool["name"] for tool in second.tools()] == ["add"]
            assert second.registry.generation == first.registry.generation


async def test_a_call_asks_the_store_nothing(port: int, space: str):
    store = FarState(port, space)
    with anyio.fail_after(60):
        async with server(store) as served:
            store.asked.clear()
            await served.call_tool("add", {"a": 1})
            assert store.asked == []


async def test_of_two_writers_the_second_is_told_and_overwrites_nothing(port: int, space: str):
    one, other = StoredState(FarState(port, space)), StoredState(FarState(port, space))
    assert await one.load() is None and await other.load() is None
    await one.save(RegistryState(1))
    with pytest.raises(StaleStateError, match="another process has saved"):
        await other.save(RegistryState(2))
    assert await other.load() == RegistryState(1)
    await other.save(RegistryState(2))
    with pytest.raises(StaleStateError):
        await one.save(RegistryState(3))


async def test_a_save_that_was_done_without_an_answer_is_its_own(port: int, space: str):
    class Lossy(FarState):
        lost = False

        async def save(self, text: str, before: str | None) -> bool:
            done = await super().save(text, before)
            if self.lost:
                raise ConnectionError("the answer was lost")
            return done

    store = Lossy(port, space)
    state = StoredState(store)
    store.lost = True
    with pytest.raises(InvalidStateError, match="could not save the state"):
        await state.save(RegistryState(1))
    store.lost = False
    await state.save(RegistryState(2))
    assert await StoredState(FarState(port, space)).load() == RegistryState(2)


async def test_a_server_does_not_open_without_its_state_and_names_the_store(space: str):
    store = FarState(1, space)
    with pytest.raises(InvalidStateError, match="could not load the state"):
        async with server(store):
            pass


async def test_a_store_that_fails_later_is_a_line_in_the_log(
    port: int, space: str, caplog: pytest.LogCaptureFixture
):
    store = FarState(port, space)
    with anyio.fail_after(60), caplog.at_level(logging.WARNING, "mcp_toolset.registry"):
        async with server(store) as served:
            store.port = 1
            await served.choose({"drop": False})
            assert not (await served.call_tool("add", {"a": 1})).is_error
    assert "could not save the state" in caplog.text


async def test_what_is_no_state_is_left_alone(port: int, space: str):
    store = FarState(port, space)
    await store.ask("put_text", "state", "somebody's notes")
    with pytest.raises(InvalidStateError, match="not a usable state"):
        await StoredState(store).load()
    assert await store.load() == "somebody's notes"
