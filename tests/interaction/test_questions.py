"""What upstreams ask of clients: every crossing of the eras, every pair of transports (P5).

The upstream is `asker.py`; the hub in between is a process of its own wherever a wire leads to it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.shared.exceptions import MCPDeprecationWarning
from tests.interaction.asking_hub import hub
from tests.interaction.conftest import UPSTREAMS
from tests.interaction.desk import Desk, Reception
from tests.interaction.lines import RELAY
from tests.support.asking import text_of
from tests.support.warm import Warm

from mcp_toolset import ToolsetServer

pytestmark = [pytest.mark.anyio, pytest.mark.pairwise]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "MCP_TOOLSET_CACHE": "off"}
SEVERAL = ("memory", "sse", "http")
"""The transports on which one hub has several clients."""

TWO = ("sse", "http")
"""Where the transport makes a difference: over SSE nothing says which call a message belongs to."""

Opened = Callable[..., AbstractAsyncContextManager[Client]]


@contextmanager
def upstreams(warm: Warm, *arguments: str) -> Generator[dict[str, Any]]:
    """A command of an upstream as targets of mounts: one process, whatever the transport."""
    with PrintingPorts(warm.command(*arguments)) as (http, lines):
        url = f"http://127.0.0.1:{http}"
        yield {
            "memory_modern": "memory",
            **{f"stdio_{era}": [*RELAY, str(lines), era] for era in ("legacy", "modern")},
            **{f"http_{era}": f"{url}/{era}/mcp" for era in ("legacy", "modern")},
            **{f"sse_{era}": f"{url}/{era}/sse" for era in ("legacy", "modern")},
        }


@pytest.fixture(scope="module")
def targets(warm: Warm) -> Generator[dict[str, Any]]:
    with upstreams(warm, str(HERE / "asker.py")) as made:
        yield made


@pytest.fixture(scope="module")
def hub_url(warm: Warm, targets: dict[str, Any]) -> Generator[str]:
    """One hub of all upstreams, on HTTP and SSE."""
    with PrintingPorts(warm.command(str(HERE / "asking_hub.py"), json.dumps(targets), "http")) as (port,):
        yield f"http://127.0.0.1:{port}"


class PrintingPorts:
    """A process that prints the ports it listens on; ended with the block."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv

    def __enter__(self) -> list[int]:
        self.process = subprocess.Popen(self.argv, stdout=subprocess.PIPE, env=ENVIRONMENT)
        assert self.process.stdout is not None
        return [int(port) for port in self.process.stdout.readline().split()]

    def __exit__(self, *fault: object) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def hub_here(anyio_backend: str, targets: dict[str, Any]) -> AsyncGenerator[ToolsetServer]:
    """One hub of all upstreams in this process."""
    async with hub(targets) as server:
        yield server


@pytest.fixture(scope="module")
def target(
    request: pytest.FixtureRequest, transport: str, targets: dict[str, Any], warm: Warm
) -> Callable[[], Any]:
    """What clients connect to: one hub for the module, or over stdio one for each of them."""
    match transport:
        case "memory":
            here = request.getfixturevalue("hub_here").lowlevel
            return lambda: here
        case "stdio":
            python, *arguments = warm.command(str(HERE / "asking_hub.py"), json.dumps(targets), "stdio")
            return lambda: StdioServerParameters(command=python, args=arguments, env=ENVIRONMENT)
        case _:
            here = request.getfixturevalue("hub_url")
            return lambda: sse_client(f"{here}/sse") if transport == "sse" else f"{here}/mcp"


@pytest.fixture(scope="module")
async def reception(
    anyio_backend: str, target: Callable[[], Any], era: str
) -> AsyncGenerator[tuple[Client, Reception]]:
    """A client of one era over one transport that most tests of that pair share."""
    made = Reception()
    wanted: dict[str, Any] = {"log_level": "warning"} if era == "modern" else {}
    async with Client(target(), mode=_mode(era), cache=None, **made.options, **wanted) as client:
        with anyio.fail_after(60):
            await listed(client)
        yield client, made


@pytest.fixture
def opened(reception: tuple[Client, Reception], target: Callable[[], Any], era: str) -> Opened:
    """Has a client of one era over one transport: with a desk the shared one, unless it is to be alone."""

    @asynccontextmanager
    async def client(
        desk: Desk | None = None, *, alone: bool = False, **options: Any
    ) -> AsyncGenerator[Client]:
        shared, made = reception
        with anyio.fail_after(60):
            if desk is not None and not alone:
                made.desk = desk
                yield shared
                return
            options = {**(desk.options if desk else {}), **options}
            async with Client(target(), mode=_mode(era), cache=None, **options) as connected:
                await listed(connected)
                yield connected

    return client


