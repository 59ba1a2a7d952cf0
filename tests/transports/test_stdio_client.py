"""A child process is started as a whole, and ended whatever happens meanwhile."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from os import devnull
from pathlib import Path
from typing import Any, TextIO

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import Process
from mcp.client import stdio
from tests.faults.harness import alive, until
from tests.support.bounds import bounds

from mcp_toolset import RemoteToolset
from mcp_toolset.transports.stdio_client import (
    INHERITED_VARIABLES,
    ProcessTarget,
    child_dispatcher,
    inherited_environment,
)

pytestmark = pytest.mark.anyio

PLAIN = Path(__file__).parents[1] / "support" / "plain_server.py"


@pytest.fixture
def errors() -> Generator[TextIO]:
    with open(devnull, "w") as file:
        yield file


async def test_a_child_whose_start_is_cancelled_is_ended(
    errors: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[Process] = []
    start = anyio.open_process

    async def slow(*arguments: Any, **options: Any) -> Process:
        children.append(await start(*arguments, **options))
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        return children[-1]

    monkeypatch.setattr(anyio, "open_process", slow)
    sleeper = ["-S", "-c", "import time; time.sleep(600)"]
    target = ProcessTarget(sys.executable, tuple(sleeper))
    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with child_dispatcher(target, errors, name="sleeper"):
            await anyio.sleep_forever()
    (child,) = children
    await until(lambda: not alive(child.pid))


async def test_a_child_is_left_to_end_by_itself_when_nothing_more_will_come(
    errors: TextIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bounds(monkeypatch, child_grace=40)
    last = tmp_path / "last"
    program = "import sys; sys.stdin.read(); open(sys.argv[1], 'w').write('done')"
    target = ProcessTarget(sys.executable, ("-S", "-c", program, str(last)))
    with anyio.fail_after(60):
        async with child_dispatcher(target, errors, name="tidy"):
            pass
    assert last.read_text() == "done"


def test_a_child_gets_the_variables_that_the_sdk_gives_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "() { :; }")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("API_KEY", "secret")
    assert INHERITED_VARIABLES == tuple(stdio.DEFAULT_INHERITED_ENV_VARS)
    assert inherited_environment() == stdio.get_default_environment()
    assert not inherited_environment().keys() & {"SHELL", "API_KEY"}


def test_a_command_is_read_from_the_attributes_of_the_sdks_parameters() -> None:
    given = stdio.StdioServerParameters(
        command="serve", args=["-x"], env={"A": "b"}, cwd="/tmp", encoding="latin-1"
    )
    assert ProcessTarget.of(given) == ProcessTarget("serve", ("-x",), {"A": "b"}, "/tmp", "latin-1")
    assert ProcessTarget.of(["serve", "-x"]) is None and ProcessTarget.of("http://localhost/mcp") is None


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_a_command_is_spoken_to_in_its_encoding(encoding: str) -> None:
    """By the SDK's transport where that is not UTF-8."""
    server = stdio.StdioServerParameters(
        command=sys.executable, args=[str(PLAIN), json.dumps({"tools": ["one"]})], encoding=encoding
    )
    with anyio.fail_after(60):
        async with RemoteToolset(server, name="up") as mount:
            assert [tool.name for tool in mount.bindings()] == ["one"]
