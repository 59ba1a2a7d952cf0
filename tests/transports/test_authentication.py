"""Callers who are known over real HTTP: at every door, in both eras; what they are told; how streams end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from tests.extensions.inbound_auth.issuer import AUDIENCE, public_jwk
from tests.transports.authenticated import (
    ANN,
    BOB,
    JSON,
    MODERN,
    WEAK,
    Served,
    bearer,
    legacy,
    modern,
    serving_with_auth,
)
from tests.transports.test_http_endpoint import META
from tests.transports.test_legacy_sessions import INITIALIZE

pytestmark = pytest.mark.needs("audit")


CALL = [*{**MODERN, "mcp-name": "whoami"}.items()]
LISTEN = [*{**MODERN, "mcp-method": "subscriptions/listen"}.items()]
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
METADATA = "/.well-known/oauth-protected-resource"


@dataclass
class Clock:
    """Seconds that stand still until a test moves them."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving_with_auth() as found:
        yield found


def event(stream: HTTPResponse) -> Any:
    """The next message of a stream."""
    line = stream.readline()
    while not line.startswith(b"data: {"):
        assert line, "the stream has ended"
        line = stream.readline()
    return json.loads(line.removeprefix(b"data: "))


def text_of(answer: Any) -> str:
    return answer["result"]["content"][0]["text"]


def test_p10_i1_every_door_of_both_eras_knows_its_caller(served: Served) -> None:
    for token, name in ((ANN, "ann"), (BOB, "bob"), (served.issuer.token(scope="mcp", sub="eve"), "eve")):
        found = served.asked("POST", "/mcp", [*CALL, bearer(token)], modern())
        assert text_of(json.loads(found.text)) == name
        session = served.session(token)
        found = served.asked("POST", "/mcp", [*session, bearer(token)], legacy())
        assert text_of(json.loads(found.text)) == name
        stream, posts = served.events(token)
        headers = [*JSON.items(), bearer(token)]
        assert served.asked("POST", posts, headers, INITIALIZE).status == 202
        event(stream)
        assert served.asked("POST", posts, headers, INITIALIZED).status == 202
        assert served.asked("POST", posts, headers, legacy()).status == 202
        assert text_of(event(stream)) == name
        stream.close()


def test_i1_the_scheme_is_read_in_any_case(served: Served) -> None:
    for scheme in ("bearer", "BEARER", "bEaReR"):
        headers = [*CALL, ("Authorization", f"{scheme} {ANN}")]
        assert served.asked("POST", "/mcp", headers, modern()).status == 200


def test_i1_the_metadata_is_open_to_everybody_and_names_the_issuer(served: Served) -> None:
    for path in ("", "/mcp", "/sse"):
        found = served.asked("GET", METADATA + path, [])
        said = json.loads(found.text)
        assert found.status == 200 and found.headers["access-control-allow-origin"] == "*"
        assert said == {
            "resource": AUDIENCE.replace("/mcp", path or "/mcp"),
            "authorization_servers": [served.issuer.url],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["mcp"],
        }
    assert served.asked("OPTIONS", METADATA, []).status == 204
    assert served.asked("POST", METADATA, []).status == 405
    assert served.asked("GET", METADATA + "/other", []).status == 404


def test_f32_a_challenge_names_the_metadata_and_all_scopes(served: Served) -> None:
    place = f'resource_metadata="{AUDIENCE.removesuffix("/mcp")}{METADATA}/mcp"'
    told = {
        None: f'Bearer {place}, scope="mcp"',
        "wrong": f'Bearer {place}, scope="mcp", error="invalid_token", '
        'error_description="the token is not known here"',
        WEAK: f'Bearer {place}, scope="mcp", error="insufficient_scope", '
        'error_description="the token lacks the scope mcp"',
    }
    for token, challenge in told.items():
        headers = CALL if token is None else [*CALL, bearer(token)]
        found = served.asked("POST", "/mcp", headers, modern())
        assert found.headers["www-authenticate"] == challenge
        assert found.headers["cache-control"] == "no-store"
    found = served.asked("GET", "/sse", [])
    assert f"{METADATA}/sse" in found.headers["www-authenticate"]


