"""`ClientHandshake`: what is asked of servers of every kind, beside the SDK's client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp import MCPError as SDKError
from mcp.client import _probe as sdk
from mcp.client.session import ClientSession
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import LATEST_MODERN_VERSION

from mcp_toolset.protocol.handshake import ClientHandshake
from mcp_toolset.protocol.json_rpc import MCPError

PREFIX = "io.modelcontextprotocol"
CLIENT = {"name": "c", "version": "1"}
SERVER = {"name": "s", "version": "2", "title": "S"}
MODERN: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}},
    "instructions": "Be kind.",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {f"{PREFIX}/serverInfo": SERVER, "example.com/x": 1},
}
LEGACY: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": SERVER,
    "instructions": "Be kind.",
}
Answer = dict[str, Any] | MCPError


def _offers(*versions: Any) -> MCPError:
    return MCPError(UNSUPPORTED_PROTOCOL_VERSION, "no", {"supported": list(versions), "requested": "x"})


class Server:
    """Answers each method from a list, the last answer again and again, and keeps what it was asked."""

    def __init__(self, **answers: Answer | list[Answer]) -> None:
        self.asked: list[str] = []
        self._answers = {name: each if isinstance(each, list) else [each] for name, each in answers.items()}

    def answer(self, method: str) -> dict[str, Any]:
        """The result; a method without an answer is not known."""
        self.asked.append(method)
        answers = self._answers.get(method.rpartition("/")[2], [MCPError(METHOD_NOT_FOUND, "unknown")])
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, MCPError):
            raise found
        return found


def _met(server: Server, *, eras: Any = "auto", known_legacy: bool = False) -> ClientHandshake:
    """A handshake that is settled."""
    handshake = ClientHandshake(CLIENT, {"roots": {}}, eras=eras, known_legacy=known_legacy)
    while (request := handshake.request) is not None:
        try:
            result = server.answer(request.method)
        except MCPError as error:
            handshake.refused(error)
        else:
            handshake.answered(result)
    return handshake


def test_a_modern_server_is_asked_once_and_introduces_itself() -> None:
    server = Server(discover=MODERN)
    met = _met(server).server
    assert met is not None
    assert (met.protocol_version, met.is_modern, met.server_info) == ("2026-07-28", True, SERVER)
    assert (met.capabilities, met.instructions) == (MODERN["capabilities"], "Be kind.")
    assert met.meta == MODERN["_meta"]
    assert server.asked == ["server/discover"]


def test_a_legacy_server_is_asked_for_its_handshake() -> None:
    server = Server(initialize=LEGACY)
    met = _met(server).server
    assert met is not None
    assert (met.protocol_version, met.is_modern, met.server_info) == ("2025-06-18", False, SERVER)
    assert server.asked == ["server/discover", "initialize"]
    known = Server(discover=MODERN, initialize=LEGACY)
    assert _met(known, known_legacy=True).server == met
    assert known.asked == ["initialize"]


def test_requests_say_who_asks() -> None:
    discover = ClientHandshake(CLIENT, {"roots": {}}).request
    assert discover is not None
    assert discover.params["_meta"] == {
        f"{PREFIX}/protocolVersion": LATEST_MODERN_VERSION,
        f"{PREFIX}/clientInfo": CLIENT,
        f"{PREFIX}/clientCapabilities": {"roots": {}},
    }
    assert discover.headers == {
        "mcp-protocol-version": LATEST_MODERN_VERSION,
        "mcp-method": "server/discover",
    }
    initialize = ClientHandshake(CLIENT, {"roots": {}}, eras="legacy").request
    assert initialize is not None
    assert initialize.params == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": CLIENT,
    }
    assert initialize.headers == {}


@pytest.mark.parametrize(
    ("server", "asked"),
    [
        (Server(discover=[_offers("2026-07-28"), MODERN]), ["server/discover"] * 2),
        (
            Server(discover=_offers("2026-07-28"), initialize=LEGACY),
            ["server/discover", "server/discover", "initialize"],
        ),
        (
            Server(discover=[MCPError(REQUEST_TIMEOUT, "slow"), MODERN], initialize=_offers("2026-07-28")),
            ["server/discover", "initialize", "server/discover"],
        ),
        (Server(discover={**MODERN, "supportedVersions": ["2025-11-25"]}, initialize=LEGACY), None),
        (Server(discover={"tools": []}, initialize=LEGACY), None),
        (Server(discover=_offers("2099-01-01"), initialize=LEGACY), None),
        (Server(discover=MCPError(UNSUPPORTED_PROTOCOL_VERSION, "no", "x"), initialize=LEGACY), None),
    ],
)
def test_another_request_is_tried_as_long_as_one_is_left(server: Server, asked: list[str] | None) -> None:
    assert _met(server).server is not None
    assert server.asked == (asked or ["server/discover", "initialize"])


@pytest.mark.parametrize(
    ("server", "eras", "code", "said"),
    [
        (Server(), "auto", METHOD_NOT_FOUND, "unknown"),
        (Server(), "modern", METHOD_NOT_FOUND, "unknown (it does not speak 2026-07-28"),
        (Server(), "legacy", METHOD_NOT_FOUND, "unknown (it speaks no revision up to"),
        (Server(discover={}), "modern", INTERNAL_ERROR, "it does not speak 2026-07-28"),
        (
            Server(discover={**MODERN, "supportedVersions": []}),
            "modern",
            UNSUPPORTED_PROTOCOL_VERSION,
            "it does not speak 2026-07-28",
        ),
        (
            Server(initialize={**LEGACY, "protocolVersion": "1999-01-01"}),
            "auto",
            INTERNAL_ERROR,
            "it answered the handshake with a revision that is not known: 1999-01-01",
        ),
        (
            Server(initialize={"protocolVersion": "2025-11-25"}),
            "auto",
            INTERNAL_ERROR,
            "its answer to initialize does not follow the protocol: capabilities is missing",
        ),
        (
            Server(initialize={**LEGACY, "serverInfo": {"name": 5}}),
            "auto",
            INTERNAL_ERROR,
            "its answer to initialize does not follow the protocol: serverInfo.name must be a string",
        ),
        (Server(initialize=MCPError(-32000, "busy")), "legacy", -32000, "busy"),
        (
            Server(initialize=_offers("2026-07-28"), discover={}),
            "auto",
            INTERNAL_ERROR,
            "its answer to server/",
        ),
    ],
)
def test_what_a_server_cannot_do_is_said(server: Server, eras: Any, code: int, said: str) -> None:
    with pytest.raises(MCPError) as refused:
        _met(server, eras=eras)
    assert refused.value.code == code
    assert refused.value.message.startswith(said)


def test_that_the_connection_has_ended_is_said_as_it_is() -> None:
    ended = MCPError(CONNECTION_CLOSED, "Connection closed")
    with pytest.raises(MCPError) as refused:
        _met(Server(discover=ended), eras="modern")
    assert refused.value is ended


def test_a_server_that_is_known_to_be_legacy_is_never_probed() -> None:
    server = Server(initialize=_offers("2026-07-28"), discover=MODERN)
    with pytest.raises(MCPError, match="no"):
        _met(server, known_legacy=True)
    assert server.asked == ["initialize"]


def test_a_name_that_is_malformed_is_as_good_as_none() -> None:
    met = _met(Server(discover={**MODERN, "_meta": {f"{PREFIX}/serverInfo": {"name": 5}}})).server
    assert met is not None
    assert met.server_info is None


DISCOVERED: list[Answer] = [
    MODERN,
    {**MODERN, "supportedVersions": ["2025-11-25"]},
    {**MODERN, "supportedVersions": ["2099-01-01", "2026-07-28"]},
    {**MODERN, "supportedVersions": "2026-07-28"},
    {**MODERN, "capabilities": []},
    {**MODERN, "capabilities": {"tools": {"listChanged": []}}},
    {**MODERN, "instructions": 5},
    {},
    _offers("2026-07-28"),
    _offers("2025-11-25"),
    _offers("2026-07-28", "2025-11-25"),
    MCPError(UNSUPPORTED_PROTOCOL_VERSION, "no"),
    MCPError(METHOD_NOT_FOUND, "unknown"),
    MCPError(REQUEST_TIMEOUT, "slow"),
]
HANDSHAKEN: list[Answer] = [
    LEGACY,
    {**LEGACY, "protocolVersion": "2025-11-25"},
    {**LEGACY, "protocolVersion": "2026-07-28"},
    {**LEGACY, "serverInfo": {"name": "s"}},
    {**LEGACY, "capabilities": None},
    {},
    _offers("2026-07-28"),
    MCPError(UNSUPPORTED_PROTOCOL_VERSION, "no"),
    MCPError(METHOD_NOT_FOUND, "unknown"),
    MCPError(INVALID_REQUEST, "no"),
]


class Connection:
    """A server as the SDK's session reaches it."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        try:
            return self.server.answer(method)
        except MCPError as error:
            raise SDKError(error.code, error.message, error.data) from None

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        pass

    async def run(self, *_: Any, task_status: Any) -> None:
        task_status.started()
        await anyio.sleep_forever()


