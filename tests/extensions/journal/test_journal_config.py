"""The journal of a configuration: which tools are recorded, where, and which servers are told keys."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.journaled import UUID_KEY, Caller

from mcp_toolset import ToolsetServer, load_toolset
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError
from mcp_toolset.journal import JournalGuard

pytestmark = pytest.mark.anyio

SHOP = '''
import json, sys
from mcp_toolset import Toolset, ToolContext, serve, tool

def note(**what):
    with open("effects", "a") as file:
        file.write(json.dumps(what) + "\\n")

@tool(destructive=True)
def charge(context: ToolContext, amount: int, request_id: str) -> str:
    """Charge an amount."""
    note(amount=amount, request_id=request_id)
    return f"charged {amount}"

@tool(destructive=True)
def refund(context: ToolContext, amount: int) -> str:
    """Pay an amount back."""
    note(amount=amount, key=context.meta.get("com.example/key"))
    return f"refunded {amount}"

if __name__ == "__main__":
    serve(Toolset(charge, refund))
'''


def written(folder: Path, section: object, **entry: Any) -> Path:
    (folder / "shop.py").write_text(SHOP)
    server = {"command": sys.executable, "args": ["shop.py"], "cwd": str(folder), "prefix": False}
    server |= entry
    config = folder / "mcp.json"
    config.write_text(json.dumps({"toolset": {"journal": section}, "mcpServers": {"shop": server}}))
    return config


def effects(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "effects").read_text().splitlines()]


async def test_j2_a_mounted_server_is_told_the_key_where_the_configuration_says(tmp_path: Path) -> None:
    places = {"charge": "arguments.request_id", "*": "_meta.com.example/key"}
    config = written(tmp_path, {"path": "calls.sqlite3"}, idempotency=places)
    ann, other = Caller(UUID_KEY, principal="ann"), Caller(UUID_KEY, principal="bob")
    with anyio.fail_after(60):
        async with ToolsetServer(load_toolset(load_config(config))) as server:
            shown = next(one for one in server.tools() if one["name"] == "charge")["inputSchema"]
            for caller in (ann, ann, other):
                await server.call_tool("charge", {"amount": 5}, context=caller)
            forged = await server.call_tool("charge", {"amount": 6, "request_id": "mine"}, context=ann)
            await server.call_tool("refund", {"amount": 5}, context=Caller("refund-" + UUID_KEY))
            async with JournalGuard(tmp_path / "calls.sqlite3") as guard:
                recorded = {one.record.intent.tool for one in await guard.journal.records()}
    assert set(shown["properties"]) == {"amount"} and shown["required"] == ["amount"]
    assert forged.is_error
    first, second, third = effects(tmp_path)
    assert first["amount"] == second["amount"] == 5 and first["request_id"] != second["request_id"]
    assert all(len(one) == 36 for one in (first["request_id"], second["request_id"], third["key"]))
    assert recorded == {"charge", "refund"}


async def test_j2_a_tool_without_the_argument_is_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = written(tmp_path, False, idempotency={"refund": "arguments.request_id"})
    with anyio.fail_after(60):
        async with ToolsetServer(load_toolset(load_config(config))) as server:
            await server.settled()
            shown = next(one for one in server.tools() if one["name"] == "refund")["inputSchema"]
    assert set(shown["properties"]) == {"amount"}
    [warning] = {one for one in caplog.messages if "request_id" in one}
    assert "no key is sent with its calls" in warning and "has no parameter 'request_id'" in warning


async def test_j2_without_a_journal_each_call_has_a_key_of_its_own(tmp_path: Path) -> None:
    config = written(tmp_path, False, idempotency="arguments.request_id")
    with anyio.fail_after(60):
        async with ToolsetServer(load_toolset(load_config(config))) as server:
            for _ in range(2):
                await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
    first, second = effects(tmp_path)
    assert first["request_id"] != second["request_id"]


async def test_j1_tools_of_a_configuration_are_recorded_by_pattern(tmp_path: Path) -> None:
    tools = {"charge": "once", "re*": "off"}
    config = written(tmp_path, {"path": "j", "tools": tools}, journal={"refund": "once", "charge": "off"})
    found = load_config(config)
    server = ToolsetServer(load_toolset(found), journal=tmp_path / "other")
    assert server.extensions.get("journal") is not None
    assert found.extensions["journal"] is not None and found.extensions["journal"].path == tmp_path / "j"
    assert dict(found.servers[0].extensions["journal"].modes) == {"refund": "once", "charge": "off"}
    assert found.servers[0].reached() == load_config(written(tmp_path, False)).servers[0].reached()


async def test_j1_a_server_of_a_configuration_without_a_journal_has_none(tmp_path: Path) -> None:
    for said, has in ((False, False), (True, True), ({}, True)):
        found = load_config(written(tmp_path, said))
        assert (ToolsetServer(load_toolset(found)).extensions.get("journal") is not None) is has
        assert ToolsetServer(load_toolset(found), journal=False).extensions.get("journal") is None


def test_j1_the_url_of_a_store_is_expanded_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLS", "mysql://me:hunter2@host")
    found = load_config(written(tmp_path, {"store": "${CALLS}"}))
    assert (
        found.extensions["journal"] is not None
        and found.extensions["journal"].store == "mysql://me:hunter2@host"
    )
    with pytest.raises(ConfigError, match="postgresql://") as fault:
        ToolsetServer(load_toolset(found))
    assert "hunter2" not in str(fault.value) + repr(found)


@pytest.mark.parametrize(
    "journal, entry, told",
    [
        (5, {}, "write `journal` as true, false or an object"),
        ({"pat": "x"}, {}, "did you mean `path`?"),
        ({"ttl": 0}, {}, "ttl"),
        ({"path": "j", "store": "redis://host"}, {}, "leave one of them out"),
        ({"store": "localhost:6379"}, {}, "write `store` as a URL"),
        ({"store": "${JOURNAL_STORE_THAT_IS_NOT_SET}"}, {}, "JOURNAL_STORE_THAT_IS_NOT_SET"),
        ({"tools": {"charge": "twice"}}, {}, 'write one of "off", "once", "repeat"'),
        ({"tools": {"readonly:*": "off"}}, {}, "did you mean `readOnly:*`?"),
    ],
)
def test_j1_mistakes_in_the_section_are_named(tmp_path: Path, journal: object, entry: Any, told: str) -> None:
    with pytest.raises(ConfigError) as fault:
        load_config(written(tmp_path, journal, **entry))
    assert told in str(fault.value) and "mcp.json" in str(fault.value)


@pytest.mark.parametrize(
    "entry, told",
    [
        ({"journal": {"charge": "never"}}, 'write one of "off", "once", "repeat"'),
        ({"idempotency": "request_id"}, 'write "_meta.NAME" or "arguments.NAME"'),
        ({"idempotency": {"charge": "arguments."}}, 'write "_meta.NAME" or "arguments.NAME"'),
    ],
)
def test_j2_mistakes_in_a_servers_entry_are_its_fault(tmp_path: Path, entry: Any, told: str) -> None:
    [server] = load_config(written(tmp_path, True, **entry)).servers
    assert told in server.fault