@pytest.mark.parametrize(
    ("headers", "status", "told"),
    [
        ([("host", "tools.example.com")], 421, "'tools.example.com' is not allowed; allow it"),
        ([("host", "x" * 500)], 421, 'with --allow-host or allowed_hosts=["NAME"]'),
        ([("origin", "https://evil.example")], 403, '--allow-origin or allowed_origins=["NAME"]'),
    ],
)
def test_f31_foreign_names_are_refused_before_tokens_and_the_option_is_named(
    served: Served, headers: list[tuple[str, str]], status: int, told: str
) -> None:
    for credentials in ([], [bearer(ANN)]):
        found = served.asked("GET", METADATA, [*headers, *credentials])
        assert found.status == status and told in found.text
        assert "www-authenticate" not in found.headers and len(found.text) < 300


def test_i1_what_a_program_adds_is_its_own_to_protect(served: Served) -> None:
    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("fine")

    served.app.router.routes.append(Route("/health", health))
    assert served.asked("GET", "/health", []).text == "fine"
    assert served.asked("GET", "/unknown", []).status == 404
    found = served.asked("POST", "/mcp/", CALL, modern())
    assert (found.status, found.headers["location"]) == (307, "/mcp")


def test_i1_keys_that_are_out_of_reach_are_a_503_and_known_tokens_go_on() -> None:
    with serving_with_auth() as served:
        served.issuer.answers["/jwks"] = 500, b""
        token = served.issuer.token(scope="mcp")
        found = served.asked("POST", "/mcp", [*CALL, bearer(token)], modern())
        assert (found.status, found.headers["retry-after"]) == (503, "5")
        assert served.asked("POST", "/mcp", [*CALL, bearer(ANN)], modern()).status == 200


def listening(served: Served, token: str) -> HTTPResponse:
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    return served.opened("POST", "/mcp", [*LISTEN, bearer(token)], message)


def standing(served: Served, token: str) -> HTTPResponse:
    return served.opened("GET", "/mcp", [*served.session(token), bearer(token)])


def of_sse(served: Served, token: str) -> HTTPResponse:
    return served.events(token)[0]


@pytest.mark.parametrize("opened", [listening, standing, of_sse])
def test_i1_an_open_stream_ends_when_its_token_expires(opened: Callable[[Served, str], HTTPResponse]) -> None:
    clock = Clock()
    with serving_with_auth(clock) as served:
        token = served.issuer.token(scope="mcp", exp=(expiry := 4_000_000_000))
        clock.now = expiry + 30 - 0.1
        stream = opened(served, token)
        assert stream.status == 200
        clock.now += 1
        while stream.readline():
            pass
        assert served.asked("POST", "/mcp", [*CALL, bearer(token)], modern()).status == 401


@pytest.mark.parametrize("opened", [listening, standing, of_sse])
def test_i1_open_streams_of_a_caller_end_when_it_is_revoked(
    opened: Callable[[Served, str], HTTPResponse],
) -> None:
    with serving_with_auth() as served:
        stream = opened(served, ANN)
        served.soon(served.auth.revoke, "ann")
        while stream.readline():
            pass
        assert served.asked("POST", "/mcp", [*CALL, bearer(ANN)], modern()).status == 401
        assert served.asked("POST", "/mcp", [*CALL, bearer(BOB)], modern()).status == 200


def test_i1_tokens_of_a_key_that_is_withdrawn_are_refused_at_the_next_fetch() -> None:
    with serving_with_auth() as served:
        token, new = served.issuer.token(scope="mcp"), served.issuer.token("k2", scope="mcp")
        assert served.asked("POST", "/mcp", [*CALL, bearer(token)], modern()).status == 200
        stream = listening(served, token)
        served.issuer.keys = [public_jwk("k2")]
        served.keys.move(31)
        assert served.asked("POST", "/mcp", [*CALL, bearer(new)], modern()).status == 200
        assert served.asked("POST", "/mcp", [*CALL, bearer(token)], modern()).status == 401
        while stream.readline():
            pass


def test_i1_a_mounted_application_says_where_its_own_metadata_is() -> None:
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    from mcp_toolset import Toolset, ToolsetServer
    from mcp_toolset.auth import Authenticator, StaticTokens

    auth = Authenticator(StaticTokens({"ann": ANN}), authorization_servers=["https://idp.example.com"])
    app = ToolsetServer(Toolset(), auth=auth).http_app()
    host = Starlette(routes=[Mount("/tools", app=app)], lifespan=app.router.lifespan_context)
    with TestClient(host, base_url="http://127.0.0.1:8000") as client:
        place = client.post("/tools/mcp").headers["www-authenticate"].split('"')[1]
        assert place == f"http://127.0.0.1:8000/tools{METADATA}/mcp"
        assert client.get(place).json()["resource"] == "http://127.0.0.1:8000/tools/mcp"
        assert client.get("/tools/sse").status_code == 401
