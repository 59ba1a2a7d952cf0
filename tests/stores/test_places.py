"""A program says where state is: nothing, a path, a URL, or a `Store`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_toolset import Toolset, ToolsetServer
from mcp_toolset.errors import ConfigError, DefinitionError, StateError
from mcp_toolset.stores.redis import RedisStore
from mcp_toolset.stores.sqlite import FileStore
from mcp_toolset.stores.store import MemoryStore, store_at


def test_a_place_is_a_path_a_url_or_a_store(tmp_path: Path) -> None:
    for place in (tmp_path / "calls", str(tmp_path / "calls"), "localhost:6379"):
        file = store_at(place, "the calls")
        assert isinstance(file, FileStore) and file.path == Path(place)
    assert isinstance(store_at("valkey://localhost", "the calls"), RedisStore)
    own = MemoryStore()
    assert store_at(own, "the calls") is own
    assert isinstance(store_at(None, "the calls"), MemoryStore)


@pytest.mark.parametrize("url", ["mysql://me:hunter2@host/db", "file:///tmp/calls", "://"])
def test_a_url_of_another_kind_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ConfigError, match="the URL of the calls begins with one of redis://") as told:
        store_at(url, "the calls")
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("journal", marks=pytest.mark.needs("journal")),
        pytest.param("suspended", marks=pytest.mark.needs("suspended")),
        pytest.param("processes", marks=pytest.mark.needs("processes")),
        "state",
    ],
)
@pytest.mark.parametrize("place", [5, {"a": "b"}])
def test_what_is_no_place_is_refused_by_each_keyword(key: str, place: object) -> None:
    with pytest.raises(DefinitionError, match="is kept at a path, at a URL, or in a Store, not in"):
        ToolsetServer(Toolset(), **{key: place})  # pyright: ignore[reportArgumentType]


@pytest.mark.needs("journal")
async def test_a_journal_that_is_not_open_records_nothing(anyio_backend: str) -> None:
    from mcp_toolset.extensions.journal.journal_store import Intent
    from mcp_toolset.journal import JournalGuard

    guard = JournalGuard("redis://127.0.0.1:1")
    with pytest.raises(StateError, match="is not open: use it within `async with`"):
        await guard.journal.begin(Intent("1", "f", "", "", "", "pay", "{}", "client"))