def _mode(era: str) -> Any:
    return "legacy" if era == "legacy" else "auto"


async def listed(client: Client) -> None:
    """Wait until every upstream has joined."""
    while True:
        names = {tool.name for tool in (await client.list_tools()).tools}
        if {f"{upstream}_ask" for upstream in UPSTREAMS} <= names:
            return


async def called(client: Client, upstream: str, name: str, tag: str = "") -> str:
    return text_of(await client.call_tool(f"{upstream}_{name}", {"tag": tag}))


async def each(function: Callable[[str], Coroutine[Any, Any, None]], upstreams: Iterable[str]) -> None:
    """Do something with every upstream, all at once."""
    async with anyio.create_task_group() as group:
        for upstream in upstreams:
            group.start_soon(function, upstream)


LEGACY = [name for name in UPSTREAMS if name.endswith("legacy")]


async def test_p5_everything_an_upstream_asks_is_answered_by_the_client_that_called(
    opened: Opened, met: list[str], transport: str, era: str
) -> None:
    desk = Desk()
    # Modern clients on HTTP and in memory cannot be told apart, and roots belong to one client.
    known = era == "legacy" or transport in ("stdio", "sse")

    async with opened(desk) as client:

        async def everything(upstream: str) -> None:
            def call(name: str, tag: str = upstream) -> Awaitable[str]:
                return called(client, upstream, name, tag)

            assert await call("ask") == f"ada:{upstream}"
            assert await call("page") == "accept"
            said = json.loads(await call("sample"))
            assert (said["stopReason"], said["content"][0]["input"]) == (
                "toolUse",
                {"for": f"ada:{upstream}"},
            )
            assert json.loads(await call("twice")) == [f"ada:{upstream}1", f"ada:{upstream}2"]
            assert json.loads(await call("both")) == [f"ada:{upstream}", "toolUse"]
            if known or upstream.endswith("modern"):
                assert await call("roots") == "file:///ada"

        await each(everything, met)
    assert {(page.url, page.message) for page in desk.pages} == {
        (f"https://example.com/{upstream}", upstream) for upstream in met
    }
    assert len(desk.samples) == 2 * len(met)
    for asked in desk.samples:
        shown = asked.messages[0].content
        assert isinstance(shown, list) and [block.type for block in shown] == ["text", "image"]
        assert asked.tools is not None and [tool.name for tool in asked.tools] == ["look_up"]
        assert (asked.max_tokens, asked.system_prompt, asked.stop_sequences) == (7, "Be brief.", ["."])
    if era == "legacy":
        assert sorted(desk.done) == sorted(f"page-{upstream}" for upstream in LEGACY if upstream in met)


async def test_p5_what_a_prompt_or_a_resource_asks_is_answered_by_the_client_that_reads(
    opened: Opened, met: list[str]
) -> None:
    desk = Desk()
    async with opened(desk) as client:

        async def read(upstream: str) -> None:
            found = await client.get_prompt(f"{upstream}_ask", {"tag": upstream})
            said = found.messages[0].content
            assert isinstance(said, types.TextContent) and said.text == f"ada:{upstream}"
            address = f"{upstream.replace('_', '-')}+ask://word"
            (part,) = (await client.read_resource(address)).contents
            assert isinstance(part, types.TextResourceContents)
            assert (part.uri, part.text) == (address, "ada:ask://word")

        await each(read, met)
    assert sorted(desk.forms) == sorted([*met, *["ask://word"] * len(met)])


@pytest.mark.parametrize("transport", TWO, scope="module")
async def test_p5_a_prompt_that_asks_a_client_that_cannot_be_asked_is_refused(
    opened: Opened, met: list[str]
) -> None:
    async with opened() as client:
        for upstream in met:
            with pytest.raises(MCPError, match=f"^{upstream}: .*elicitation") as fault:
                await client.get_prompt(f"{upstream}_ask", {"tag": upstream})
            assert "not declared" in fault.value.message


GATED = ("http_legacy", "sse_legacy", "http_modern", "memory_modern")
"""Not over stdio: there what opens the page would be in a process of its own."""


async def test_p5_a_page_that_has_to_be_opened_first_is_opened_in_every_crossing(
    opened: Opened, met: list[str], era: str, transport: str
) -> None:
    """Error -32042 is of 2025-11-25 alone: a newer client is asked in its place, and asks no more of it."""
    desk = Desk()
    async with opened(desk) as client:
        for upstream in (name for name in GATED if name in met):
            desk.shown, desk.finished, tag = anyio.Event(), anyio.Event(), f"{upstream}-{era}-{transport}"
            crossing = (era, upstream[-6:])
            if crossing == ("legacy", "legacy"):
                await repeats(desk, client, upstream, tag)
            elif crossing == ("modern", "legacy"):
                await waits(desk, client, upstream, tag)
            else:
                assert await called(client, upstream, "gate", tag) == "in"
            pages, desk.pages = desk.pages, []
            expected = [] if crossing == ("legacy", "legacy") else [f"https://example.com/{tag}"]
            assert [page.url for page in pages] == expected


