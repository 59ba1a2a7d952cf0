"""`ServerMachine`: what it accepts and refuses, in tables, by properties, and beside the SDK's server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp import MCPError as SDKError
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestParams,
    methods,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.server_machine import ServerMachine

PREFIX = "io.modelcontextprotocol"
CLIENT = {"name": "c", "version": "1"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"sampling": {}}, "clientInfo": CLIENT}
META = {
    f"{PREFIX}/protocolVersion": "2026-07-28",
    f"{PREFIX}/clientCapabilities": {"roots": {}},
    f"{PREFIX}/clientInfo": CLIENT,
    f"{PREFIX}/logLevel": "info",
}
CALL = {"name": "t", "arguments": {}}
Message = tuple[str, dict[str, Any]]


def _meta(**changed: Any) -> dict[str, Any]:
    """An envelope, some members of which are something else."""
    return {"_meta": {**META, **{f"{PREFIX}/{key}": value for key, value in changed.items()}}}


def _opened(era: str) -> ServerMachine:
    machine = ServerMachine()
    if era == "legacy":
        machine.receive_request("initialize", HELLO)
    else:
        machine.receive_request("tools/list", _meta())
    return machine


def _state(machine: ServerMachine) -> tuple[Any, ...]:
    return tuple(getattr(machine, name) for name in ServerMachine.__slots__)


def _outcome(machine: ServerMachine, method: str, params: Any) -> int | None:
    """The code with which a request is refused; `None` if it is accepted."""
    try:
        machine.receive_request(method, params)
    except MCPError as refused:
        return refused.code
    return None


def test_a_handshake_says_who_asks_from_then_on() -> None:
    machine = ServerMachine()
    said = machine.receive_request("initialize", HELLO)
    assert (said.protocol_version, said.client_info, said.is_modern) == ("2025-06-18", CLIENT, False)
    assert said.client_capabilities == {"sampling": {}}
    assert machine.receive_request("tools/call", CALL) is said
    assert machine.receive_request("vendor/method", {"anything": [1]}) is said


def test_a_modern_request_says_who_asks_itself() -> None:
    machine = ServerMachine()
    said = machine.receive_request("tools/call", {**CALL, **_meta()})
    assert (said.protocol_version, said.client_info, said.is_modern) == ("2026-07-28", CLIENT, True)
    assert (said.client_capabilities, said.log_level) == ({"roots": {}}, "info")
    other = machine.receive_request("tools/list", _meta(clientCapabilities={}, logLevel=None))
    assert (other.client_capabilities, other.log_level) == ({}, None)


def test_an_envelope_that_says_the_same_is_not_read_again() -> None:
    machine = _opened("modern")
    said = machine.envelope
    again = machine.receive_request("tools/call", {**CALL, **_meta(), "more": 1})
    assert again is said
    token = {"_meta": {**META, "progressToken": 5, "example.com/x": 1}}
    assert machine.receive_request("tools/list", token) is said
    assert machine.receive_request("tools/list", _meta(logLevel="error")) is not said


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ],
)
def test_a_handshake_agrees_upon_a_revision(asked: str, agreed: str) -> None:
    said = ServerMachine().receive_request("initialize", {**HELLO, "protocolVersion": asked})
    assert said.protocol_version == agreed


def test_a_request_sent_before_the_handshake_is_refused_and_one_behind_it_is_not() -> None:
    machine = ServerMachine()
    with pytest.raises(MCPError, match="initialize first") as refused:
        machine.receive_request("tools/list")
    assert refused.value.code == INVALID_PARAMS
    assert _outcome(machine, "ping", None) is None
    assert _outcome(machine, "vendor/method", None) == METHOD_NOT_FOUND
    assert _outcome(machine, "initialize", HELLO) is None
    assert _outcome(machine, "tools/list", None) is None


def test_a_client_may_repeat_its_handshake() -> None:
    machine = _opened("legacy")
    again = machine.receive_request("initialize", {**HELLO, "protocolVersion": "2024-11-05"})
    assert again.protocol_version == "2024-11-05"
    assert _outcome(machine, "initialize", {**HELLO, "clientInfo": {"name": "c"}}) == INVALID_PARAMS
    assert machine.envelope is again


@pytest.mark.parametrize(
    ("era", "method", "params", "code"),
    [
        ("legacy", "tools/list", _meta(), INVALID_REQUEST),
        ("legacy", "server/discover", {}, METHOD_NOT_FOUND),
        ("legacy", "subscriptions/listen", {"notifications": {}}, METHOD_NOT_FOUND),
        ("legacy", "tools/call", {}, INVALID_PARAMS),
        ("legacy", "tools/list", {"_meta": []}, INVALID_PARAMS),
        ("legacy", "vendor/method", {"_meta": {"progressToken": 1.5}}, INVALID_PARAMS),
        ("legacy", "sampling/createMessage", {}, None),
        ("modern", "initialize", HELLO, UNSUPPORTED_PROTOCOL_VERSION),
        ("modern", "initialize", {**HELLO, **_meta()}, UNSUPPORTED_PROTOCOL_VERSION),
        ("modern", "tools/list", {}, INVALID_PARAMS),
        ("modern", "tools/list", _meta(protocolVersion="2099-01-01"), UNSUPPORTED_PROTOCOL_VERSION),
        ("modern", "tools/list", _meta(protocolVersion=5), INVALID_PARAMS),
        ("modern", "tools/list", _meta(clientCapabilities=[]), INVALID_PARAMS),
        ("modern", "tools/list", _meta(clientCapabilities={"sampling": 5}), INVALID_PARAMS),
        ("modern", "tools/list", _meta(clientInfo={"name": "c"}), INVALID_PARAMS),
        ("modern", "tools/list", _meta(logLevel="loud"), INVALID_PARAMS),
        ("modern", "vendor/method", _meta(clientCapabilities=[]), INVALID_PARAMS),
        ("modern", "vendor/method", _meta(), None),
        ("modern", "ping", _meta(), METHOD_NOT_FOUND),
        ("modern", "ping", _meta(clientCapabilities=[]), METHOD_NOT_FOUND),
        ("modern", "logging/setLevel", {**_meta(), "level": "info"}, METHOD_NOT_FOUND),
    ],
)
def test_a_refused_request_leaves_an_open_connection_as_it_was(
    era: str, method: str, params: Any, code: int | None
) -> None:
    machine = _opened(era)
    before = _state(machine)
    assert _outcome(machine, method, params) == code
    assert _state(machine) == before


def test_a_handshake_that_comes_too_late_is_told_the_revisions() -> None:
    with pytest.raises(MCPError) as refused:
        _opened("modern").receive_request("initialize", HELLO)
    assert refused.value.data == {"supported": [*MODERN_PROTOCOL_VERSIONS], "requested": "2025-06-18"}
    with pytest.raises(MCPError) as refused:
        _opened("modern").receive_request("initialize", {})
    assert refused.value.data == {"supported": [*MODERN_PROTOCOL_VERSIONS]}


def test_over_http_the_era_is_known_and_headers_are_compared() -> None:
    posts = ServerMachine("modern")
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "t"}
    for _ in range(2):
        assert posts.receive_request("tools/call", {**CALL, **_meta()}, headers).is_modern
        for name in headers:
            with pytest.raises(MCPError) as refused:
                posts.receive_request("tools/call", {**CALL, **_meta()}, {**headers, name: "x"})
            assert refused.value.code == HEADER_MISMATCH
    assert _outcome(posts, "initialize", {**HELLO, **_meta()}) == METHOD_NOT_FOUND
    session = ServerMachine("legacy")
    session.receive_request("initialize", HELLO)
    assert not session.receive_request("tools/list", _meta()).is_modern


def test_without_sessions_no_handshake_is_needed() -> None:
    machine = ServerMachine("legacy", version="2025-03-26", initialize_accepted=True)
    assert machine.receive_request("tools/list").protocol_version == "2025-03-26"


def test_notifications_are_dropped_before_the_handshake_and_if_they_are_malformed() -> None:
    machine = ServerMachine()
    assert not machine.receive_notification("notifications/roots/list_changed")
    machine.receive_request("initialize", HELLO)
    assert not machine.initialized
    assert machine.receive_notification("notifications/initialized")
    assert machine.initialized
    assert machine.receive_notification("notifications/roots/list_changed", {"_meta": {}})
    assert machine.receive_notification("vendor/note", {"x": [1]})
    assert not machine.receive_notification(
        "notifications/progress", {"progressToken": "t", "progress": "half"}
    )
    assert not machine.receive_notification("notifications/roots/list_changed", {"_meta": []})


def test_a_modern_connection_has_no_notifications_of_the_other_era() -> None:
    machine = _opened("modern")
    assert machine.receive_notification("notifications/cancelled", {"requestId": 1})
    assert not machine.receive_notification("notifications/cancelled", {})
    assert not machine.receive_notification("notifications/roots/list_changed")
    assert not machine.receive_notification("notifications/initialized")
    assert machine.receive_notification("vendor/note")


USUAL: dict[str, dict[str, Any]] = {
    "tools/call": CALL,
    "prompts/get": {"name": "p"},
    "resources/read": {"uri": "a://b"},
    "resources/subscribe": {"uri": "a://b"},
    "resources/unsubscribe": {"uri": "a://b"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": ""},
    },
    "logging/setLevel": {"level": "debug"},
    "subscriptions/listen": {"notifications": {}},
    "initialize": HELLO,
}
METAS: list[dict[str, Any]] = [
    {},
    {"_meta": None},
    {"_meta": []},
    {"_meta": {"progressToken": 1}},
    {"_meta": {"progressToken": []}},
    _meta(),
    {"_meta": {**META, "progressToken": "t"}},
    _meta(clientCapabilities=[]),
    _meta(clientCapabilities={"sampling": 5}),
    _meta(protocolVersion="2099-01-01"),
    _meta(protocolVersion=5),
    _meta(clientInfo=None),
    _meta(clientInfo={"version": "1"}),
    _meta(logLevel="loud"),
    {"_meta": {f"{PREFIX}/protocolVersion": "2026-07-28"}},
]
ARGUED = {(METHOD_NOT_FOUND, INVALID_PARAMS), (INVALID_PARAMS, None)}
"""True if a method that no revision has is served, the machine cannot know before the handshake; and it looks
at the envelope of such a request too, which the SDK does for methods of the protocol alone."""

ASKED = st.sampled_from([*sorted(methods.SPEC_CLIENT_METHODS), "initialize", "tools/call", "vendor/method"])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A request of any kind, often with what its method needs; or a notification."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(["notifications/initialized", "notifications/roots/list_changed"])), {}
    method = draw(ASKED)
    params = USUAL.get(method, {}) if draw(st.integers(0, 3)) else {}
    return method, {**params, **draw(st.sampled_from(METAS))}


@given(st.lists(messages(), max_size=8))
def test_the_era_is_that_of_the_first_request_and_a_refusal_changes_nothing_else(sent: list[Message]) -> None:
    machine = ServerMachine()
    first: str | None = None
    for method, params in sent:
        if method.startswith("notifications/"):
            machine.receive_notification(method, params)
            continue
        before = _state(machine)
        code = _outcome(machine, method, params)
        first = first or machine.era
        assert machine.era == first is not None
        if code is not None:
            after = dict(zip(ServerMachine.__slots__, _state(machine), strict=True))
            kept = dict(zip(ServerMachine.__slots__, before, strict=True))
            assert {**after, "era": None} == {**kept, "era": None}
        elif machine.era == "legacy":
            assert machine.initialize_accepted or method == "ping"
        else:
            assert machine.envelope.client_capabilities == params["_meta"][f"{PREFIX}/clientCapabilities"]


@given(st.lists(messages(), max_size=5))
@example([("tools/list", {}), ("initialize", HELLO), ("tools/list", {})])
@example([("server/discover", _meta(protocolVersion="2099-01-01")), ("initialize", HELLO)])
@example([("notifications/initialized", {}), ("tools/list", {})])
@example([("notifications/initialized", {}), ("server/discover", {"_meta": []})])
@example([("tools/list", _meta()), ("initialize", {**HELLO, **_meta()})])
@example([("vendor/method", {}), ("server/discover", {}), ("tools/list", _meta())])
def test_requests_are_accepted_and_refused_as_by_the_sdks_server(sent: list[Message]) -> None:
    machine = ServerMachine()
    theirs = iter(anyio.run(_sdk_outcomes, sent))
    for method, params in sent:
        if method.startswith("notifications/"):
            machine.receive_notification(method, params)
            continue
        both = (_outcome(machine, method, params), next(theirs))
        assert both[0] == both[1] or (method == "vendor/method" and both in ARGUED), (method, params)


async def _sdk_outcomes(sent: Sequence[Message]) -> list[int | None]:
    """The codes with which the SDK's server refuses requests; each is sent after the answer to the last."""
    to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    write, from_server = anyio.create_memory_object_stream[SessionMessage](16)
    found: list[int | None] = []
    async with anyio.create_task_group() as group, to_server, from_server:
        group.start_soon(_serve, read, write)
        with anyio.fail_after(30):
            for number, (method, params) in enumerate(sent):
                if method.startswith("notifications/"):
                    note = JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
                    await to_server.send(SessionMessage(note))
                    continue
                asked = JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)
                await to_server.send(SessionMessage(asked))
                answer = (await from_server.receive()).message
                assert isinstance(answer, JSONRPCResponse | JSONRPCError)
                assert answer.id == number
                code = answer.error.code if isinstance(answer, JSONRPCError) else None
                found.append(None if code == INTERNAL_ERROR else code)
        group.cancel_scope.cancel()
    return found


async def _serve(read: Any, write: Any) -> None:
    """Serve every method; a request that is accepted reaches its handler, which fails."""

    async def answer(ctx: Any, params: Any) -> Any:
        raise SDKError(INTERNAL_ERROR, "accepted")

    server = Server[Any]("s", version="1")
    for method in methods.SPEC_CLIENT_METHODS - {"initialize"}:
        model: Any = methods.MONOLITH_REQUESTS[method].model_fields["params"].annotation
        kinds = [kind for kind in getattr(model, "__args__", (model,)) if kind is not type(None)]
        server.add_request_handler(method, kinds[0], answer)
    server.add_request_handler("vendor/method", RequestParams, answer)
    await serve_dual_era_loop(server, read, write, lifespan_state={})