async def _sdk_meets(server: Server) -> str | None:
    """The revision that the SDK's client agrees upon; `None` if it gives up."""
    with anyio.fail_after(30):
        dispatcher: Any = Connection(server)
        async with ClientSession(dispatcher=dispatcher) as session:
            try:
                await sdk.negotiate_auto(session)
            # Whatever its models and its checks raise.
            except Exception:
                return None
            return session.protocol_version


@given(
    st.lists(st.sampled_from(DISCOVERED), min_size=1, max_size=2),
    st.lists(st.sampled_from(HANDSHAKEN), min_size=1, max_size=2),
)
@example([MCPError(REQUEST_TIMEOUT, "slow"), MODERN], [_offers("2026-07-28")])
def test_a_server_is_met_as_by_the_sdks_client(discovered: list[Answer], handshaken: list[Answer]) -> None:
    theirs = Server(discover=list(discovered), initialize=list(handshaken))
    agreed = anyio.run(_sdk_meets, theirs)
    ours = Server(discover=list(discovered), initialize=list(handshaken))
    try:
        met = _met(ours).server
    except MCPError:
        met = None
    if theirs.asked.count("initialize") == 2:
        # It has refused both, and the SDK tries the handshake once more; here it is asked for its revisions.
        late = theirs.asked.index("initialize") + 2
        assert ours.asked[:late] == theirs.asked[:late]
        return
    # Where a server has named modern revisions in vain the SDK gives up; here what is left is tried.
    assert ours.asked[: len(theirs.asked)] == theirs.asked
    if agreed is not None or ours.asked == theirs.asked:
        assert (met.protocol_version if met else None) == agreed