async def repeats(desk: Desk, client: Client, upstream: str, tag: str) -> None:
    """A client of the error's own time is told, opens the page, and calls again."""
    with pytest.raises(MCPError) as fault:
        await called(client, upstream, "gate", tag)
    assert fault.value.code == types.URL_ELICITATION_REQUIRED
    assert fault.value.message == f"{upstream}: a page first"
    (shown,) = fault.value.data["elicitations"]
    assert (shown["url"], shown["elicitationId"]) == (f"https://example.com/{tag}", f"page-{tag}")
    await called(client, upstream, "unlock", tag)
    await desk.finished.wait()
    assert desk.done[-1] == f"page-{tag}"
    assert await called(client, upstream, "gate", tag) == "in"


async def waits(desk: Desk, client: Client, upstream: str, tag: str) -> None:
    """A newer client is asked, and its call goes on when the page is done with."""
    answers: list[str] = []

    async def enter() -> None:
        answers.append(await called(client, upstream, "gate", tag))

    async with anyio.create_task_group() as group:
        group.start_soon(enter)
        await desk.shown.wait()
        await called(client, upstream, "unlock", tag)
    assert answers == ["in"]


@pytest.mark.parametrize("transport", TWO, scope="module")
@pytest.mark.parametrize("era", ["modern"], scope="module")
async def test_p5_a_call_is_not_repeated_for_a_user_who_does_not_open_its_page(opened: Opened) -> None:
    desk = Desk()
    desk.closes = True
    async with opened(desk) as client:
        for upstream in LEGACY:
            result = await client.call_tool(f"{upstream}_gate", {"tag": "closed"})
            assert result.is_error and "did not open the page" in text_of(result)
    assert len(desk.pages) == len(LEGACY)


@pytest.mark.parametrize("transport", TWO, scope="module")
async def test_p5_a_client_that_opens_no_pages_is_told_why_its_call_cannot_be_made(opened: Opened) -> None:
    async with opened() as client:
        for upstream in LEGACY:
            result = await client.call_tool(f"{upstream}_gate", {"tag": "closed"})
            assert result.is_error and "has not declared elicitation.url" in text_of(result)


@pytest.mark.parametrize("transport", SEVERAL, scope="module")
async def test_p5_sixteen_calls_of_four_clients_and_each_asks_the_client_that_made_it(
    opened: Opened, met: list[str]
) -> None:
    answers: dict[tuple[str, str], str] = {}
    async with AsyncExitStack() as stack:
        desks = [Desk(name) for name in ("ada", "bob", "cyd", "dee")]
        clients = [(desk, await stack.enter_async_context(opened(desk, alone=True))) for desk in desks]

        async def ask(upstream: str, desk: Desk, client: Client, tag: str) -> None:
            answers[upstream, f"{desk.name}:{tag}"] = await called(client, upstream, "ask", tag)

        async def sixteen(upstream: str) -> None:
            async with anyio.create_task_group() as group:
                for desk, client in clients:
                    for number in range(4):
                        group.start_soon(ask, upstream, desk, client, f"{upstream} {number}")

        await each(sixteen, met)
    assert len(answers) == 16 * len(met)
    assert {tag: answer for (_, tag), answer in answers.items() if answer != tag} == {}
    for desk in desks:
        assert sorted(desk.forms) == sorted(f"{upstream} {n}" for upstream in met for n in range(4))


@pytest.mark.parametrize("transport", TWO, scope="module")
async def test_p5_an_upstream_is_told_what_the_caller_can_do_and_nothing_more(
    opened: Opened, met: list[str], transport: str, era: str
) -> None:
    known = era == "legacy" or transport in ("stdio", "sse")

    async with opened() as plain, opened(elicitation_callback=Desk().elicit) as asking:

        async def nothing(upstream: str) -> None:
            assert json.loads(await called(plain, upstream, "who")) == {}

        async def forms(upstream: str) -> None:
            assert set(json.loads(await called(asking, upstream, "who"))) == {"elicitation"}

        await each(nothing, met)
        await each(forms, met)
    async with opened(Desk()) as full:

        async def all_of_it(upstream: str) -> None:
            shared = not known and upstream.endswith("legacy")
            declared = json.loads(await called(full, upstream, "who"))
            assert set(declared) == {"elicitation", "sampling"} | (set() if shared else {"roots"})
            assert declared["sampling"] == {"tools": {}}

        await each(all_of_it, met)


