"""A hub that starts a server at its first call: what it lists, starts, compares, refuses and stops."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from tests.faults.harness import until
from tests.support.configured import BOUND, Folder, label_of, text_of, visitor

from mcp_toolset import ToolCall, ToolsetServer, load_toolset
from mcp_toolset.config import load_config
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.tools.call import LOCAL_CONTEXT

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


class Lazy(Folder):
    """A configuration of lazy servers, each of which notes its starts and can become another one."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.servers: dict[str, dict[str, Any]] = {}

    def become(self, name: str, *tools: str, broken: bool = False, **options: Any) -> None:
        """What the one command of a server starts from now on."""
        plain = self.entry(*tools, **options)["args"]
        end = "sys.exit('it is broken')" if broken else f"runpy.run_path({plain[0]!r}, run_name='__main__')"
        noted = f"open({str(self.path / name)!r}, 'a').write('x')"
        script = self.path / f"{name}.py"
        script.write_text(f"import runpy, sys\n{noted}\nsys.argv = {plain!r}\n{end}\n")
        self.servers.setdefault(name, {"command": self.entry()["command"], "args": [str(script)]})

    def starts(self, name: str = "up") -> int:
        noted = self.path / name
        return len(noted.read_text()) if noted.exists() else 0

    def serving(self, **section: Any) -> ToolsetServer:
        self.write(self.servers, **{"start": "lazy", **section})
        return ToolsetServer(
            load_toolset(load_config(self.config)), keep=self.path / "kept", list_timeout=10 * BOUND
        )

    async def known(self) -> None:
        """One run in which every server is reached, and what they list is kept."""
        async with self.serving(start="background") as server:
            await server.settled()
        for name in self.servers:
            (self.path / name).unlink()

    @asynccontextmanager
    async def client(self, era: str, **section: Any) -> AsyncGenerator[tuple[Client, ToolsetServer]]:
        mode: Any = "legacy" if era == "legacy" else "auto"
        server = self.serving(**section)
        async with Client(server.lowlevel, mode=mode, cache=None) as client:
            yield client, server


@pytest.fixture
def folder(tmp_path: Path) -> Lazy:
    return Lazy(tmp_path)


