"""Our JSON-RPC dispatcher, spoken to in raw bytes: what it takes, sends, and does not fall for."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faults.harness import until
from tests.support.bounds import bound, bounds

from mcp_toolset import ToolsetError
from mcp_toolset.protocol import json_rpc
from mcp_toolset.protocol.eras import Encoded
from mcp_toolset.protocol.json_rpc import MCPError, RequestTimedOut
from mcp_toolset.transports import line_dispatcher as jsonrpc
from mcp_toolset.transports import stdio_server
from mcp_toolset.transports.line_dispatcher import LineDispatcher, PipePair
from mcp_toolset.transports.stdio_server import unshared

pytestmark = pytest.mark.anyio

Params = Mapping[str, Any] | None
Handler = Callable[[Any, str, Params], Awaitable[dict[str, Any]]]


class Peer:
    """The other side: raw bytes, and the dispatcher under test."""

    def __init__(self, dispatcher: LineDispatcher, reader: int, writer: int, pair: PipePair) -> None:
        self.dispatcher, self.pair = dispatcher, pair
        self._reader, self._writer = reader, writer
        self._rest = b""
        self._sending = anyio.Lock()
        self.notes: list[tuple[str, Any]] = []

    async def send(self, *messages: Any) -> None:
        """Send messages, or bytes as they are."""
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            async with self._sending:
                while data:
                    await anyio.wait_writable(self._writer)
                    data = data[os.write(self._writer, data[:4096]) :]

    async def receive(self) -> dict[str, Any]:
        """The next message."""
        with anyio.fail_after(30):
            while b"\n" not in self._rest:
                await anyio.wait_readable(self._reader)
                chunk = os.read(self._reader, 1 << 20)
                if not chunk:
                    raise EOFError
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """Send nothing more."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def stop_reading(self) -> None:
        """Take nothing more, so that writing fails."""
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1