@pytest.mark.parametrize("transport", TWO, scope="module")
async def test_p5_nobody_is_asked_for_what_it_did_not_declare(opened: Opened, met: list[str]) -> None:
    async with opened() as client:

        async def refused(upstream: str) -> None:
            with pytest.raises(MCPError) as fault:
                await client.call_tool(f"{upstream}_ask", {"tag": "t"})
            assert fault.value.message.startswith(f"{upstream}: ")
            assert "has not declared elicitation" in fault.value.message
            if upstream.endswith("modern"):
                assert fault.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
                assert fault.value.data == {"requiredCapabilities": {"elicitation": {}}}

        await each(refused, met)


@pytest.mark.parametrize("transport", TWO, scope="module")
async def test_f26_cancelling_a_call_takes_its_question_back_and_ends_it_upstream(
    opened: Opened, met: list[str]
) -> None:
    desk = Desk()
    async with opened(desk) as client:

        async def waiting(upstream: str) -> None:
            begun = anyio.Event()

            async def note(progress: float, total: float | None, message: str | None) -> None:
                assert (progress, total, message) == (1, 2, upstream)
                begun.set()

            before = json.loads(await called(client, upstream, "seen")).get("cancelled", 0)
            async with anyio.create_task_group() as group:
                arguments = {"tag": upstream}
                group.start_soon(
                    partial(client.call_tool, f"{upstream}_wait", arguments, progress_callback=note)
                )
                await begun.wait()
                group.cancel_scope.cancel()
            with anyio.fail_after(30):
                while json.loads(await called(client, upstream, "seen")).get("cancelled", 0) == before:
                    pass

        await each(waiting, [name for name in met if not name.startswith("stdio_legacy")])


@pytest.mark.parametrize("era", ["legacy"], scope="module")
async def test_f26_p5_a_question_goes_with_the_call_that_its_client_cancels(
    opened: Opened, met: list[str]
) -> None:
    """Over 2026-07-28 nothing is left to take back: what is asked there ends the request."""
    desk = Desk()
    desk.hesitates = True
    async with opened(desk) as client:
        for upstream in met:
            desk.silent, desk.relieved = anyio.Event(), anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, f"{upstream}_ask", {"tag": "t"})
                await desk.silent.wait()
                group.cancel_scope.cancel()
            with anyio.fail_after(40):
                await desk.relieved.wait()
    assert desk.withdrawn == len(met)


@pytest.mark.parametrize("transport", TWO, scope="module")
async def test_p5_an_upstream_that_takes_its_question_back_is_obeyed(opened: Opened, era: str) -> None:
    desk = Desk()
    desk.hesitates = True
    results: list[str] = []
    async with opened(desk) as client:

        async def ask() -> None:
            results.append(await called(client, "http_legacy", "withdraw", "t"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await desk.silent.wait()
            await called(client, "http_legacy", "now")
            if era == "modern":
                # Nobody can be told there: it is the client's own doing that is waited for.
                group.cancel_scope.cancel()
        if era == "legacy":
            assert results == ["withdrawn"] and desk.withdrawn == 1


async def test_p5_log_messages_arrive_at_the_level_that_the_client_wants(
    opened: Opened, met: list[str], era: str
) -> None:
    desk = Desk()
    async with opened(desk) as client:
        if era == "legacy":
            with pytest.warns(MCPDeprecationWarning):
                await client.set_logging_level("warning")

        async def log(upstream: str) -> None:
            level = await called(client, upstream, "log", upstream)
            assert upstream.endswith("modern") or level == "warning"

        for upstream in met:
            await log(upstream)
        with anyio.fail_after(30):
            while len(desk.logs) < len(met):
                await called(client, "memory_modern", "now")
    assert sorted(desk.logs) == sorted(("warning", f"{upstream} warning") for upstream in met)


@pytest.mark.parametrize("transport", TWO, scope="module")
@pytest.mark.parametrize("era", ["legacy"], scope="module")
async def test_p5_a_client_that_moves_its_roots_tells_the_upstreams_that_saw_them(opened: Opened) -> None:
    desk = Desk()
    async with opened(desk, alone=True) as client:
        assert await called(client, "http_legacy", "roots") == "file:///ada"
        before = json.loads(await called(client, "http_legacy", "seen")).get("roots changed", 0)
        desk.roots = ["file:///elsewhere"]
        with pytest.warns(MCPDeprecationWarning):
            await client.send_roots_list_changed()
        with anyio.fail_after(30):
            while json.loads(await called(client, "http_legacy", "seen")).get("roots changed", 0) == before:
                pass
        assert await called(client, "http_legacy", "roots") == "file:///elsewhere"
