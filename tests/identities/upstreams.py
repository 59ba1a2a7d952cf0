"""Three HTTP servers that note who calls: `desk` (a login per user), `exchange`, `shared` (one key).

They are written with the SDK, serve both eras, and check tokens with PyJWT: nothing of them is ours.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import jwt
import mcp_types as types
from mcp.server.lowlevel import Server
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.identities.judge import Judge
from tests.support.served import hosted

KEY: Final = "the-key-that-all-callers-of-shared-use"
NOTE: Final[dict[str, Any]] = {"type": "object", "properties": {"note": {"type": "string"}}}
TAKES_USERS: Final = ("desk", "exchange")


class Upstreams:
    """The servers: what they are called, where they are, whom they take for the caller."""

    def __init__(self, judge: Judge, issuer: str, jwks_url: str) -> None:
        self.judge = judge
        self.issuer = issuer
        self.base = ""
        self._keys = jwt.PyJWKClient(jwks_url, cache_keys=True)
        self._callers: dict[str, str | None] = {}
        self.refused = 0

    def url(self, name: str) -> str:
        """Where a server is, which is the audience of its tokens too."""
        return f"{self.base}/{name}/mcp"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        apps = {
            name: self._server(name).streamable_http_app(json_response=True)
            for name in (*TAKES_USERS, "shared")
        }
        async with AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            routes = [Mount(f"/{name}", app=self._checked(name, app)) for name, app in apps.items()]
            places = [
                Route(f"/.well-known/oauth-protected-resource/{name}/mcp", self._metadata(name))
                for name in TAKES_USERS
            ]
            async with hosted(Starlette(routes=[*places, *routes])) as self.base:
                yield

    def _metadata(self, name: str) -> Any:
        async def metadata(_: Any) -> JSONResponse:
            scopes = ["tools:read"]
            told = {
                "resource": self.url(name),
                "authorization_servers": [self.issuer],
                "scopes_supported": scopes,
            }
            return JSONResponse(told)

        return metadata

    def _checked(self, name: str, app: ASGIApp) -> ASGIApp:
        async def checked(scope: Scope, receive: Receive, send: Send) -> None:
            given = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
            if self.caller(name, given) is None:
                self.refused += 1
                place = f"{self.base}/.well-known/oauth-protected-resource/{name}/mcp"
                header = {"www-authenticate": f'Bearer resource_metadata="{place}"'}
                return await JSONResponse({"error": "invalid_token"}, 401, header)(scope, receive, send)
            await app(scope, receive, send)

        return checked

    def caller(self, name: str, token: str) -> str | None:
        """The user whom a server takes for the caller, empty for the shared key; `None` is refused."""
        if name == "shared":
            if token.count(".") == 2:
                self.judge.crossing("credential", "a user's token reached the server with a shared key")
            return "" if token == KEY else None
        known = f"{name} {token}"
        if known not in self._callers:
            self._callers[known] = self._verified(name, token)
        return self._callers[known]

    def _verified(self, name: str, token: str) -> str | None:
        try:
            key = self._keys.get_signing_key(jwt.get_unverified_header(token)["kid"])
            claims = jwt.decode(
                token, key, algorithms=["RS256"], options={"verify_aud": False}, issuer=self.issuer
            )
        except jwt.PyJWTError:
            return None
        if claims["aud"] != self.url(name):
            self.judge.crossing("credential", f"a token for {claims['aud']} reached {name}")
            return None
        self.judge.keep_secret(claims["sub"], token)
        return str(claims["sub"])

    def _server(self, name: str) -> Server[Any]:
        def caller_of(ctx: Any) -> str:
            given = ctx.request.headers.get("authorization", "").removeprefix("Bearer ")
            return self.caller(name, given) or ""

        async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
            named = {f"{name}_note": f"Keeps a note in {name}.", f"{name}_find": f"Finds notes in {name}."}
            if user := caller_of(ctx):
                named[f"{name}_of_{user}"] = f"Keeps a private note of {user} in {name}."
            return types.ListToolsResult(
                tools=[
                    types.Tool(name=key, description=text, input_schema=NOTE) for key, text in named.items()
                ],
                ttl_ms=0,
                cache_scope="private",
            )

        async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            user, note = caller_of(ctx), str((params.arguments or {}).get("note", ""))
            if user:
                self.judge.belongs(user, f"call at {name}", f"{params.name} {note}")
            said = json.dumps({"server": name, "caller": user, "tool": params.name, "note": note})
            return types.CallToolResult(content=[types.TextContent(type="text", text=said)])

        async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
            user = caller_of(ctx) or "all"
            one = types.Resource(uri=f"{name}://notes/{user}", name=f"notes of {user}")
            return types.ListResourcesResult(resources=[one], ttl_ms=0, cache_scope="private")

        async def read(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
            said = types.TextResourceContents(uri=params.uri, text=f"the notes of {caller_of(ctx) or 'all'}")
            return types.ReadResourceResult(contents=[said], ttl_ms=0, cache_scope="private")

        return Server(
            name,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            on_list_resources=list_resources,
            on_read_resource=read,
        )
