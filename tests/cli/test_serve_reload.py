"""`serve CONFIG` follows its file: the real command, over every transport and in both eras (P13)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import IO, Any

import anyio
import anyio.to_thread
import pytest
from mcp import StdioServerParameters
from mcp.client.sse import sse_client
from tests.cli.commandline import CommandLine, environment, line
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder, label_of, release, text_of, visitor

__all__ = ["line"]

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def command_of(line: CommandLine, transport: str) -> AsyncGenerator[tuple[Any, list[str]]]:
    """What a client connects to, the command itself or where it listens; and what that says on stderr."""
    if transport == "stdio":
        program, *rest = line.command("serve", "mcp.json")
        yield (
            StdioServerParameters(command=program, args=rest, cwd=line.folder, env=environment(line.folder)),
            [],
        )
        return
    async with listening(line, "--transport", transport) as (address, said):
        yield (sse_client(address) if transport == "sse" else address), said


@asynccontextmanager
async def listening(
    line: CommandLine, *options: str, env: Mapping[str, str] | None = None
) -> AsyncGenerator[tuple[str, list[str]]]:
    """The command over HTTP: its address, and its stderr as it comes."""
    said: list[str] = []
    with line.fork("serve", "mcp.json", "--port", "0", *options, env=env) as process:
        assert process.stderr is not None
        async with anyio.create_task_group() as group:
            try:
                group.start_soon(anyio.to_thread.run_sync, said.extend, _lines(process.stderr))
                await until(lambda: said)
                found = re.search(r"http://\S+", said[0])
                assert found, said
                yield found[0], said
            finally:
                process.terminate()
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(process.wait)
    assert not [text for text in said if "Traceback" in text]


def _lines(stream: IO[str]) -> Iterator[str]:
    """Each line as it comes."""
    yield from iter(stream.readline, "")


@pytest.mark.parametrize(
    ("transport", "era"), [("stdio", "legacy"), ("stdio", "modern"), ("sse", "legacy"), ("http", "modern")]
)
async def test_p13_h24_clients_stay_connected_while_the_file_changes(
    line: CommandLine, transport: str, era: str
) -> None:
    folder = Folder(line.folder)
    gate = folder.gate("gate")
    keep, gone = folder.entry("a"), folder.entry("held", gate=gate)
    folder.write({"keep": keep, "gone": gone})
    with anyio.fail_after(2 * BOUND):
        async with command_of(line, transport) as (target, lines), visitor(target, era) as (client, told):

            async def listed() -> list[str]:
                return [shown.name for shown in (await client.list_tools()).tools]

            async def becomes(*names: str) -> None:
                """The client lists again whenever it is told to, and so comes to see these."""
                seen: list[str] = []
                while seen != [*names]:
                    await until(lambda: len(told) > len(heard))
                    heard[:] = told
                    seen = await listed()

            heard = list[str]()
            before = label_of(text_of(await client.call_tool("keep_a", {})))
            begun, texts = anyio.Event(), list[str]()

            async def reported(progress: float, total: float | None, message: str | None) -> None:
                begun.set()

            async def call() -> None:
                texts.append(text_of(await client.call_tool("gone_held", {}, progress_callback=reported)))

            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await begun.wait()
                assert await listed() == ["keep_a", "gone_held"]
                folder.write({"keep": keep, "new": folder.entry("n")})
                await becomes("keep_a", "new_n")
                await release(gate)
            # A client that came first was told of each of the two servers as it joined.
            assert texts[0].startswith("held of 1") and set(told) == {"tools"} and len(told) <= 3
            if transport != "http":
                return
            await until(lambda: "added new; removed gone" in lines[-1])
            folder.config.write_text("{")
            await until(lambda: "correct the file there; what is served stays as it was" in lines[-1])
            folder.write({"keep": keep, "new": folder.entry("n"), "last": folder.entry("z")})
            before_last = len(told)
            await becomes("keep_a", "new_n", "last_z")
            assert told[before_last:] == ["tools"]
            assert label_of(text_of(await client.call_tool("keep_a", {}))) == before


async def test_p13_a_file_is_left_alone_if_the_command_says_so(line: CommandLine) -> None:
    folder = Folder(line.folder)
    folder.write({"keep": folder.entry("a")})
    over_http = "--transport", "http"
    with anyio.fail_after(2 * BOUND):
        async with (
            listening(line, *over_http, "--no-watch") as (_, still),
            listening(line, *over_http) as (_, said),
        ):
            folder.config.write_text("{")
            await until(lambda: "stays as it was" in said[-1])
            folder.write({"new": folder.entry("a")})
            await until(lambda: "added new" in said[-1])
            assert len(still) == 1


@pytest.mark.needs("inbound_auth")
async def test_u73_a_reload_refuses_what_the_options_of_the_start_exclude(line: CommandLine) -> None:
    folder = Folder(line.folder)
    servers = {"a": folder.entry("look")}
    folder.write(servers)
    options = ("--transport", "http", "--auth-token-env", "ci=CI_TOKEN")
    with anyio.fail_after(2 * BOUND):
        async with listening(line, *options, env={"CI_TOKEN": "x" * 40}) as (_, said):
            folder.write(servers, auth={"tokens": {"ann": {"token": "y" * 40}}})
            await until(lambda: [text for text in said if "which the options that say who may call" in text])
            rules = {"for": [{"roles": ["robot"], "deny": ["a/*"]}]}
            folder.write(servers, permissions=rules)
            await until(lambda: [text for text in said if "no token has it" in text])
