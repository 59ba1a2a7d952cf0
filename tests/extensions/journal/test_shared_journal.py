"""Replicas of one server record calls in one store: a repeat at another replica has no second effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.commandline import CommandLine
from tests.shared.test_shared_state import current
from tests.support.journaled import UUID_KEY, Caller, noted
from tests.support.warm import Warm

from mcp_toolset import Toolset, ToolsetServer, load_toolset, tool
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError
from mcp_toolset.extensions.journal.journal_store import Intent, JournalStore, Outcome
from mcp_toolset.journal import JournalGuard
from mcp_toolset.shared import SharedState
from mcp_toolset.stores.redis import RedisStore

pytestmark = pytest.mark.anyio


async def test_j1_a_repeat_at_another_replica_gets_the_recorded_result(url: str) -> None:
    effects: list[int] = []

    @tool(destructive=True)
    async def charge(amount: int) -> str:
        """Charge an amount."""
        effects.append(amount)
        return f"charged {amount}, receipt {len(effects)}"

    def replica() -> ToolsetServer:
        return ToolsetServer(Toolset(charge), journal=True, shared=SharedState(url, timeout=30))

    async def call(server: ToolsetServer) -> Any:
        return await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY, principal="ann"))

    with anyio.fail_after(60):
        async with replica() as one, replica() as other:
            assert one.host.shared is not None
            await current(one.host.shared)  # pyright: ignore[reportArgumentType]
            first, again = await call(one), await call(other)
            assert (await other.call_tool("charge", {"amount": 5}, context=Caller())).text.endswith("2")
        async with replica() as later:
            last = await call(later)
    assert [one.text for one in (first, again, last)] == ["charged 5, receipt 1"] * 3
    assert [noted(one).get("state") for one in (first, again, last)] == [None, "replayed", "replayed"]


async def test_j1_the_store_has_neither_keys_nor_results(url: str) -> None:
    async with JournalStore(url) as journal:
        server = ToolsetServer(Toolset(tool(_secret)), journal=journal.store)
        async with server:
            await server.call_tool("_secret", {"password": "hunter2"}, context=Caller(UUID_KEY))
        assert isinstance(journal.store, RedisStore)
        run, key = journal.store.connection.run, journal.store.connection.key("journal", "*")
        [name] = await run("KEYS", key, to="look")
        held = repr(await run("HGETALL", name, to="look"))
        assert 0 < await run("PTTL", name, to="look") <= 7 * 86_400_000
    assert "***" in held and UUID_KEY not in held + repr(name)
    assert not any(one in held for one in ("hunter2", "forty-two"))


async def _secret(password: str) -> str:
    """Say the secret."""
    return "forty-two"


def configured(folder: Path, journal: object) -> ToolsetServer:
    folder.mkdir(exist_ok=True)
    config = folder / "mcp.json"
    config.write_text(json.dumps({"toolset": {"journal": journal}, "mcpServers": {}}))
    return ToolsetServer(load_toolset(load_config(config)))


async def test_j1_a_configured_server_records_in_the_store_of_the_replicas_or_its_own(
    url: str, tmp_path: Path
) -> None:
    own = f"{url.partition('?')[0]}?namespace=calls"
    for number, (journal, kept) in enumerate([(True, url), ({"timeout": 5}, url), ({"store": own}, own)]):
        server = configured(tmp_path, journal).derived(shared=SharedState(url, timeout=30))
        assert server.extensions.get("journal") is not None
        intent = Intent(str(number) * 64, "f", "", "", "", "pay", "{}", "client")
        async with server, JournalStore(kept) as seen:
            await server.extensions["journal"].guard().journal.begin(intent)
            assert [one.record.intent for one in await seen.records(prefix=intent.id)] == [intent]


async def test_j1_a_program_names_the_store_of_its_journal_by_a_url(url: str) -> None:
    server = ToolsetServer(Toolset(), journal=url)
    intent = Intent("4" * 64, "f", "", "", "", "pay", "{}", "client")
    async with server, JournalStore(url) as seen:
        await server.extensions["journal"].guard().journal.begin(intent)
        assert [one.record.intent for one in await seen.records()] == [intent]


async def test_j1_replicas_with_a_file_each_are_refused(url: str, tmp_path: Path) -> None:
    path, shared = tmp_path / "calls", SharedState(url)
    with pytest.raises(ConfigError, match="leave the file out") as fault:
        configured(tmp_path, {"path": "calls"}).derived(shared=shared)
    assert "calls" in str(fault.value)
    for journal in (path, str(path), JournalGuard(path)):
        with pytest.raises(ConfigError, match="replicas may run on other machines"):
            ToolsetServer(Toolset(), journal=journal, shared=shared)


async def test_j1_a_person_settles_a_call_in_the_shared_store(url: str, tmp_path: Path, warm: Warm) -> None:
    cli = CommandLine(tmp_path, warm)
    intent = Intent("5" * 64, "f", "", "", "", "pay", "{}", "client")
    async with JournalStore(url) as journal:
        await journal.begin(intent)
        await journal.end(intent.id, 1, Outcome("unknown"))
        listed = json.loads(cli.forked("journal", "list", "--unknown", "--json", "--store", url).stdout)
        assert [(one["id"], one["state"]) for one in listed] == [("5" * 12, "unknown")]
        words = ("journal", "settle", "555", "--done", "invoice 17")
        assert cli.forked(*words, env={"MCP_TOOLSET_SHARED": url}).returncode == 0
        found = await journal.begin(intent)
    assert found is not None and (found.standing, found.record.note) == ("done", "invoice 17")
    both = cli.forked("journal", "--store", url, "--file", str(tmp_path / "calls"))
    assert both.returncode == 2 and "give one of them" in both.stderr
