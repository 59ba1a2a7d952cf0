"""A toolset that is entered for a loop: what it waits for, what it says, and what is still missing."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder, release

from mcp_toolset import RemoteToolset, Toolset, tool
from mcp_toolset.errors import ToolNotReadyError, UnknownToolError
from mcp_toolset.rounds import ToolAvailability

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def mounted(folder: Folder, name: str, *tools: str, start_timeout: float = BOUND) -> RemoteToolset:
    """A server that answers the handshake once its gate is released."""
    entry = folder.entry(*tools, start=folder.gate(f"{name}.gate"))
    return RemoteToolset([entry["command"], *entry["args"]], name=name, start_timeout=start_timeout)


def view(toolset: Toolset, name: str) -> list[str]:
    return list(toolset.view(ToolAvailability.default_plus(name)))


async def test_u9_an_entered_toolset_has_the_tools_of_a_slow_mount(folder: Folder) -> None:
    remote = mounted(folder, "time", "now")
    entered = anyio.Event()

    async def later() -> None:
        await anyio.wait_all_tasks_blocked()
        assert not entered.is_set()
        await release(str(folder.path / "time.gate"))

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            group.start_soon(later)
            async with Toolset(add, remote) as tools:
                entered.set()
                assert view(tools, "now") == ["add", "now"]


async def test_u9_a_mount_that_never_answers_is_an_offline_error_with_its_reason(folder: Folder) -> None:
    remote = mounted(folder, "time", "now", start_timeout=0.3)
    with anyio.fail_after(BOUND):
        async with Toolset(add, remote) as tools:
            assert view(tools, "add") == ["add"]
            for failing in (lambda: view(tools, "now"), lambda: tools.find("now")):
                with pytest.raises(
                    ToolNotReadyError, match=r"server `time` is offline: no answer within 0.3 s"
                ):
                    failing()


async def test_u9_a_program_may_go_on_sooner_and_what_is_missing_is_still_starting(folder: Folder) -> None:
    remote = mounted(folder, "time", "now")
    with anyio.fail_after(BOUND):
        async with Toolset(add, remote).opened(timeout=0) as tools:
            with pytest.raises(ToolNotReadyError) as caught:
                view(tools, "now")
            assert "server `time` is still starting" in str(caught.value)
            assert "Unknown tool" not in str(caught.value)
            assert isinstance(caught.value, UnknownToolError)
            await release(str(folder.path / "time.gate"))
            await until(lambda: "now" in tools.names())
        with pytest.raises(ToolNotReadyError, match="server `time` is closed"):
            view(tools, "later")


async def test_u9_a_terminal_is_told_what_is_waited_for(
    folder: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolset.tools.opening.QUIET", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    remote = mounted(folder, "time", "now", start_timeout=0.3)
    with anyio.fail_after(BOUND):
        async with Toolset(add, remote):
            pass
        async with mounted(folder, "slow", "a").opened(timeout=0.1):
            pass
    assert capsys.readouterr().err.splitlines() == [
        "mcp-toolset: waiting for time (0 of 1 servers settled) …",
        "mcp-toolset: time: offline (no answer within 0.3 s) (1 of 1 servers settled)",
        "mcp-toolset: waiting for slow (0 of 1 servers settled) …",
        "mcp-toolset: going on without slow: still starting",
    ]


async def test_u9_nothing_is_written_where_stderr_is_no_terminal(
    folder: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_toolset.tools.opening.QUIET", 0)
    with anyio.fail_after(BOUND):
        async with mounted(folder, "time", "now", start_timeout=0.3):
            pass
    assert capsys.readouterr().err == ""
