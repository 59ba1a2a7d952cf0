"""`permissions` of a configuration that is served: what each caller sees, and a reload that changes it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder
from tests.support.direct_callers import LEGACY, MODERN, Caller

from mcp_toolset import Identity

TOOLS_CHANGED = "notifications/tools/list_changed"

pytestmark = pytest.mark.anyio

ADMIN, ANN = Identity.of(None, "root", roles=["admin"]), Identity.of(None, "ann")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def admins(**rules: Any) -> dict[str, Any]:
    return {"for": [{"roles": ["admin"], **rules}]}


async def test_i8_names_include_and_permissions_agree_on_the_tools(folder: Folder) -> None:
    named = {
        **folder.entry("read", "drop", "old_drop"),
        "names": {"drop": "remove"},
        "exclude": ["old_*"],
        "permissions": {"deny": ["drop"]},
    }
    plain = {**folder.entry("read", "drop"), "permissions": {"allow": ["read"]}}
    folder.write({"a": named, "b": plain}, permissions=admins(allow=["remove", "b/drop"]))
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.settled()
            assert sorted(await Caller(server, ANN).tools()) == ["a_read", "b_read"]
            assert sorted(await Caller(server, ADMIN).tools()) == ["b_drop", "b_read", "remove"]


async def test_i3_a_reload_takes_permissions_in_and_tells_the_clients_whose_list_differs(
    folder: Folder,
) -> None:
    entry = folder.entry("read", "drop")
    folder.write({"a": entry})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.settled()
            process = (await server.call_tool("a_read")).text
            ann, admin = Caller(server, ANN, LEGACY), Caller(server, ADMIN, LEGACY)
            for one in (ann, admin):
                await one.open()
                assert await one.tools() == ["a_read", "a_drop"]
            folder.write({"a": entry}, permissions={"deny": ["*_drop"], **admins(allow=["*"])})
            report = await server.reload()
            assert str(report) == "changed permissions"
            await until(lambda: ann.told)
            assert (ann.told, admin.told) == ([TOOLS_CHANGED], [])
            assert await ann.tools() == ["a_read"]
            assert (await ann.call("a_drop"))["error"][1] == "Unknown tool: a_drop"
            assert "error" not in await admin.call("a_drop")
            # The server itself was left alone.
            assert (await server.call_tool("a_read")).text == process
            folder.write({"a": entry})
            await server.reload()
            await until(lambda: len(ann.told) == 2)
            assert admin.told == []
            assert "error" not in await ann.call("a_drop")


async def test_i3_a_grant_from_before_a_reload_is_refused_by_the_new_permissions(folder: Folder) -> None:
    entry = {**folder.entry("read", "drop"), "deferred": True}
    folder.write({"a": entry})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.settled()
            ann = Caller(server, ANN, MODERN)
            answer = await ann.call("resolve_tools", ids=["a_drop"])
            (granted,) = answer["structuredContent"]["tools"]
            assert not (await ann.call("call_tool", grant=granted["grant"])).get("isError")
            folder.write({"a": entry}, permissions={"deny": ["a/drop"]})
            await server.reload()
            refused = await ann.call("call_tool", grant=granted["grant"])
            assert "no live grant" in refused["content"][0]["text"]
            assert (await ann.found("drop"))["hits"] == [] or "a_drop" not in ann.texts[-1]


async def test_i3_broken_permissions_change_nothing(folder: Folder) -> None:
    entry = folder.entry("read", "drop")
    folder.write({"a": entry}, permissions={"deny": ["*_drop"]})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.settled()
            folder.write({"a": entry}, permissions={"deney": ["*_drop"]})
            with pytest.raises(Exception, match="did you mean `deny`"):
                await server.reload()
            assert await Caller(server, ANN).tools() == ["a_read"]


async def test_i8_a_pattern_that_fits_no_tool_is_told_of(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write(
        {"a": {**folder.entry("read", "drop"), "permissions": {"deny": ["dorp"]}}},
        permissions={"deny": ["a_dropp", "a/*", "*"], "ask": ["destructive:z_*"]},
    )
    with anyio.fail_after(BOUND), caplog.at_level(logging.WARNING, "mcp_toolset.names"):
        async with folder.server() as server:
            await server.settled()
    told = "\n".join(caplog.messages)
    assert "toolset.permissions.deny('a_dropp') has no effect" in told
    assert "did you mean a_drop" in told
    assert "mcpServers.a.permissions.deny('dorp') has no effect" in told
    assert "toolset.permissions.ask('destructive:z_*') has no effect" in told
    assert len(caplog.messages) == 3
