"""Every behaviour behind every door, in both protocol eras and on every loop: the manifest of the product.

A cell is one behaviour in one column. All cells of a column share one client, and all columns of a host on
the web one process. The last behaviour is that the client leaves, so it stays the last one in this file.
The columns of each run have every door in every era, and every loop; `scripts/doors` runs all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from httpx2 import EventSource
from mcp import MCPError
from mcp_types import INVALID_PARAMS
from tests.faults.harness import until
from tests.interaction.doors import COLUMNS, EVERY_RUN, HERE, WEB, Column, Visit, web_server
from tests.interaction.doors_server import AT_ONCE, BIG
from tests.support.asking import text_of
from tests.support.every_run import in_every_run
from tests.support.warm import Warm

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    in_every_run(EVERY_RUN, lambda params: str(params["visit"])),
]

BEHAVIOURS = 14
Served = Callable[[str], str]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doors")


@pytest.fixture(scope="module")
def hosts(directory: Path, warm: Warm) -> Generator[Served]:
    """The address of the HTTP server that a host runs; one process for all columns of that host."""
    with ExitStack() as stack:
        running: dict[str, str] = {}

        def served(host: str) -> str:
            if host not in running:
                running[host] = stack.enter_context(web_server(host, directory / f"{host}.log", warm))
            return running[host]

        yield served


@pytest.fixture(scope="module", params=COLUMNS, ids=str)
def visit(request: pytest.FixtureRequest, directory: Path, hosts: Served, warm: Warm) -> Generator[Visit]:
    """A client behind one door."""
    column: Column = request.param
    web = column.door in WEB
    log = directory / f"{column.loop if web else column}.log"
    visit = Visit(column, directory, log, warm)
    with pytest.MonkeyPatch.context() as patch:
        if column.door in HERE:
            patch.setenv("DOORS_LOG", str(log))
        # The SDK's transport of SSE takes no event of more than 1 MiB, and has no option for it.
        patch.setattr(httpx2, "EventSource", _unlimited)
        with visit.opened(hosts(column.loop) if web else None):
            yield visit


def _unlimited(response: httpx2.Response, max_event_size: object = None) -> EventSource:
    return EventSource(response, max_event_size=None)


SHORT_WAYS = {
    ("memory", "legacy"): "message_dispatcher",
    ("mounted", "legacy"): "direct_calls",
    ("mounted", "modern"): "direct_calls",
    ("stdio", "legacy"): "line_dispatcher",
    ("stdio", "modern"): "line_dispatcher",
    ("http", "legacy"): "sessions",
    ("http", "modern"): "endpoint",
    ("http-unusual", "legacy"): "sessions",
    ("http-unusual", "modern"): "endpoint",
    ("sse", "legacy"): "line_dispatcher",
    ("sse", "modern"): "line_dispatcher",
}


def test_u1_a_call_comes_in_by_the_door_that_is_meant(visit: Visit) -> None:
    column = visit.column
    assert text_of(visit.call("way")) == SHORT_WAYS.get((column.door, column.era), "none")
    assert (visit.client.protocol_version >= "2026-07-28") == (column.era == "modern")


def test_u1_a_list_has_the_tools_of_the_server_and_of_its_mount(visit: Visit) -> None:
    async def names() -> set[str]:
        return {tool.name for tool in (await visit.client.list_tools()).tools}

    assert {"add", "book", "linger", "up_linger", "grow"} <= visit.run(names)


def test_u1_a_call_has_its_result(visit: Visit) -> None:
    result = visit.call("add", a=1, b=4)
    assert (result.structured_content, text_of(result), result.is_error) == ({"result": 5}, "5", False)


def test_u1_what_goes_wrong_in_a_tool_is_a_result_and_an_unknown_tool_an_error(visit: Visit) -> None:
    failed = visit.call("explode")
    assert failed.is_error and text_of(failed) == "explode failed: the fuse was lit"
    with pytest.raises(MCPError, match="Unknown tool: nothing") as unknown:
        visit.call("nothing")
    assert unknown.value.code == INVALID_PARAMS


def test_u66_a_tool_that_is_cancelled_from_within_is_an_error_result(visit: Visit) -> None:
    lost = visit.call("lost")
    assert lost.is_error and text_of(lost) == "lost failed: something that it waited for was cancelled"
    assert visit.call("add", a=1, b=1).structured_content == {"result": 2}


@pytest.mark.parametrize("name", ["count", "up_steps"])
def test_u1_progress_and_logs_of_a_call_reach_its_client(visit: Visit, name: str) -> None:
    heard: list[tuple[float, str | None]] = []
    visit.logs.clear()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async def counted() -> None:
        await visit.client.call_tool(name, {"tag": "t"}, progress_callback=note)
        await until(lambda: len(heard) >= 3 and len(visit.logs) >= 3)

    visit.run(counted)
    assert (heard, visit.logs) == ([(1, "t"), (2, "t"), (3, "t")], ["t 0", "t 1", "t 2"])


@pytest.mark.parametrize("name", ["linger", "up_linger"])
def test_u2_a_call_that_is_cancelled_stops_its_tool(visit: Visit, name: str) -> None:
    mark = f"{visit.mark}-{name}"

    async def cancelled() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(visit.client.call_tool, name, {"mark": mark})
            await visit.noted(f"{mark} begun")
            group.cancel_scope.cancel()
        await visit.noted(f"{mark} cancelled")

    visit.run(cancelled)
    assert visit.call("add", a=2, b=2).structured_content == {"result": 4}


def test_u1_a_question_reaches_the_person_and_the_answer_the_tool(visit: Visit) -> None:
    visit.person.answers.insert(0, {"size": "large"})
    assert visit.call("book", room="attic").structured_content == {"size": "large"}
    assert visit.person.questions[-1].removeprefix("inner asks: ") == "Which size for attic?"


def test_u1_a_list_that_changes_is_announced(visit: Visit) -> None:
    before = visit.changed

    async def grown() -> None:
        if visit.column.era == "legacy":
            name = text_of(await visit.client.call_tool("grow", {}))
            await until(lambda: visit.changed > before)
        else:
            async with visit.client.listen(tools_list_changed=True) as events:
                name = text_of(await visit.client.call_tool("grow", {}))
                await anext(events)
        # What was heard may have been an earlier change of the same server.
        while name not in {tool.name for tool in (await visit.client.list_tools()).tools}:
            pass
        assert text_of(await visit.client.call_tool(name, {})) == name

    visit.run(grown)


def test_u1_a_result_of_five_megabytes_comes_whole(visit: Visit) -> None:
    assert text_of(visit.call("big", letter="x")) == "x" * BIG


def test_u1_sixteen_calls_are_under_way_at_once(visit: Visit) -> None:
    squares: dict[int, Any] = {}

    async def one(n: int) -> None:
        result = await visit.client.call_tool("square", {"n": n, "mark": visit.mark})
        squares[n] = result.structured_content

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for n in range(AT_ONCE):
                group.start_soon(one, n)

    visit.run(all_of_them)
    assert squares == {n: {"result": n * n} for n in range(AT_ONCE)}


def test_u2_a_client_that_leaves_ends_its_calls_as_its_era_says(visit: Visit) -> None:
    mark = f"{visit.mark}-leave"
    call = visit.begin(visit.client.call_tool, "linger", {"mark": mark})
    visit.run(visit.noted, f"{mark} begun")
    visit.leave()
    assert call.cancelled() or call.exception(0) is not None
    if visit.column.outlives:
        Path(mark).touch()
    ended = f"{mark} finished" if visit.column.outlives else f"{mark} cancelled"

    async def told() -> None:
        with anyio.fail_after(60):
            await visit.noted(ended)

    anyio.run(told)


def test_u1_the_table_of_doors_has_its_cells_and_each_run_has_every_door_era_and_loop() -> None:
    """14 behaviours behind 54 doors: `pytest --collect-only -q --every-case` lists them all."""
    chosen = [column for column in COLUMNS if column.is_of_every_run]
    assert (len(COLUMNS), BEHAVIOURS * len(COLUMNS), len(chosen)) == (54, 756, len(EVERY_RUN))
    assert {(one.door, one.era) for one in chosen} == {(one.door, one.era) for one in COLUMNS}
    assert {(one.door in WEB, one.loop) for one in chosen} == {(one.door in WEB, one.loop) for one in COLUMNS}