async def listed(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def stopped(server: ToolsetServer, name: str = "up") -> str:
    """Wait until a server is stopped, and return why."""
    (source,) = (one for one in server.toolset.sources() if one.source_name == name)
    changed = anyio.Event()
    end = source.on_change(lambda: changed.set())
    while source.status.state != "stopped":
        changed = anyio.Event()
        await changed.wait()
    end()
    return source.status.reason


@ERAS
async def test_m1_lists_and_searches_start_no_server_and_a_call_starts_its_own(
    folder: Lazy, era: str
) -> None:
    folder.become("up", "a", prompt="p", uri="plain://r")
    folder.become("other", "b")
    folder.become("behind", "c")
    folder.servers["behind"]["deferred"] = True
    with anyio.fail_after(BOUND):
        await folder.known()
        async with folder.client(era) as (client, server):
            assert {"up_a", "other_b", "search_tools"} <= set(await listed(client))
            assert [one.name for one in (await client.list_prompts()).prompts] == ["p"]
            assert [str(one.uri) for one in (await client.list_resources()).resources] == ["plain://r"]
            found: Any = await client.call_tool("search_tools", {"query": "the tool c", "resolve": 1})
            assert "state" not in found.structured_content["hits"][0]
            assert [folder.starts(name) for name in folder.servers] == [0, 0, 0]
            assert {one.state for one in server.statuses().values()} == {"stopped"}
            grant = found.structured_content["resolved"][0]["grant"]
            called = await client.call_tool("call_tool", {"grant": grant})
            assert label_of(text_of(called))[0] == "1"
            assert [folder.starts(name) for name in folder.servers] == [0, 0, 1]
            assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"
            assert [folder.starts(name) for name in folder.servers] == [1, 0, 1]
            states = {name: one.state for name, one in server.statuses().items()}
            assert states == {"up": "ready", "other": "stopped", "behind": "ready"}


async def test_m1_a_server_that_was_never_listed_is_started_to_be_listed_and_then_stopped(
    folder: Lazy,
) -> None:
    folder.become("up", "a")
    with anyio.fail_after(BOUND):
        async with folder.client("modern", idle_timeout=0.05) as (client, server):
            assert await listed(client) == ["up_a"]
            assert await stopped(server) == "it was only listed; a call starts it"
            assert (folder.starts(), server.statuses()["up"].stops) == (1, 1)
            assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"
            assert folder.starts() == 2
        async with folder.client("modern") as (client, server):
            assert await listed(client) == ["up_a"]
            assert folder.starts() == 2


@ERAS
async def test_m1_a_definition_that_was_not_listed_is_refused_with_the_difference(
    folder: Lazy, era: str
) -> None:
    folder.become("up", "a", "b", "gone")
    with anyio.fail_after(BOUND):
        await folder.known()
        folder.become("up", "a", "b", about="Tell what time it is.")
        server = folder.serving()
        async with server.opened(), visitor(server.lowlevel, era) as (client, told):
            assert await listed(client) == ["up_a", "up_b", "up_gone"]
            assert told == []
            answer = await client.call_tool("up_a", {})
            assert answer.is_error
            assert 'description: "The tool a." → "Tell what time it is."' in text_of(answer)
            assert "the call did not run" in text_of(answer)
            await until(lambda: "tools" in told)
            assert await listed(client) == ["up_a", "up_b"]
            assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"
            assert folder.starts() == 1


async def test_m1_a_tool_that_has_become_more_powerful_is_held_by_its_pin(folder: Lazy) -> None:
    folder.become("up", "a")
    with anyio.fail_after(BOUND):
        await folder.known()
        folder.become("up", "a", wide=True)
        async with folder.client("modern") as (client, server):
            answer = await client.call_tool("up_a", {})
            assert answer.is_error
            assert "the call did not run: its definition has changed since it was pinned" in text_of(answer)
            assert "new parameter `more`" in text_of(answer)
            assert await listed(client) == []
            (change,) = server.statuses()["up"].changes
            assert (change.name, change.held) == ("a", True)


@ERAS
async def test_m1_an_unused_server_is_stopped_and_a_call_starts_it_again(folder: Lazy, era: str) -> None:
    folder.become("up", "a", prompt="p")
    with anyio.fail_after(BOUND):
        await folder.known()
        async with folder.client(era, idle_timeout=0.2) as (client, server):
            assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"
            assert await stopped(server) == "nothing used it for 0.2 s; a call starts it"
            assert server.statuses()["up"].stops == 1
            assert await listed(client) == ["up_a"]
            folder.become("up", "a", prompt="p", about="Another tool.")
            assert "Another tool." in text_of(await client.call_tool("up_a", {}))
            await stopped(server)
            await client.get_prompt("p")
            assert folder.starts() == 3


async def test_m1_a_background_server_is_stopped_only_if_its_entry_says_so(folder: Lazy) -> None:
    folder.become("up", "a")
    folder.become("stays", "b")
    folder.servers["up"]["idle_timeout"] = 0.1
    with anyio.fail_after(BOUND):
        async with folder.client("modern", start="background") as (client, server):
            assert await listed(client) == ["up_a", "stays_b"]
            await stopped(server)
            assert server.statuses()["stays"].state == "ready"
            assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"


async def test_m1_a_server_is_not_stopped_while_it_works_or_is_watched(folder: Lazy) -> None:
    gate = folder.gate("gate")
    folder.become("up", "held", gate=gate, uri="plain://r")
    with anyio.fail_after(BOUND):
        await folder.known()
        server = folder.serving(idle_timeout=0.1)
        async with server.opened(), visitor(server.lowlevel, "modern", "plain://r") as (client, _):
            # The subscription has started it.
            await until(lambda: server.statuses()["up"].state == "ready")
            dormancy = server.toolset.sources()[0].connection.dormancy  # type: ignore[attr-defined]
            assert dormancy._in_use()
        async with folder.client("modern", idle_timeout=0.1) as (client, server):
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "up_held", {})
                dormancy = server.toolset.sources()[0].connection.dormancy  # type: ignore[attr-defined]
                await until(dormancy._in_use)
                await until(lambda: server.statuses()["up"].state == "ready")
                await anyio.to_thread.run_sync(lambda: open(gate, "w").close())
            assert await stopped(server)


@ERAS
async def test_m1_a_client_that_can_be_asked_starts_nothing_by_listing_and_keeps_nothing_up(
    folder: Lazy, era: str
) -> None:
    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"word": "blue"})

    folder.become("up", "ask")
    with anyio.fail_after(BOUND):
        await folder.known()
        server = folder.serving(idle_timeout=0.2)
        mode: Any = "legacy" if era == "legacy" else "auto"
        async with Client(server.lowlevel, mode=mode, cache=None, elicitation_callback=answer) as client:
            assert await listed(client) == ["up_ask"]
            assert folder.starts() == 0
            assert "heard blue" in text_of(await client.call_tool("up_ask", {}))
            await stopped(server)
            started = folder.starts()
            assert await listed(client) == ["up_ask"]
            assert server.statuses()["up"].state == "stopped"
            assert folder.starts() == started


