"""Streamable HTTP as a client: what servers may answer, and what becomes of the one request."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp_types import INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from tests.faults.harness import until
from tests.transports.client.raw_server import (
    EVENTS,
    JSON,
    RESULT,
    SOON,
    Handler,
    MCPError,
    Request,
    connected,
    http_client,
    raw_server,
    replying,
    says_broke_off,
    says_ended,
)

from mcp_toolset.protocol.dispatch import DispatchContext

pytestmark = pytest.mark.anyio


def answering(body: object, status: str = "200 OK", **headers: str) -> Handler:
    async def handler(request: Request) -> None:
        await request.answer(body, status, **headers)

    return handler


async def failure(handler: Handler) -> MCPError:
    async with connected(handler) as (client, raw, _):
        with pytest.raises(MCPError) as failed:
            await client.send_raw_request("tools/call", {})
        assert len(raw.log) == 1
        raw.handler = answering({**RESULT, "id": 2})
        assert await client.send_raw_request("ping", None) == {"ok": True}
    return failed.value


LOST: dict[str, Handler] = {
    "nothing": replying(),
    "half a head": replying(b"HTTP/1.1 200 OK\r\ncontent-"),
    "half a body": replying(JSON + b'content-length: 90\r\n\r\n{"jsonrpc": "2.0"'),
    "garbage chunks": replying(JSON + b"transfer-encoding: chunked\r\n\r\nxyz\r\n{}\r\n"),
    "half a chunk": replying(JSON + b'transfer-encoding: chunked\r\n\r\n20\r\n{"jsonrpc"'),
    "no HTTP": replying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    "an endless head": replying(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000),
    "no gzip": answering(RESULT, content_encoding="gzip"),
    "a stream without an answer": replying(EVENTS + b"\r\n: ping\n\n"),
    "half an event": replying(EVENTS + b'\r\ndata: {"jsonrpc"'),
}


@pytest.mark.parametrize("name", LOST)
async def test_a_reply_that_breaks_is_one_request_that_is_lost(name: str) -> None:
    assert says_broke_off(await failure(LOST[name]))


UNREADABLE: dict[str, tuple[Handler, int]] = {
    "no JSON": (answering(b"<html>"), PARSE_ERROR),
    "half of JSON": (answering(b'{"jsonrpc": "2.0", "id": 1'), PARSE_ERROR),
    "a list": (answering([RESULT]), PARSE_ERROR),
    "a request": (answering({"jsonrpc": "2.0", "id": 1, "method": "ping"}), PARSE_ERROR),
    "another version": (answering({**RESULT, "jsonrpc": "1.0"}), PARSE_ERROR),
    "neither result nor error": (answering({"jsonrpc": "2.0", "id": 1}), PARSE_ERROR),
    "no result": (answering({"jsonrpc": "2.0", "id": 1, "result": 5}), PARSE_ERROR),
    "an event that is none": (replying(EVENTS + b"\r\ndata: {\n\n"), PARSE_ERROR),
    "a page": (answering(b"<html>Sign in</html>", content_type="text/html"), INVALID_REQUEST),
    "nothing": (answering(b"", content_type=""), INVALID_REQUEST),
    "accepted": (answering(None, "202 Accepted"), INVALID_REQUEST),
    "no content": (answering(None, "204 No Content", content_type=""), INVALID_REQUEST),
    "not found": (answering(b"<html>", "404 Not Found", content_type="text/html"), METHOD_NOT_FOUND),
    "elsewhere": (
        answering(None, "307 Moved", location="http://elsewhere.example/?token=x"),
        INVALID_REQUEST,
    ),
    "another method": (answering(None, "303 See Other", location="/login"), INVALID_REQUEST),
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_reply_that_is_no_answer_is_an_error_of_its_request(name: str) -> None:
    handler, code = UNREADABLE[name]
    failed = await failure(handler)
    assert failed.code == code and not says_broke_off(failed) and not says_ended(failed)
    assert "token=x" not in failed.message


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "500 Oops"])
async def test_an_error_in_a_body_counts_more_than_its_status(status: str) -> None:
    error = {"code": -32020, "message": "mismatch", "data": {"a": 1}}
    failed = await failure(answering({"jsonrpc": "2.0", "id": None, "error": error}, status))
    assert (failed.code, failed.message, failed.data) == (-32020, "mismatch", {"a": 1})


async def test_a_status_alone_is_told() -> None:
    failed = await failure(answering(b"<html>busy</html>", "503 Busy", content_type="text/html"))
    assert "HTTP 503" in failed.message


@pytest.mark.parametrize(
    "handler",
    [
        answering(RESULT, content_type=""),
        answering(json.dumps({**RESULT, "id": "1"}).encode(), content_type="Application/JSON; charset=utf-8"),
        replying(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + json.dumps(RESULT).encode()),
        replying(EVENTS + b"\r\nid: 1\r\ndata:\r\n\r\ndata: " + json.dumps(RESULT).encode() + b"\r\n\r\n"),
        replying(EVENTS + b"\r\ndata: " + json.dumps(RESULT).encode() + b"\r\r"),
        replying(EVENTS + b"\r\n\xef\xbb\xbfdata: " + json.dumps(RESULT).encode() + b"\n\n"),
    ],
)
async def test_odd_forms_of_an_answer_are_answers(handler: Handler) -> None:
    async with connected(handler) as (client, _, _):
        assert await client.send_raw_request("ping", None) == {"ok": True}


async def test_a_lone_half_of_a_character_costs_no_answer() -> None:
    broken = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a\\ud83d"}]}}'
    for handler in (answering(broken), replying(EVENTS + b"\r\ndata: " + broken + b"\n\n")):
        async with connected(handler) as (client, _, _):
            assert len((await client.send_raw_request("tools/list", None))["tools"]) == 1


async def test_what_comes_before_an_answer_is_heard_in_order_and_requests_are_answered_by_posts() -> None:
    answered = anyio.Event()

    async def handler(request: Request) -> None:
        if "method" not in request.message:
            assert request.message == {
                "jsonrpc": "2.0",
                "id": "q",
                "result": {"of": "sampling/createMessage"},
            }
            answered.set()
            return await request.answer(None, "202 Accepted")
        await request.begin_events()
        for step in range(5):
            await request.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": step}})
        await request.event({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})
        await answered.wait()
        await request.event(request.result())
        await request.chunk(b"")

    async with connected(handler) as (client, raw, heard):
        assert await client.send_raw_request("tools/call", {}) == {"ok": True}
        assert [params["n"] for _, params in heard.notes] == [0, 1, 2, 3, 4]
        assert heard.asked == ["sampling/createMessage"]
        assert raw.log[0].headers["x-key"] == "k"


async def test_the_answer_of_another_request_is_not_taken_for_ones_own() -> None:
    async def handler(request: Request) -> None:
        if request.message["method"] == "first":
            return await held.wait()
        await request.begin_events()
        await request.event({"jsonrpc": "2.0", "id": 1, "result": {"secret": 1}})
        await request.event(request.result())
        await request.chunk(b"")
        await request.answer(request.result())

    held = anyio.Event()
    async with connected(handler) as (client, raw, _), anyio.create_task_group() as group:
        group.start_soon(client.send_raw_request, "first", None)
        while not raw.log:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        assert await client.send_raw_request("second", None) == {"ok": True}
        group.cancel_scope.cancel()


@pytest.mark.parametrize("number", [1, 999_999, "of another client"])
@pytest.mark.parametrize("events", [True, False])
async def test_u117_an_answer_to_a_request_of_another_session_is_not_taken_for_ones_own(
    number: int | str, events: bool
) -> None:
    """A gateway may write the answers of all sessions on each stream."""

    async def handler(request: Request) -> None:
        if request.message["method"] == "first":
            return await held.wait()
        other = {"jsonrpc": "2.0", "id": number, "result": {"secret": 1}}
        if not events:
            return await request.answer(other)
        await request.begin_events()
        await request.event(other)
        await request.event(request.result())
        await request.chunk(b"")

    held = anyio.Event()
    async with connected(handler) as (client, raw, _), anyio.create_task_group() as group:
        group.start_soon(client.send_raw_request, "first", None)
        while not raw.log:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        if events:
            assert await client.send_raw_request("second", None) == {"ok": True}
        else:
            with pytest.raises(MCPError, match="has the id of another request than 2"):
                await client.send_raw_request("second", None)
        group.cancel_scope.cancel()


async def test_progress_reaches_its_request_before_the_answer() -> None:
    steps = list[float]()

    async def handler(request: Request) -> None:
        assert request.message["params"]["_meta"] == {"progressToken": 1}
        await request.begin_events()
        for step in range(3):
            params = {"progressToken": 1, "progress": step}
            await request.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        await request.event(request.result())

    async def step(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async with connected(handler) as (client, _, _):
        await client.send_raw_request("tools/call", {}, {"on_progress": step})
    assert steps == [0, 1, 2]


@pytest.mark.parametrize("events", [False, True])
async def test_a_connection_is_used_again_after_each_answer(events: bool) -> None:
    async def handler(request: Request) -> None:
        if not events:
            return await request.answer(request.result())
        await request.begin_events()
        await request.event(request.result())
        await request.chunk(b"")

    async with connected(handler) as (client, raw, _):
        for _ in range(20):
            await client.send_raw_request("ping", None)
            # The end of a stream is read after its answer has been handed on.
            await anyio.wait_all_tasks_blocked()
        assert raw.connections < 10


async def test_five_hundred_calls_at_once_are_each_answered_and_few_connections_stay() -> None:
    async def handler(request: Request) -> None:
        await anyio.lowlevel.checkpoint()
        await request.answer(request.result({"n": request.message["params"]["n"]}))

    async with connected(handler) as (client, _, _):
        answers = dict[int, Any]()

        async def call(number: int) -> None:
            answers[number] = await client.send_raw_request("tools/call", {"n": number})

        async with anyio.create_task_group() as group:
            for number in range(500):
                group.start_soon(call, number)
        assert answers == {number: {"n": number} for number in range(500)}
        assert client._carrier._plain is not None and len(client._carrier._plain._idle) <= 256


async def test_a_server_that_closes_each_connection_is_called_again_and_again() -> None:
    async def handler(request: Request) -> None:
        await request.answer(request.result(), connection="close")
        request.writer.close()

    async with connected(handler) as (client, raw, _):
        for _ in range(10):
            await client.send_raw_request("ping", None)
        assert raw.connections == 10


async def test_a_server_that_closes_idle_connections_loses_no_request() -> None:
    async def handler(request: Request) -> None:
        await request.answer(request.result())
        request.writer.close()

    async with connected(handler) as (client, raw, _):
        assert client._carrier._plain is not None
        idle = client._carrier._plain._idle
        for _ in range(10):
            await client.send_raw_request("ping", None)
            await until(lambda: all(connection.http.has_expired() for connection in idle))
        assert raw.connections == 10


@pytest.mark.long
async def test_an_answer_of_sixty_megabytes_arrives_and_a_bigger_one_is_one_error() -> None:
    async def handler(request: Request) -> None:
        size = request.message["params"]["size"] * 2**20
        body = b'{"jsonrpc":"2.0","id":1,"result":{"text":"%b"}}' % (b"x" * size)
        await request.send(EVENTS + b"\r\ndata: ", body, b"\n\n")
        request.writer.close()

    async with connected(handler) as (client, _, _):
        assert len((await client.send_raw_request("tools/call", {"size": 60}))["text"]) == 60 * 2**20
        with pytest.raises(MCPError, match="more than 67108864 bytes"):
            await client.send_raw_request("tools/call", {"size": 65})
        assert client._intake.size == 0


async def test_u113_changes_of_a_list_that_come_together_are_heard_once_and_a_later_one_again() -> None:
    told, heard, said = (
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        anyio.Event(),
        list[str](),
    )

    async def handler(request: Request) -> None:
        await request.begin_events()
        line = b"data: " + json.dumps(told).encode() + b"\n\n"
        await request.chunk(line * 500)
        await heard.wait()
        said.append("again")
        await request.event(told)
        await request.event(request.result())
        await request.chunk(b"")

    async def on_notify(context: DispatchContext, method: str, params: Any) -> None:
        said.append(method)
        heard.set()

    async def on_request(context: DispatchContext, method: str, params: Any) -> dict[str, Any]:
        raise AssertionError("it asks nothing")

    with anyio.fail_after(SOON):
        async with raw_server(handler) as raw, http_client("up", raw.url, {}) as client:
            async with anyio.create_task_group() as group:
                await group.start(client.run, on_request, on_notify)
                assert await client.send_raw_request("tools/call", {}) == {"ok": True}
                while said[-1] == "again":
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
    assert said.index("again") < len(said) - 1
    if sys.version_info < (3, 12):  # from then on, a task begins at once
        assert said.index("again") < 250
