"""Limits and permissions of a configuration hold for its servers, and a reload replaces them."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.support.configured import BOUND, Folder

from mcp_toolset import rejection_reason

pytestmark = pytest.mark.anyio


async def test_i8_limits_of_a_configuration_hold_until_a_reload_changes_them(tmp_path: Path):
    folder = Folder(tmp_path)
    entry = folder.entry("a", "b")
    limited, every = {**entry, "limits": {"a": {"rate": "1/day"}}}, {"*": {"rate": "3/day"}}
    folder.write({"one": limited}, limits=every)

    with anyio.fail_after(2 * BOUND):
        async with folder.server() as server:
            await server.settled()

            async def runs(tool: str) -> bool:
                result = await server.call_tool(f"one_{tool}")
                assert not result.is_error or rejection_reason(result) is not None
                return not result.is_error

            assert [await runs(tool) for tool in "aabbbb"] == [True, False, True, True, True, False]
            folder.write({"one": limited}, limits=every, name="other")
            await server.reload(timeout=BOUND)
            assert [await runs(tool) for tool in "ab"] == [False, False]
            folder.write(
                {"one": {**entry, "retries": 1, "breaker": {"failures": 1}}}, limits={"*": {"rate": "1/day"}}
            )
            report = await server.reload(timeout=BOUND)
            assert not report.restarted
            assert [await runs(tool) for tool in "ab"] == [True, False]
            folder.write({"one": entry}, permissions={"ask": ["one/a"]})
            await server.reload(timeout=BOUND)
            assert [await runs(tool) for tool in "aabb"] == [False, False, True, True]
