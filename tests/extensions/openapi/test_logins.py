"""Logins to an API: tokens of the bridge, exchanged tokens of each caller, and a caller's own token."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.cli.commandline import CommandLine, line
from tests.extensions.openapi.shop import described, document
from tests.extensions.upstream_access.test_login import Desk, issuer
from tests.support.asking import text_of
from tests.support.authorization_server import AuthorizationServer
from tests.support.callers import Callers, client_of, until_listed
from tests.support.served import hosted, served

from mcp_toolset import OpenAPIToolset, Toolset, ToolsetServer
from mcp_toolset.auth import ClientCredentials, TokenExchange

__all__ = ["issuer", "line"]
pytestmark = [pytest.mark.anyio, pytest.mark.needs("openapi", "upstream_access")]


def guarded() -> Starlette:
    """An API that wants tokens, beside the authorization server that gives them."""

    async def pets(request: Request) -> Response:
        said = request.headers.get("authorization", "")
        app.state.seen.append(said)
        if not said.startswith("Bearer token-") or said in app.state.revoked:
            return Response(status_code=401, headers={"www-authenticate": "Bearer"})
        return JSONResponse({"whose": said})

    async def token(request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        app.state.forms.append(form)
        whose = form.get("subject_token", "bridge").rpartition("-")[2]
        number = len(app.state.forms)
        answer = {"access_token": f"token-{whose}-{number}", "token_type": "Bearer", "expires_in": 300}
        return JSONResponse(answer)

    async def metadata(request: Request) -> Response:
        url = str(request.base_url).rstrip("/")
        found = {
            "issuer": url,
            "token_endpoint": f"{url}/token",
            "authorization_endpoint": f"{url}/authorize",
        }
        return JSONResponse(found | {"response_types_supported": ["code"]})

    routes = [
        Route("/openapi.json", described),
        Route("/pets", pets),
        Route("/token", token, methods=["POST"]),
    ]
    app = Starlette(routes=[*routes, Route("/.well-known/oauth-authorization-server", metadata)])
    oauth = {"token": {"type": "oauth2", "flows": {}}}
    said = document()
    said["components"]["securitySchemes"] = oauth
    app.state.document, app.state.reads = said, []
    app.state.seen, app.state.forms, app.state.revoked = list[str](), list[dict[str, str]](), set[str]()
    return app


async def whose(server: ToolsetServer) -> str:
    result = await server.call_tool("listPets", {})
    assert not result.is_error, result.text
    return json.loads(result.text)["whose"]


async def test_g1_the_bridge_logs_in_and_again_when_its_token_is_refused() -> None:
    app = guarded()
    async with hosted(app) as url:
        auth = ClientCredentials(client_id="bridge", client_secret="s3cret-s3cret", issuer=url)
        tools = OpenAPIToolset(f"{url}/openapi.json", auth=auth)
        with anyio.fail_after(60):
            async with ToolsetServer(tools, keep=False) as server:
                first = await whose(server)
                assert await whose(server) == first == "Bearer token-bridge-1"
                app.state.revoked.add(first)
                assert await whose(server) == "Bearer token-bridge-2"
    assert len(app.state.forms) == 2


async def test_g1_the_token_of_each_caller_is_exchanged_for_the_api() -> None:
    app = guarded()
    async with hosted(app) as url:
        auth = TokenExchange(token_url=f"{url}/token", client_id="bridge", client_secret="s3cret-s3cret")
        tools = OpenAPIToolset(f"{url}/openapi.json", name="shop", auth=auth)
        callers = Callers({name: {"issuer": "https://idp"} for name in ("alice", "bob")})
        async with served(ToolsetServer(Toolset(tools), auth=callers)) as bridge:
            for name in ("alice", "bob"):
                async with client_of(bridge, name) as client:
                    await until_listed(client, {"listPets", "createPet", "pets_delete"})
                    told: Any = json.loads(text_of(await client.call_tool("listPets", {})))
                    assert told["whose"].startswith(f"Bearer token-{name}-")
    assert not any("-of-" in one for one in app.state.seen), "no caller's own token reaches the API"
    assert len(app.state.reads) == 1, "the connections of callers share the document"


async def test_g1_a_caller_s_own_token_is_sent_only_if_asked_for() -> None:
    app = guarded()
    async with hosted(app) as url:
        for forwards in (False, True):
            tools = OpenAPIToolset(f"{url}/openapi.json", name="shop", forward_authorization=forwards)
            callers = Callers({"alice": {"issuer": "https://idp"}})
            async with served(ToolsetServer(Toolset(tools), auth=callers)) as bridge:
                async with client_of(bridge, "alice") as client:
                    await client.call_tool("listPets", {})
    assert app.state.seen == ["", "Bearer token-of-alice"]


@pytest.mark.long
async def test_g1_a_person_logs_in_to_an_api_by_the_command_line(
    line: CommandLine, issuer: AuthorizationServer
) -> None:
    desk, app = Desk(line), guarded()
    app.router.routes.insert(0, Route("/pets", bearing))
    async with hosted(app) as url:
        line.write("shop.json", json.dumps(app.state.document))
        auth = {"type": "oauth", "client_id": "desk", "issuer": issuer.issuer, "scopes": ["tools:read"]}
        entry = {"openapi": {"document": "shop.json", "server": url}, "auth": auth}
        line.write("mcp.json", json.dumps({"mcpServers": {"shop": entry}}))
        assert len(json.loads(await desk.said("list", "mcp.json", "--json"))["tools"]) == 3
        before = await desk.run("call", "mcp.json", "shop_listPets")
        assert before.returncode == 1 and "mcp-toolset login shop" in before.stderr
        assert "logged in to shop" in await desk.said("login", "shop")
        assert json.loads(await desk.said("call", "mcp.json", "shop_listPets"))["bearer"]
        assert await desk.said("logout", "shop") == "shop: logged out"


async def bearing(request: Request) -> Response:
    """True if a request has a token."""
    if not request.headers.get("authorization", "").startswith("Bearer "):
        return Response(status_code=401, headers={"www-authenticate": "Bearer"})
    return JSONResponse({"bearer": True})