async def test_m1_calls_at_once_start_one_process_and_a_closed_hub_starts_none(folder: Lazy) -> None:
    folder.become("up", "a")
    with anyio.fail_after(BOUND):
        await folder.known()
        async with folder.serving() as server:
            texts: list[str] = []

            async def call() -> None:
                texts.append((await server.call_tool("up_a")).text)

            async with anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(call)
            assert len(texts) == 8 and len(set(texts)) == 1
        assert folder.starts() == 1
        async with folder.serving() as server:
            (binding,) = server.bindings()
            state = server.statuses()["up"].state
        with pytest.raises(UpstreamUnavailableError, match="closed"):
            await binding.execute(ToolCall("up_a", {}), LOCAL_CONTEXT)
        assert (state, folder.starts()) == ("stopped", 1)


async def test_m1_a_definition_is_compared_with_what_was_listed_after_a_reload(folder: Lazy) -> None:
    folder.become("up", "a", about="Tell the time.\u200b")
    with anyio.fail_after(BOUND):
        await folder.known()
        folder.become("up", "a", about="Tell the date.\u200b")
        async with folder.client("modern") as (client, server):
            folder.write(folder.servers, start="lazy", hidden_text="flag")
            await server.reload(timeout=BOUND)
            answer = await client.call_tool("up_a", {})
            assert answer.is_error
            assert "Tell the date." in text_of(answer)


@ERAS
async def test_m1_a_dead_server_is_listed_and_its_call_says_why_it_fails(folder: Lazy, era: str) -> None:
    folder.become("up", "a")
    folder.become("well", "b")
    with anyio.fail_after(BOUND):
        await folder.known()
        folder.become("up", "a", broken=True)
        async with folder.client(era) as (client, server):
            assert await listed(client) == ["up_a", "well_b"]
            answer = await client.call_tool("up_a", {})
            assert answer.is_error
            assert "offline" in text_of(answer) and "it is broken" in text_of(answer)
            assert label_of(text_of(await client.call_tool("well_b", {})))[0] == "1"
            assert server.statuses()["up"].state == "offline"


async def test_m1_a_kept_list_gets_around_no_filter_and_no_permission(folder: Lazy) -> None:
    folder.become("up", "a", "b", "c")
    with anyio.fail_after(BOUND):
        await folder.known()
        folder.servers["up"] |= {"exclude": ["b"], "permissions": {"deny": ["c"]}}
        async with folder.client("modern") as (client, _):
            assert await listed(client) == ["up_a"]
            for name in ("up_b", "up_c"):
                with pytest.raises(Exception, match="Unknown tool"):
                    await client.call_tool(name, {})
            assert folder.starts() == 0


async def test_m1_an_eager_server_is_waited_for_though_its_list_is_known(folder: Lazy) -> None:
    folder.become("up", "a")
    with anyio.fail_after(BOUND):
        await folder.known()
        folder.become("up", "b")
        async with folder.client("modern", start="eager") as (client, _):
            assert await listed(client) == ["up_b"]


async def test_m1_a_reload_makes_a_running_server_lazy_and_starts_what_it_adds(folder: Lazy) -> None:
    folder.become("up", "a")
    with anyio.fail_after(BOUND):
        async with folder.client("modern", start="background") as (client, server):
            assert await listed(client) == ["up_a"]
            folder.become("more", "b")
            folder.write(folder.servers, start="lazy", idle_timeout=0.1)
            report = await server.reload(timeout=BOUND)
            assert (report.added, report.altered) == (("more",), ("up",))
            assert folder.starts() == 1
            await stopped(server, "up")
            await stopped(server, "more")
            assert await listed(client) == ["up_a", "more_b"]
            assert label_of(text_of(await client.call_tool("up_a", {})))[0] == "1"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"start": "later"}, "lazy, background and eager"),
        ({"idle_timeout": 0}, "positive"),
        ({"idle_timeout": "soon"}, "positive"),
        ({"idletimeout": 3}, "did you mean `idle_timeout`"),
    ],
)
async def test_m1_a_mistake_about_the_start_names_the_key(folder: Lazy, entry: Any, said: str) -> None:
    folder.write({"up": {"command": "x", **entry}})
    (server,) = load_config(folder.config).servers
    assert said in server.fault


async def test_m1_nothing_secret_is_kept_of_a_lazy_server(folder: Lazy) -> None:
    secret = "a-token-of-26-characters"
    folder.become("up", "a", about=f"Takes {secret}.")
    folder.servers["up"]["env"] = {"TOKEN": secret}
    with anyio.fail_after(BOUND):
        await folder.known()
        (file,) = (folder.path / "kept").glob("*.json")
        assert secret not in file.read_text()
        assert json.loads(file.read_text())["tools"][0]["description"] == "Takes ***."
        async with folder.client("modern") as (client, _):
            answer = await client.call_tool("up_a", {})
            assert secret not in text_of(answer)