@asynccontextmanager
async def speaking(handler: Handler | None = None, **options: Any) -> AsyncGenerator[Peer]:
    """A dispatcher that runs, and its peer."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    for end in (ours_in, ours_out, theirs_in):
        os.set_blocking(end, False)
    pair = PipePair(ours_in, ours_out)
    dispatcher = LineDispatcher(pair, **options)
    peer = Peer(dispatcher, theirs_in, theirs_out, pair)

    async def nothing(context: Any, method: str, params: Params) -> dict[str, Any]:
        return {}

    async def note(context: Any, method: str, params: Params) -> None:
        peer.notes.append((method, params))

    try:
        async with anyio.create_task_group() as group:
            await group.start(dispatcher.run, handler or nothing, note)
            yield peer
            group.cancel_scope.cancel()
    finally:
        pair.stop()
        peer.close()
        peer.stop_reading()
        os.close(ours_in)
        os.close(ours_out)


def request(number: Any, method: str = "m", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def result(number: Any, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": fields}


async def echo(context: Any, method: str, params: Params) -> dict[str, Any]:
    return dict(params or {})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
shapes = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2, None]),
        "id": st.one_of(
            st.integers(-2, 3), st.sampled_from(["1", "x", "", True, None, 1.5, [1], "9" * 5000])
        ),
        "method": st.sampled_from(
            ["m", "", None, 7, "notifications/cancelled", "notifications/progress", "initialize"]
        ),
        "params": st.one_of(
            json_values,
            st.fixed_dictionaries(
                {},
                optional={
                    "requestId": json_values,
                    "progressToken": json_values,
                    "progress": json_values,
                    "_meta": json_values,
                },
            ),
        ),
        "result": json_values,
        "error": st.one_of(
            json_values, st.fixed_dictionaries({}, optional={"code": json_values, "message": json_values})
        ),
    },
)
DEEP = b'{"jsonrpc":"2.0","id":1,"result":%b}'
LONG = b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"x":"%b"}}'
lines = st.one_of(
    shapes.map(lambda shape: json.dumps(shape).encode()),
    st.lists(shapes, max_size=2).map(lambda batch: json.dumps(batch).encode()),
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b" ")),
    st.integers(1, 600).map(lambda depth: DEEP % (b"[" * depth + b"]" * depth)),
    st.just(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m","method":"n"}'),
    st.just(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"\xff\xfe"}}'),
    st.integers(200, 500).map(lambda size: LONG % (b"x" * size)),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    sent=st.lists(lines, max_size=12), cuts=st.lists(st.integers(1, 80), max_size=30), as_server=st.booleans()
)
async def test_f8_whatever_arrives_however_it_is_cut_the_next_exchange_works_both_ways(
    sent: list[bytes], cuts: list[int], as_server: bool
) -> None:
    inline = frozenset({"initialize"}) if as_server else frozenset[str]()
    async with speaking(echo, inline=inline, limit=180, holds_back=as_server) as peer:
        data = b"".join(line + b"\n" for line in sent)
        for cut in cuts:
            await peer.send(data[:cut])
            data = data[cut:]
            await anyio.lowlevel.checkpoint()
        await peer.send(data, request("last", x=1))
        while (answer := await peer.receive()).get("id") != "last":
            pass
        assert answer == result("last", x=1)
        async with anyio.create_task_group() as group:
            got: list[Any] = []

            async def ask() -> None:
                got.append(await peer.dispatcher.send_raw_request("ask", {"y": 2}))

            group.start_soon(ask)
            while (asked := await peer.receive()).get("method") != "ask":
                pass
            await peer.send(result(asked["id"], z=3))
        assert got == [{"z": 3}]


@settings(max_examples=40, deadline=None)
@given(
    messages=st.lists(st.text(max_size=30), min_size=1, max_size=20),
    cuts=st.lists(st.integers(1, 50), max_size=40),
)
async def test_requests_are_answered_alike_however_their_bytes_arrive(
    messages: list[str], cuts: list[int]
) -> None:
    async with speaking(echo) as peer:
        sent = [json.dumps(request(number, text=text)) for number, text in enumerate(messages)]
        data = "".join(line + "\n" for line in sent).encode()
        for cut in cuts:
            await peer.send(data[:cut])
            data = data[cut:]
        await peer.send(data)
        answers = [await peer.receive() for _ in messages]
    assert sorted(answers, key=lambda answer: answer["id"]) == [
        result(number, text=text) for number, text in enumerate(messages)
    ]


@pytest.mark.parametrize("wrong", [True, None, 1.5, [1], {"a": 1}])
async def test_f8_a_request_with_an_id_that_is_none_is_skipped_and_counted(wrong: Any) -> None:
    async with speaking(echo) as peer:
        await peer.send(request(wrong), request(5, a=1))
        assert await peer.receive() == result(5, a=1)
        assert peer.dispatcher.skipped == 1


@pytest.mark.parametrize(
    "line",
    [
        b'[{"jsonrpc":"2.0","id":1,"method":"m"}]',
        b'{"jsonrpc":"2.0","method":"m","params":"x"}',
        b'{"id":1,"result":{}}',
        b'{"jsonrpc":"1.0","id":1,"error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}',
        b'"text"',
        b"\xff\xfe\xfd",
    ],
)
async def test_f8_what_is_no_message_is_skipped_and_counted(line: bytes) -> None:
    async with speaking(echo) as peer:
        await peer.send(line + b"\n\n  \r\n", request(5, a=1))
        assert await peer.receive() == result(5, a=1)
        assert (peer.dispatcher.skipped, peer.dispatcher.strays, peer.notes) == (1, 0, [])


@pytest.mark.parametrize("number", [1, 0, -7, "a", "", "x" * 1000])
@pytest.mark.parametrize(
    "envelope",
    [
        {"jsonrpc": None},
        {"jsonrpc": "1.0"},
        {"jsonrpc": 2.0},
        {"params": [1]},
        {"params": "x"},
        {"method": 7},
        {"method": None},
        {"method": ["m"]},
    ],
)
async def test_u116_a_request_with_a_wrong_envelope_is_refused_under_its_id(
    envelope: dict[str, Any], number: int | str
) -> None:
    async with speaking(echo) as peer:
        await peer.send({**request(number), **envelope}, request("next", a=1))
        refused = await peer.receive()
        assert (refused["id"], refused["error"]["code"]) == (number, -32600)
        assert await peer.receive() == result("next", a=1)
        assert peer.dispatcher.skipped == 1


async def test_f8_a_request_whose_id_is_in_use_is_not_run_a_second_time() -> None:
    started: list[Any] = []
    gate = anyio.Event()

    async def wait(context: Any, method: str, params: Params) -> dict[str, Any]:
        started.append(params)
        await gate.wait()
        return dict(params or {})

    async with speaking(wait) as peer:
        await peer.send(request(1, a=1), request("1", a=2), request(1, a=3))
        await until(lambda: peer.dispatcher.strays == 2)
        gate.set()
        assert await peer.receive() == result(1, a=1)
        await peer.send(request(1, a=4))
        assert await peer.receive() == result(1, a=4)
    assert started == [{"a": 1}, {"a": 4}]
    assert peer.dispatcher.strays == 2


async def test_f8_answers_to_nothing_break_the_circuit_as_garbage_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, garbage_lines=10)
    with pytest.raises(BaseExceptionGroup) as broken:
        async with speaking(too_much=ToolsetError) as peer:
            with suppress(BrokenPipeError):
                await peer.send(*[result(99) for _ in range(12)])
            with pytest.raises(MCPError, match="Connection closed"):
                await peer.dispatcher.send_raw_request("m", {})
    assert broken.group_contains(ToolsetError, match="more than 10 lines")


async def test_f8_a_good_message_among_garbage_keeps_the_circuit_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, garbage_lines=10)
    async with speaking(echo, too_much=ToolsetError) as peer:
        for number in range(5):
            await peer.send(b"garbage\n" * 9, request(number))
            assert (await peer.receive())["id"] == number


@pytest.mark.parametrize(
    "line",
    [b"", b" ", b'{"jsonrpc":"2.0","method":"notifications/x"}', b'{"jsonrpc":"2.0","id":1,"method":"m"}'],
)
async def test_u113_a_flood_of_what_answers_nothing_breaks_the_circuit(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, flood_burst=100_000, flood_per_second=1)
    with pytest.raises(BaseExceptionGroup) as broken:
        async with speaking(echo, too_much=ToolsetError) as peer:
            with suppress(BrokenPipeError):
                await peer.send((line + b"\n") * 1000)
            with pytest.raises(MCPError, match="Connection closed"):
                await peer.dispatcher.send_raw_request("m", {})
    assert broken.group_contains(ToolsetError, match="floods the connection")


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \n"])
async def test_u113_blank_lines_are_not_looked_at_as_broken_messages(
    blank: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[bytes]()
    monkeypatch.setattr(jsonrpc, "repaired", looked.append)
    async with speaking(echo) as peer:
        await peer.send(blank * 10_000 + json.dumps(request(7)).encode() + blank * 10)
        assert (await peer.receive())["id"] == 7
    assert looked == [] and peer.dispatcher.skipped == 0


@pytest.mark.parametrize(("long", "skipped"), [(b"\r", 0), (b" ", 0), (b"\0", 1), (b"[", 1), (b"x", 1)])
async def test_u113_a_long_line_that_begins_like_no_message_is_not_looked_through(
    long: bytes, skipped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(line: bytes, *arguments: Any, **options: Any) -> Any:
            nonlocal looked
            looked += len(line)
            return function(line, *arguments, **options)

        return counted

    monkeypatch.setattr(json_rpc, "json_in", counting(json_rpc.json_in))
    for name in ("from_json", "repaired", "traced"):
        monkeypatch.setattr(jsonrpc, name, counting(getattr(jsonrpc, name)))
    async with speaking(echo) as peer:
        await peer.send(long * 1_000_000 + b"\n", request(7))
        assert (await peer.receive())["id"] == 7
        blank = b"\xef\xbb\xbf \r" + b" " * 1000
        await peer.send(blank + json.dumps({**request(8), "params": {"x": "y" * 100_000}}).encode() + b"\n")
        assert (await peer.receive())["id"] == 8
        assert peer.dispatcher.skipped == skipped
    assert looked < 500_000


async def test_u113_a_long_line_is_joined_in_one_turn_of_the_loop_and_read_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, joined, read, read_json = 0, list[int](), list[int](), json_rpc.json_in

    def step() -> None:
        nonlocal turn, handle
        turn += 1
        handle = asyncio.get_running_loop().call_soon(step)

    def noted(line: bytes, *arguments: Any) -> Any:
        read.append(turn)
        return read_json(line, *arguments)

    monkeypatch.setattr(json_rpc, "json_in", noted)
    handle = asyncio.get_running_loop().call_soon(step)
    async with speaking(echo) as peer:
        line = json.dumps({**request(7), "params": {"x": "y" * 5_000_000}}).encode() + b"\n"
        await anyio.lowlevel.checkpoint()
        for begin in range(0, len(line), 1_000_000):
            peer.dispatcher._take_chunk(line[begin : begin + 1_000_000])
        joined.append(turn)
        assert (await peer.receive())["id"] == 7
        handle.cancel()
    assert len(read) == 1 and read[0] > joined[0]


async def test_u113_many_requests_that_come_at_once_are_begun_in_turns_of_the_loop() -> None:
    turn, begun = 0, list[int]()

    def step() -> None:
        nonlocal turn, handle
        turn += 1
        handle = asyncio.get_running_loop().call_soon(step)

    async def note(context: Any, method: str, params: Params) -> dict[str, Any]:
        begun.append(turn)
        await anyio.sleep(0.01)
        return {}

    handle = asyncio.get_running_loop().call_soon(step)
    async with speaking(note) as peer:
        # In one chunk.
        peer.dispatcher._take_chunk(b"".join(json.dumps(request(n)).encode() + b"\n" for n in range(1000)))
        await until(lambda: len(begun) == 1000)
        handle.cancel()
    assert max(Counter(begun).values()) <= 64


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":[1]}', "cannot be read"),
        (b'{"jsonrpc":"2.0","id":1}', "cannot be read"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"m"}}', "cannot be read"),
        (b'{"jsonrpc":"2.0","id":1,"error":"m"}', "cannot be read"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":\xff}}', "cannot be read"),
        (b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 500 + b"]" * 500 + b"}", "cannot be read"),
        (b'{"result":{"a":\xff},"jsonrpc":"2.0","id":1}', "cannot be read"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"' + b"x" * 3000 + b'"}}', "more than 2000 bytes"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":-7,"message":"no","data":{"d":1}}}', "no"),
    ],
)
async def test_f9_an_answer_that_cannot_be_read_fails_its_request_at_once(answer: bytes, fault: str) -> None:
    async with speaking(limit=2000) as peer, anyio.create_task_group() as group:

        async def ask() -> None:
            with anyio.fail_after(40), pytest.raises(MCPError, match=fault):
                await peer.dispatcher.send_raw_request("m", {})

        group.start_soon(ask)
        assert (await peer.receive())["id"] == 1
        await peer.send(answer + b"\n")


@pytest.mark.parametrize("rest", [b'"params":{"x":"' + b"y" * 3000 + b'"}}', b'"params":{"x":\xff}}'])
async def test_f33_a_request_that_is_too_long_or_broken_is_refused_by_its_id(rest: bytes) -> None:
    async with speaking(echo, limit=2000) as peer:
        await peer.send(b'{"jsonrpc":"2.0","id":7,"method":"m",' + rest + b"\n", request(8))
        assert (await peer.receive())["error"]["code"] == types.PARSE_ERROR
        assert (await peer.receive())["id"] == 8


async def test_u113_a_request_with_more_values_than_are_read_at_once_is_told_the_bound() -> None:
    dense = b"1," * 250_000
    async with speaking(echo, holds_back=True) as peer:
        await peer.send(b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":[%b1]}}\n' % dense, request(8))
        refused = await peer.receive()
        assert (refused["id"], refused["error"]["code"]) == (7, types.PARSE_ERROR)
        assert "250,000" in refused["error"]["message"]
        assert (await peer.receive())["id"] == 8


async def test_f28_a_thousand_requests_at_once_in_each_direction_and_none_is_crossed() -> None:
    answers: dict[int, Any] = {}
    async with speaking(echo) as peer, anyio.create_task_group() as group:

        async def ask(number: int) -> None:
            answers[number] = await peer.dispatcher.send_raw_request("m", {"n": number})

        async def serve() -> None:
            for _ in range(2000):
                message = await peer.receive()
                if "method" in message:
                    await peer.send(result(message["id"], n=message["params"]["n"]))
                else:
                    assert message["result"] == {"n": message["id"]}

        group.start_soon(serve)
        for number in range(1000):
            group.start_soon(ask, number)
        await peer.send(*[request(number, n=number) for number in range(1000)])
    assert answers == {number: {"n": number} for number in range(1000)}


async def test_f28_more_requests_than_the_limit_are_refused_and_the_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, requests_at_once=5)
    gate = anyio.Event()

    async def wait(context: Any, method: str, params: Params) -> dict[str, Any]:
        await gate.wait()
        return {}

    async with speaking(wait) as peer:
        await peer.send(*map(request, range(8)))
        refused = [await peer.receive() for _ in range(3)]
        gate.set()
        answered = [await peer.receive() for _ in range(5)]
    assert [answer["error"]["message"] for answer in refused] == ["more than 5 requests at once"] * 3
    assert sorted(answer["id"] for answer in answered) == list(range(5))


async def test_f29_a_peer_that_does_not_read_is_held_back_and_then_gets_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, high_water=200_000)
    started: list[int] = []

    async def big(context: Any, method: str, params: Params) -> dict[str, Any]:
        started.append(1)
        return {"text": "x" * 50_000}

    async with speaking(big, holds_back=True) as peer, anyio.create_task_group() as group:
        group.start_soon(peer.send, *map(request, range(100)))
        await until(lambda: not peer.pair.has_room)
        # What is sent before the first answers wait is taken at once; after that nothing is.
        assert peer.pair._unsent_size < 200_000 + 100 * 51_000
        got = sorted([(await peer.receive())["id"] for _ in range(100)])
    assert got == list(range(100))
    assert len(started) == 100


async def test_f29_requests_to_a_peer_that_does_not_read_wait_and_their_cancellation_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, high_water=100_000)
    async with speaking() as peer:
        for _ in range(20):
            async with anyio.create_task_group() as group:
                group.start_soon(peer.dispatcher.send_raw_request, "m", {"text": "x" * 40_000})
                await anyio.wait_all_tasks_blocked()
                group.cancel_scope.cancel()
        assert peer.pair._unsent_size < 200_000
        asked, cancelled = set[int](), set[int]()
        async with anyio.create_task_group() as group:
            group.start_soon(peer.dispatcher.send_raw_request, "last", {})
            with anyio.fail_after(40):
                while (message := await peer.receive()).get("method") != "last":
                    if "id" in message:
                        asked.add(message["id"])
                    else:
                        cancelled.add(message["params"]["requestId"])
            await peer.send(result(message["id"]))
        # Nothing was cancelled that had not been asked.
        assert cancelled == asked
        assert 0 < len(asked) < 20


async def test_f4_the_time_limit_counts_while_a_request_waits_to_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, high_water=100_000)
    async with speaking() as peer, anyio.create_task_group() as group:
        group.start_soon(peer.dispatcher.send_raw_request, "m", {"text": "x" * 3_000_000})
        await until(lambda: not peer.pair.has_room)
        with anyio.fail_after(40), pytest.raises(RequestTimedOut):
            await peer.dispatcher.send_raw_request("m", {}, {"timeout": 0.05})
        assert len(peer.dispatcher._waiting) == 1
        group.cancel_scope.cancel()


async def test_f44_a_peer_that_has_closed_and_does_not_read_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, high_water=100_000)

    async def big(context: Any, method: str, params: Params) -> dict[str, Any]:
        return {"text": "x" * 200_000}

    async with speaking(big, holds_back=True, drain=0.05) as peer:
        await peer.send(*map(request, range(600)))
        await until(lambda: not peer.pair.has_room)
        peer.close()
        await until(lambda: peer.dispatcher._closed, within=40)


async def test_f26_a_cancelled_request_is_cancelled_in_its_handler_and_not_answered() -> None:
    ended: list[str] = []

    async def wait(context: Any, method: str, params: Params) -> dict[str, Any]:
        if method == "next":
            return {}
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("set" if context.cancel_requested.is_set() else "not set")
        return {}

    async with speaking(wait) as peer:
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "1"}}
        await peer.send(request(1), cancel, request(2, "m"), {**cancel, "params": {"requestId": 2}})
        await until(lambda: ended == ["set", "set"])
        await peer.send(request(4, "next"))
        assert (await peer.receive())["id"] == 4
        await peer.send(request(1), {**cancel, "params": {"requestId": 9}}, request(3))
        await until(lambda: len(peer.dispatcher._requests) == 2)
        assert ended == ["set", "set"]


async def test_f26_a_caller_that_gives_up_tells_the_peer_once_and_a_late_answer_is_a_stray() -> None:
    async with speaking() as peer:
        async with anyio.create_task_group() as group:
            group.start_soon(peer.dispatcher.send_raw_request, "m", {})
            assert (await peer.receive())["id"] == 1
            group.cancel_scope.cancel()
        assert (await peer.receive())["params"]["requestId"] == 1
        await peer.send(result(1), result(1))
        await until(lambda: peer.dispatcher.strays == 2)
        assert not peer.dispatcher._waiting


async def test_an_answer_and_a_cancellation_in_the_same_turn_leave_nothing_behind() -> None:
    async with speaking() as peer:
        for number in range(1, 40):
            async with anyio.create_task_group() as group:
                group.start_soon(peer.dispatcher.send_raw_request, "m", {})
                while (asked := await peer.receive()).get("method") != "m":
                    pass
                await peer.send(result(asked["id"]))
                for _ in range(number % 4):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        assert not peer.dispatcher._waiting
        async with anyio.create_task_group() as group:
            group.start_soon(peer.dispatcher.send_raw_request, "last", {})
            while (asked := await peer.receive()).get("method") != "last":
                pass
            await peer.send(result(asked["id"]))


@pytest.mark.parametrize("way", ["its output", "its input"])
async def test_f1_when_the_peer_goes_every_waiting_request_fails_at_once(way: str) -> None:
    async with speaking() as peer, anyio.create_task_group() as group:
        failed: list[str] = []

        async def ask() -> None:
            with anyio.fail_after(40):
                try:
                    await peer.dispatcher.send_raw_request("m", {})
                except MCPError as fault:
                    failed.append(fault.message)

        for _ in range(20):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        if way == "its output":
            peer.close()
        else:
            peer.stop_reading()
            group.start_soon(ask)
    assert set(failed) == {"Connection closed"}
    assert len(failed) == (20 if way == "its output" else 21)


@pytest.mark.parametrize("index", range(6))
async def test_a_peer_that_dies_at_any_message_leaves_no_task_and_no_waiter(index: int) -> None:
    script = [
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
        request(1),
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {}},
        request(2),
        b'{"jsonrpc":"2.0","id":1,"res',
    ]

    async def wait(context: Any, method: str, params: Params) -> dict[str, Any]:
        await anyio.sleep_forever()
        return {}

    before = len(anyio.get_running_tasks())
    async with speaking(wait) as peer, anyio.create_task_group() as group:

        async def ask() -> None:
            with anyio.fail_after(40), pytest.raises(MCPError, match="Connection closed"):
                await peer.dispatcher.send_raw_request("m", {})

        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        await peer.send(*script[:index])
        peer.close()
    assert len(anyio.get_running_tasks()) == before
    assert not peer.dispatcher._requests and not peer.dispatcher._notes


async def test_initialize_is_finished_before_the_next_message_is_taken() -> None:
    order: list[str] = []

    async def handle(context: Any, method: str, params: Params) -> dict[str, Any]:
        if method == "initialize":
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
        order.append(method)
        return {}

    async with speaking(handle, inline=frozenset({"initialize"})) as peer:
        await peer.send(
            request(1, "initialize"), request(2, "second"), request(3, "initialize"), request(4, "last")
        )
        assert [(await peer.receive())["id"] for _ in range(4)] == [1, 2, 3, 4]
    assert order == ["initialize", "second", "initialize", "last"]


async def test_progress_goes_to_its_own_request_before_the_answer_and_in_order() -> None:
    heard: dict[int, list[float]] = {}
    async with speaking() as peer, anyio.create_task_group() as group:

        async def ask(number: int) -> None:
            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                await anyio.lowlevel.checkpoint()
                heard.setdefault(number, []).append(progress)

            await peer.dispatcher.send_raw_request("m", {"n": number}, {"on_progress": on_progress})
            heard[number].append(-1)

        for number in range(16):
            group.start_soon(ask, number)
        asked = [await peer.receive() for _ in range(16)]
        for step in range(3):
            for message in asked:
                token = message["params"]["_meta"]["progressToken"]
                progress = {"progressToken": token, "progress": message["params"]["n"] * 10 + step}
                await peer.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        await peer.send(*[result(message["id"]) for message in asked])
    assert heard == {number: [number * 10, number * 10 + 1, number * 10 + 2, -1] for number in range(16)}


async def test_f10_an_answer_waits_for_reports_that_nobody_takes_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, report_grace=0.05)
    assert bound("report_grace") <= 1
    async with speaking() as peer, anyio.create_task_group() as group:

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            await anyio.sleep_forever()

        async def ask() -> None:
            with anyio.fail_after(40):
                await peer.dispatcher.send_raw_request("m", {}, {"on_progress": on_progress})

        group.start_soon(ask)
        number = (await peer.receive())["id"]
        progress = {"progressToken": number, "progress": 1}
        await peer.send(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}, result(number)
        )


async def test_f10_notifications_that_nobody_finishes_are_bounded_and_the_oldest_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, notifications=10)
    gate, heard = anyio.Event(), list[Any]()
    async with speaking(echo) as peer:

        async def slow(context: Any, method: str, params: Params) -> None:
            await gate.wait()
            heard.append((params or {})["n"])

        peer.dispatcher._on_notify = slow
        await peer.send(
            *[{"jsonrpc": "2.0", "method": "n", "params": {"n": n}} for n in range(500)], request(1)
        )
        assert (await peer.receive())["id"] == 1
        assert len(peer.dispatcher._notes) == 10
        gate.set()
        await anyio.wait_all_tasks_blocked()
    assert heard == list(range(490, 500))


async def test_what_arrives_runs_in_nobodys_context() -> None:
    from contextvars import ContextVar

    mine: ContextVar[str] = ContextVar("mine", default="nobody's")
    seen: list[str] = []

    async def look(context: Any, method: str, params: Params) -> dict[str, Any]:
        seen.append(mine.get())
        mine.set(f"set by {params}")
        return {"text": "x" * 300_000}

    async with speaking(look, inline=frozenset({"initialize"}), holds_back=True) as peer:
        for number in range(6):
            mine.set("the test's")
            await peer.send(request(number, "initialize" if number % 2 else "m"))
            await peer.receive()
    assert set(seen) == {"nobody's"}


async def test_a_result_without_a_json_form_becomes_an_error_and_one_in_json_form_goes_as_it_is() -> None:
    async def handle(context: Any, method: str, params: Params) -> dict[str, Any]:
        return {"x": "\ud800"} if method == "bad" else Encoded({"a": 1}, b'{"a":1.0}')

    async with speaking(handle) as peer:
        await peer.send(request(1, "bad"), request("two", "good"))
        assert (await peer.receive())["error"]["message"] == "the result has no JSON form"
        answer = await peer.receive()
        assert answer["id"] == "two" and isinstance(answer["result"]["a"], float)
        with pytest.raises(MCPError, match="no JSON can carry this"):
            await peer.dispatcher.send_raw_request("m", {"x": object()})
        assert not peer.dispatcher._waiting


@pytest.mark.parametrize("kind", ["pipe", "socket", "polled"])
async def test_f45_a_shared_pipe_is_written_to_without_blocking_and_stays_as_it_is(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    if kind == "socket":
        left, right = socket.socketpair()
        reader, writer = left.detach(), right.detach()
    else:
        reader, writer = os.pipe()
    if kind == "polled":

        def refuse(*arguments: Any) -> int:
            raise OSError("this system opens no pipe twice")

        monkeypatch.setattr(stdio_server, "reopened", refuse)
    try:
        assert os.get_blocking(writer)
        with unshared(writer) as (own, write):
            pair = PipePair(reader, own, write)
            data = os.urandom(3_000_000).replace(b"\n", b".")
            pair.write_line(data)
            assert not pair._broken and pair._unsent
            assert os.get_blocking(writer)
            got = b""
            with anyio.fail_after(40):
                while len(got) < len(data) + 1:
                    await anyio.wait_readable(reader)
                    got += os.read(reader, 1 << 20)
                await pair.flushed()
            pair.stop()
        assert got == data + b"\n"
        assert os.get_blocking(writer)
    finally:
        os.close(reader)
        os.close(writer)
