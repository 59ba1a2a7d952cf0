"""A configuration that is read again while clients are connected and calls are under way (P13, H24)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder, label_of, names, release, said, targets, text_of, visitor

from mcp_toolset import (
    RemoteToolset,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetError,
    ToolsetServer,
    load_toolset,
    tool,
)
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError, NameConflictError, StateError
from mcp_toolset.hub.reload import watching
from mcp_toolset.middleware import CallNext, tool_middleware

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@asynccontextmanager
async def serving(folder: Folder) -> AsyncGenerator[ToolsetServer]:
    """The configuration of a folder, served once every server of it has answered."""
    with anyio.fail_after(2 * BOUND):
        async with folder.server() as server:
            await server.settled()
            yield server


@asynccontextmanager
async def calling(client: Client, name: str) -> AsyncGenerator[list[str]]:
    """A call that has begun at its server; it is done by the end of the block, and its text in the list."""
    texts: list[str] = []
    begun = anyio.Event()

    async def reported(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async def call() -> None:
        texts.append(text_of(await client.call_tool(name, {}, progress_callback=reported)))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await begun.wait()
        yield texts


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["memory", "sse", "http"])
async def test_p13_h24_all_that_differs_changes_at_once_and_no_call_is_lost(
    folder: Folder, transport: str, era: str
) -> None:
    gates = folder.gate("one"), folder.gate("two")
    keep, moved = folder.entry("a"), folder.entry("b", "c")
    old = folder.entry("x", "held", label="old", gate=gates[0], prompt="p")
    folder.write(
        {"keep": keep, "moved": moved, "again": old, "gone": folder.entry("held", "y", gate=gates[1])}
    )
    async with serving(folder) as server, targets(server, transport) as target:
        async with visitor(target(), era) as (one, told), visitor(target(), era) as (_, other):
            before = {name: await said(server, name) for name in ("keep_a", "moved_b", "again_x")}
            async with calling(one, "again_held") as replaced, calling(one, "gone_held") as left:
                new = folder.entry("x", "z", label="new", prompt="q")
                moved |= {"prefix": "m", "exclude": ["c"]}
                folder.write({"keep": keep, "moved": moved, "again": new, "fresh": folder.entry("n")})
                report = await server.reload(timeout=BOUND)
                assert (report.added, report.removed) == (("fresh",), ("gone",))
                assert (report.restarted, report.altered) == (("again",), ("moved",))
                assert not (report.starting or report.at_restart)
                assert names(server) == ["keep_a", "m_b", "again_x", "again_z", "fresh_n"]
                listed = [shown.name for shown in (await one.list_tools()).tools]
                assert listed == names(server)
                assert await said(server, "keep_a") == before["keep_a"]
                assert await said(server, "m_b") == before["moved_b"]
                assert label_of(text_of(await one.call_tool("again_x", {})))[0] == "new"
                assert replaced == left == []
                for gate in gates:
                    await release(gate)
            assert label_of(replaced[0]) == before["again_x"] and left
            for heard in (told, other):
                await until(lambda heard=heard: sorted(heard) == ["prompts", "tools"])
            # What comes next is told once again: nothing of the first time was still to come.
            folder.write({"keep": keep})
            await server.reload(timeout=BOUND)
            for heard in (told, other):
                await until(lambda heard=heard: sorted(heard) == ["prompts"] * 2 + ["tools"] * 2)
            assert list(server.statuses()) == ["keep"]


async def test_p13_a_reload_without_a_difference_is_told_to_nobody(folder: Folder) -> None:
    folder.write({"keep": folder.entry("a"), "off": {**folder.entry("b"), "disabled": True}})
    async with serving(folder) as server, visitor(server.lowlevel, "legacy") as (_, told):
        before = await said(server, "keep_a")
        report = await server.reload()
        assert not report and str(report) == "nothing differs"
        assert await said(server, "keep_a") == before
        folder.write({"keep": folder.entry("a"), "off": folder.entry("b")})
        assert (await server.reload(timeout=BOUND)).added == ("off",)
        await until(lambda: told)
        assert told == ["tools"]


BROKEN: dict[str, tuple[str, str]] = {
    "cut off": ('{"mcpServers": {', "correct the file there"),
    "an unknown key": ('{"mcpServers": {}, "toolset": {"defered": true}}', "did you mean `deferred`"),
    "a mount of that name": ('{"mcpServers": {"elsewhere": {"command": "a"}}}', "another name"),
    "a key that is nearly one of ours": ('{"mcpServers": {}, "tolset": {}}', "did you mean `toolset`?"),
}


@pytest.mark.parametrize("text", [None, *BROKEN])
async def test_p13_f37_a_file_that_cannot_be_used_changes_nothing_and_says_what_to_do(
    folder: Folder, text: str | None
) -> None:
    folder.write({"keep": folder.entry("a")})
    configured = load_toolset(load_config(folder.config))
    others = RemoteToolset(["no-such-program"], name="elsewhere")
    with anyio.fail_after(BOUND):
        async with ToolsetServer(Toolset(configured, others)) as server:
            await server.settled()
            async with visitor(server.lowlevel, "legacy") as (_, told):
                before = await said(server, "keep_a"), configured.config, configured.mounts
                mend = "check the path"
                if text is None:
                    folder.config.unlink()
                else:
                    written, mend = BROKEN[text]
                    folder.config.write_text(written)
                with pytest.raises(ToolsetError) as caught:
                    await server.reload()
                assert mend in str(caught.value) and str(folder.config) in str(caught.value)
                assert (await said(server, "keep_a"), configured.config, configured.mounts) == before
                folder.write({"keep": folder.entry("a", "b")})
                assert (await server.reload(timeout=BOUND)).restarted == ("keep",)
                await until(lambda: told)
                assert told == ["tools"] and names(server) == ["keep_a", "keep_b"]


async def test_p13_h9_a_name_that_meets_a_local_tool_leaves_all_as_it_was(folder: Folder) -> None:
    @tool
    def search_tools() -> str:
        """Mine."""
        return ""

    folder.write({"keep": folder.entry("a")})
    configured = load_toolset(load_config(folder.config))
    with anyio.fail_after(BOUND):
        async with ToolsetServer(Toolset(search_tools, configured)) as server:
            await server.settled()
            before = names(server), await said(server, "keep_a")
            folder.write({"keep": folder.entry("a"), "new": folder.entry("b")}, deferred=True)
            with pytest.raises(NameConflictError, match="deferred catalog"):
                await server.reload(timeout=BOUND)
            assert (names(server), await said(server, "keep_a")) == before
            assert list(configured.mounts) == ["keep"] and configured.config.servers[0].deferred is False


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ({"prefix": "k"}, ["k_a", "k_b"]),
        ({"prefix": False}, ["a", "b"]),
        ({"names": {"a": "first"}}, ["first", "keep_b"]),
        ({"include": ["b"]}, ["keep_b"]),
        ({"excludeTools": ["b"]}, ["keep_a"]),
        ({"deferred": True}, ["search_tools", "resolve_tools", "call_tool", "call_read_only_tool"]),
        ({"timeout": 7, "start_timeout": 8}, ["keep_a", "keep_b"]),
        ({"pins": "warn", "new_tools": "accept", "hidden_text": "refuse"}, ["keep_a", "keep_b"]),
    ],
)
async def test_p13_settings_that_only_describe_a_server_do_not_start_it_again(
    folder: Folder, option: dict[str, Any], shown: list[str]
) -> None:
    entry = folder.entry("a", "b")
    folder.write({"keep": entry})
    async with serving(folder) as server:
        (remote,) = server.toolset.sources()
        assert isinstance(remote, RemoteToolset)
        folder.write({"keep": entry | option})
        report = await server.reload()
        assert (report.altered, report.restarted) == (("keep",), ())
        assert names(server) == shown
        assert server.toolset.sources() == [remote] and remote.status.state == "ready"
        connection = remote.connection
        assert connection.timeout == option.get("timeout", 60)
        assert connection.offers._hidden_text == option.get("hidden_text", "strip")


async def test_p13_f24_another_policy_and_an_accepted_pin_hold_from_the_reload_on(folder: Folder) -> None:
    entry = folder.entry("a", "b")
    folder.write({"keep": entry})
    async with serving(folder) as server:
        before = await said(server, "keep_a")
        (remote,) = server.toolset.sources()
        assert isinstance(remote, RemoteToolset)
        pinned = dict(remote.connection.tools.pins.listed())
        pinned["b"] = pinned["b"] | {"description": "Something else."}
        lock = remote.connection.tools.pins.entry
        assert lock is not None
        lock.file.update(lambda servers: {**servers, "keep": pinned})
        await server.reload()
        assert names(server) == ["keep_a"]
        folder.write({"keep": entry | {"pins": "accept"}})
        await server.reload()
        assert names(server) == ["keep_a", "keep_b"]
        assert await said(server, "keep_a") == before


async def test_p13_f24_a_server_that_is_started_again_is_held_to_what_it_was(folder: Folder) -> None:
    entry = folder.entry("a")
    folder.write({"one": entry | {"env": {"TOKEN": "1"}}, "two": folder.entry("a", env={"WIDE": ""})})
    async with serving(folder) as server:
        sources = server.toolset.sources()
        folder.write({"one": entry | {"env": {"TOKEN": "2"}}, "two": folder.entry("a", wide=True)})
        assert (await server.reload(timeout=BOUND)).restarted == ("one", "two")
        one, two = server.toolset.sources()
        assert isinstance(one, RemoteToolset) and isinstance(sources[0], RemoteToolset)
        assert one.connection.tools.pins._first == sources[0].connection.tools.pins._first
        # Other arguments make it another server, which the person who wrote them has chosen.
        assert isinstance(two, RemoteToolset) and two.status.set_aside == ()
        assert names(server) == ["one_a", "two_a"]


async def test_p13_h17_grants_outlast_a_reload_as_long_as_their_server_is_the_same(folder: Folder) -> None:
    entry = folder.entry("a")
    folder.write({"keep": entry}, deferred=True)
    async with serving(folder) as server:

        async def grant() -> dict[str, str]:
            found = await server.call_tool("resolve_tools", {"ids": ["keep_a"]})
            assert found.structured is not None
            return {"grant": found.structured["tools"][0]["grant"]}

        held = await grant()
        folder.write({"keep": entry | {"timeout": 9}, "new": folder.entry("b")}, deferred=True)
        await server.reload(timeout=BOUND)
        assert label_of((await server.call_tool("call_tool", held)).text)[0] == "1"
        folder.write({"keep": folder.entry("a", label="2")}, deferred=True)
        await server.reload(timeout=BOUND)
        refused = await server.call_tool("call_tool", held)
        assert refused.is_error and "resolve" in refused.text
        assert label_of((await server.call_tool("call_tool", await grant())).text)[0] == "2"


async def test_p13_f5_a_slow_start_holds_up_nobody_and_is_called_as_it_was_until_then(folder: Folder) -> None:
    gate = folder.gate("start")
    folder.write({"slow": folder.entry("a", label="old")})
    async with serving(folder) as server, visitor(server.lowlevel, "legacy") as (_, told):
        slow = folder.entry("a", "b", label="new", start=gate)
        folder.write({"slow": slow, "quick": folder.entry("q")})
        report = await server.reload(timeout=0)
        assert "slow" in report.starting and report.restarted == ("slow",)
        assert await said(server, "slow_a") == await said(server, "slow_a")
        assert (await said(server, "slow_a"))[0] == "old"
        await until(lambda: names(server) == ["slow_a", "quick_q"])
        # Read again meanwhile, nothing is started a second time.
        assert not (await server.reload()).restarted
        await release(gate)
        await until(lambda: names(server) == ["slow_a", "slow_b", "quick_q"])
        assert (await said(server, "slow_a"))[0] == "new"
        await until(lambda: server.statuses()["slow"].state == "ready")
        await until(lambda: len(told) == 2)


@pytest.mark.parametrize("then", ["as it was", "another", "gone"])
async def test_p13_a_start_that_is_not_wanted_any_more_is_ended(folder: Folder, then: str) -> None:
    gate = folder.gate("start")
    old = folder.entry("a", label="old")
    folder.write({"slow": old})
    async with serving(folder) as server:
        before = await said(server, "slow_a")
        folder.write({"slow": folder.entry("a", label="never", start=gate)})
        await server.reload(timeout=0)
        late = server._reload.__self__._late["slow"].mount.remote  # type: ignore[union-attr]
        after = {"as it was": {"slow": old}, "another": {"slow": folder.entry("a", label="new")}, "gone": {}}
        folder.write(after[then])
        await server.reload(timeout=BOUND)
        await until(lambda: late.status.state == "closed")
        if then == "gone":
            assert names(server) == [] and server.statuses() == {}
        else:
            label, process = await said(server, "slow_a")
            assert (label, process) == before if then == "as it was" else label == "new"


async def test_p13_a_new_start_that_fails_takes_the_place_of_what_was(folder: Folder) -> None:
    folder.write({"one": folder.entry("a"), "two": folder.entry("b")})
    async with serving(folder) as server:
        folder.write({"one": {"command": "no-such-program"}, "two": folder.entry("b")})
        assert (await server.reload(timeout=BOUND)).restarted == ("one",)
        assert names(server) == ["two_b"] and server.statuses()["one"].state == "offline"


async def test_p13_reloads_at_once_and_one_after_another_end_with_what_the_file_says(folder: Folder) -> None:
    folder.write({"keep": folder.entry("a"), "s0": folder.entry("x")})
    async with serving(folder) as server, visitor(server.lowlevel, "modern") as (client, _):
        before = await said(server, "keep_a")
        async with anyio.create_task_group() as group:
            for number in range(1, 5):
                label = str(number)
                folder.write(
                    {
                        "keep": folder.entry("a"),
                        f"s{number}": folder.entry("x"),
                        "t": folder.entry(label=label),
                    }
                )
                group.start_soon(partial(server.reload, timeout=BOUND))
                assert label_of(text_of(await client.call_tool("keep_a", {}))) == before
        assert names(server) == ["keep_a", "s4_x"] and list(server.statuses()) == ["keep", "s4", "t"]
        assert await said(server, "keep_a") == before
        await until(lambda: {status.state for status in server.statuses().values()} == {"ready"})


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_p13_a_question_that_is_open_finds_its_call_after_the_reload(folder: Folder, era: str) -> None:
    folder.write({"one": folder.entry("ask", label="old")})
    async with serving(folder) as server:
        before: list[RemoteToolset] = [
            one for one in server.toolset.sources() if isinstance(one, RemoteToolset)
        ]

        async def person(context: Any, params: Any) -> types.ElicitResult:
            folder.write({"one": folder.entry("ask", label="new")})
            await server.reload(timeout=BOUND)
            assert list(server.toolset.sources()) != before
            return types.ElicitResult(action="accept", content={"word": "sea"})

        async with visitor(server.lowlevel, era, elicitation_callback=person) as (client, _):
            text = text_of(await client.call_tool("one_ask", {}))
            assert label_of(text)[0] == "old" and text.endswith("heard sea")
            await until(lambda: before[0].status.state == "closed")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_p13_what_is_watched_is_watched_at_the_server_that_takes_over(folder: Folder, era: str) -> None:
    uri = "data://watched"
    folder.write({"one": folder.entry("touch", uri=uri)})
    async with serving(folder) as server, visitor(server.lowlevel, era, uri) as (client, told):
        folder.write({"one": folder.entry("touch", label="new", uri=uri)})
        await server.reload(timeout=BOUND)
        await until(lambda: told.count("updated") == 1)
        await client.call_tool("one_touch", {})
        await until(lambda: told.count("updated") == 2)
        assert set(told) == {"updated"}


async def test_p13_a_call_that_has_not_reached_its_server_goes_to_the_new_one(folder: Folder) -> None:
    waiting, go = anyio.Event(), anyio.Event()

    @tool_middleware
    async def thinking(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        waiting.set()
        await go.wait()
        return await next(call)

    folder.write({"one": folder.entry("a", label="old")})
    texts: list[str] = []
    toolset = load_toolset(load_config(folder.config))
    with anyio.fail_after(BOUND):
        async with ToolsetServer(toolset, tool_middleware={"one_a": [thinking]}) as server:
            await server.settled()
            (old,) = toolset.sources()

            async def call() -> None:
                texts.append((await server.call_tool("one_a")).text)

            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await waiting.wait()
                folder.write({"one": folder.entry("a", label="new")})
                await server.reload(timeout=BOUND)
                await until(lambda: old.status.state == "closed")
                go.set()
            assert label_of(texts[0])[0] == "new"


async def test_p13_f14_calls_that_take_too_long_do_not_keep_what_has_left(folder: Folder) -> None:
    folder.write({"one": folder.entry("held", gate=folder.gate("never"))})
    async with serving(folder) as server, visitor(server.lowlevel, "legacy") as (client, _):
        (old,) = server.toolset.sources()
        async with calling(client, "one_held") as texts:
            folder.write({})
            await server.reload(drain=0.05)
            assert names(server) == []
        assert "the connection was lost" in texts[0]
        await until(lambda: old.status.state == "closed")


async def test_p13_a_reload_that_is_cancelled_starts_nothing_and_changes_nothing(folder: Folder) -> None:
    gate = folder.gate("start")
    folder.write({"one": folder.entry("a", label="old")})
    async with serving(folder) as server:
        before = await said(server, "one_a")
        folder.write(
            {"one": folder.entry("a", label="new", start=gate), "two": folder.entry("b", start=gate)}
        )
        with anyio.move_on_after(0.2):
            await server.reload(timeout=BOUND)
        assert names(server) == ["one_a"] and await said(server, "one_a") == before
        folder.write({"one": folder.entry("a", label="old")})
        assert not await server.reload()


@pytest.mark.needs("audit")
async def test_p13_what_was_reloaded_is_served_when_the_server_is_opened_again(folder: Folder) -> None:
    folder.write({"one": folder.entry("a"), "two": folder.entry("b")})
    server = folder.server()
    with anyio.fail_after(2 * BOUND):
        async with server:
            later = {"name": "other", "audit": "audit.jsonl", "http": {"max_sessions": 5}}
            folder.write({"two": folder.entry("b", "c"), "three": folder.entry("d")}, **later)
            report = await server.reload(timeout=BOUND)
            assert report.at_restart == ("name", "http", "audit") and "added three" in str(report)
        with pytest.raises(StateError, match="while the server is open"):
            await server.reload()
        async with server:
            await server.settled()
            assert names(server) == ["two_b", "two_c", "three_d"]
            assert not await server.reload()


async def test_p13_only_a_server_with_a_configuration_can_be_reloaded() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async with ToolsetServer(Toolset(add)) as server, watching(server):
        assert server.configured is None
        with pytest.raises(StateError, match="serves no configuration"):
            await server.reload()


OFTEN = 0.02
"""Seconds between looks, where a test waits for them."""


async def test_p13_a_watched_file_is_followed_through_rapid_and_broken_edits(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write({"keep": folder.entry("a")})
    lines: list[str] = []
    async with serving(folder) as server, visitor(server.lowlevel, "legacy") as (_, told):
        async with watching(server, every=OFTEN, tell=lines.append):
            for number in range(20):
                servers = {"keep": folder.entry("a"), "new": folder.entry(f"t{number}")}
                folder.config.write_text(json.dumps({"mcpServers": servers}))
            await until(lambda: names(server) == ["keep_a", "new_t19"])
            folder.config.write_text("{")
            await until(lambda: "what is served stays as it was" in caplog.text)
            assert names(server) == ["keep_a", "new_t19"]
            folder.config.unlink()
            await until(lambda: "no such file; check the path" in caplog.text)
            folder.write({"keep": folder.entry("a") | {"prefix": "k"}})
            await until(lambda: names(server) == ["k_a"])
            # It is told when it is served.
            await until(lambda: "removed new" in lines[-1] and "altered keep" in lines[-1])
            await until(lambda: len(told) >= 2)
        # A reload is told of when it is served, and once more if the server that it added starts slowly.
        assert len(told) <= 2 * len(lines) < 20


async def test_p13_a_file_that_was_missing_is_waited_for_and_an_environment_file_is_watched(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    entry = folder.entry("a")
    folder.write({"keep": entry})
    async with serving(folder) as server, watching(server, every=OFTEN):
        before = await said(server, "keep_a")
        folder.write({"keep": entry | {"envFile": "${workspaceFolder}/secrets.env"}})
        await until(lambda: "create" in caplog.text)
        await until(lambda: server.statuses()["keep"].state == "misconfigured")
        for value in ("TOKEN=1", "TOKEN=2"):
            (folder.path / "secrets.env").write_text(value)
            await until(lambda value=value: environment(server).get("TOKEN") == value[-1])
        assert await said(server, "keep_a") != before


async def test_p13_a_change_of_a_new_file_while_the_reload_that_found_it_runs_is_seen(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = folder.path / "secrets.env"
    entry = folder.entry("a")
    folder.write({"keep": entry})
    async with serving(folder) as server:
        reload = server.reload

        async def overtaken() -> object:
            report = await reload()
            if environment(server).get("TOKEN") == "1":
                secrets.write_text("TOKEN=twenty")
            return report

        monkeypatch.setattr(server, "reload", overtaken)
        async with watching(server, every=OFTEN):
            folder.write({"keep": folder.entry("b")})
            await until(lambda: names(server) == ["keep_b"])
            secrets.write_text("TOKEN=1")
            folder.write({"keep": entry | {"envFile": "${workspaceFolder}/secrets.env"}})
            await until(lambda: environment(server).get("TOKEN") == "twenty")


def environment(server: ToolsetServer) -> dict[str, str]:
    configured = server.configured
    assert configured is not None
    return dict(configured.config.servers[0].env)


async def test_p13_a_change_between_the_reading_and_the_first_look_is_seen(folder: Folder) -> None:
    folder.write({"keep": folder.entry("a")})
    async with serving(folder) as server:
        folder.write({"keep": folder.entry("a", "b")})
        async with watching(server, every=OFTEN):
            await until(lambda: names(server) == ["keep_a", "keep_b"])


def test_p13_what_decides_about_a_restart_is_all_that_is_not_named_otherwise(folder: Folder) -> None:
    folder.write({"one": folder.entry("a")})
    server = load_config(folder.config).servers[0]
    base = {"one": folder.entry("a")}
    for option, same in (
        ({"env": {"A": "1"}}, False),
        ({"cwd": "/"}, False),
        ({"sessions": "call"}, False),
        ({"prefix": "x", "names": {"a": "b"}, "include": ["*"], "exclude": ["z"], "deferred": True}, True),
        (
            {"pins": "warn", "new_tools": "warn", "hidden_text": "flag", "timeout": 3, "start_timeout": 4},
            True,
        ),
    ):
        folder.config.write_text(json.dumps({"mcpServers": {"one": base["one"] | option}}))
        assert (load_config(folder.config).servers[0].reached() == server.reached()) is same


def test_a_configuration_that_is_gone_is_an_error_of_its_own(folder: Folder) -> None:
    folder.write({})
    toolset = load_toolset(load_config(folder.config))
    folder.config.unlink()
    with pytest.raises(ConfigError, match="no such file"):
        toolset.read()
