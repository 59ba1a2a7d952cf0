"""`AuthenticationGate`: the check of who sends a request over HTTP, refusals, and metadata with the issuers.

The refusals are those of RFC 6750, the metadata that of RFC 9728. Nothing here logs or repeats a token.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import anyio
from starlette.types import Scope, Send

from mcp_toolset.context.connection import identity_of
from mcp_toolset.errors import ToolsetError, sole
from mcp_toolset.security.authenticator import Authenticator, Refusal
from mcp_toolset.security.egress import is_this_machine
from mcp_toolset.security.facts import who_fields
from mcp_toolset.tools.call import Identity
from mcp_toolset.transports.http.arrival import ArrivingRequest
from mcp_toolset.transports.http.messages import JSON, METHOD, Head, Headers, reply

METADATA_PATH: Final = "/.well-known/oauth-protected-resource"

_MET: Final = 4096
"""Identities of verified tokens that are remembered, so that each is one login."""

_MCP: Final = "/mcp"
_SSE: Final = "/sse"
_CREDENTIALS: Final = b"authorization"
_LISTEN: Final = b"subscriptions/listen"
_RETRY: Final = b"5"
_QUERY: Final = Refusal(400, "invalid_request", "a token is sent in the Authorization header, never in a URL")
_REPEATED: Final = Refusal(400, "invalid_request", "the request has more than one Authorization header")
_OPEN: Final[Headers] = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"*"),
]

Current = Callable[[], Authenticator | None]
NoteForeign = Callable[[Scope, str], None]
"""Is told of a request with the id of a session that its caller has not open."""


class Told(Protocol):
    """A callable that is told of logins and refusals, and must not wait."""

    def __call__(self, event: str, /, **facts: Any) -> object: ...


class AuthenticationGate:
    """Lets requests pass whose callers are known, and refuses all others before their bodies are read."""

    def __init__(self, current: Current, told: Told | None = None) -> None:
        """Ask `current` at each request, as a configuration may be reloaded; tell `told` who comes."""
        self._current = current
        self._told = told
        self._met: OrderedDict[int, Identity] = OrderedDict()

    @property
    def is_on(self) -> bool:
        return self._current() is not None

    def admits(self, scope: Scope, head: Head) -> bool:
        """True if a request may pass at once: every caller may call, or its token is known; no streams."""
        auth = self._current()
        if auth is None:
            return True
        credentials = head.fields.get(_CREDENTIALS)
        if credentials is None or head.repeats or scope.get("query_string") or _is_stream(scope, head):
            return False
        found = auth.recall(credentials)
        if found is None or (self._told is not None and id(found) not in self._met):
            return False
        scope["user"] = found
        return True

    async def take(
        self, request: ArrivingRequest, scope: Scope, head: Head, app: Callable[[], Awaitable[None]]
    ) -> None:
        """Have `app` take a request, with its caller in the scope; or refuse the request.

        An open stream ends when the caller has no valid token any more.
        """
        auth = self._current()
        if auth is None:
            return await app()
        credentials = head.fields.get(_CREDENTIALS)
        found = _misplaced(scope, head) or await auth.identify(credentials)
        if isinstance(found, Refusal):
            self.note(scope, found.status, found.error, found.description)
            return await _refuse(auth, found, scope, head, request.send)
        if self._told is not None and id(found) not in self._met:
            self._meet(found, scope, self._told)
        scope["user"] = found
        if credentials is None or not _is_stream(scope, head):
            return await app()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_end_when_refused, auth, credentials, found, request)
                await app()
                group.cancel_scope.cancel()
        except BaseExceptionGroup as fault:
            raise sole(fault) from None

    def note(self, scope: Scope, status: int, error: str | None, reason: str, **facts: Any) -> None:
        """Tell of a request that is refused for who sends it, or from where."""
        if self._told is not None:
            self._told("refused", **_facts(scope), status=status, error=error, reason=reason, **facts)

    def note_foreign_session(self, scope: Scope, session: str) -> None:
        """Tell of a request with the id of a session that its caller has not open."""
        who = identity_of(scope)
        if who is not None:
            reason = "the caller has no open session with this id"
            self.note(scope, 404, "session not found", reason, **who_fields(who), session=session)

    def _meet(self, identity: Identity, scope: Scope, told: Told) -> None:
        """Tell that a new token was verified; the identity is kept, so that its id stays its own."""
        self._met[id(identity)] = identity
        if len(self._met) > _MET:
            self._met.popitem(last=False)
        told(
            "login", **who_fields(identity), issuer=identity.issuer, expires=identity.expires, **_facts(scope)
        )

    async def tell(self, path: str, scope: Scope, head: Head, send: Send) -> bool:
        """Answer a request for the metadata of this server; `False` if there is none at this path."""
        auth = self._current()
        door = path.removeprefix(METADATA_PATH)
        if auth is None or not auth.authorization_servers or door not in ("", _MCP, _SSE):
            return False
        if scope["method"] == "OPTIONS":
            await reply(send, 204, headers=_OPEN)
        elif scope["method"] not in ("GET", "HEAD"):
            await reply(send, 405, headers=[(b"allow", b"GET")])
        else:
            base = _base(auth, scope, head)
            resource = base + _SSE if door == _SSE else auth.resource or base + _MCP
            metadata = {
                "resource": resource,
                "authorization_servers": auth.authorization_servers,
                "bearer_methods_supported": ["header"],
                **({"scopes_supported": auth.required_scopes} if auth.required_scopes else {}),
            }
            await reply(send, 200, json.dumps(metadata).encode(), JSON, _OPEN)
        return True


def _facts(scope: Scope) -> dict[str, Any]:
    client = scope.get("client")
    return {"method": scope["method"], "path": scope["path"], "address": client[0] if client else None}


def check_address(host: str, *, authenticated: bool, insecure: bool) -> None:
    """Check that only known callers can reach a server from other machines."""
    if not (authenticated or insecure or is_this_machine(host)):
        raise ToolsetError(
            f"not listening on {host or 'all addresses'}: without authentication every program that reaches "
            "it could call every tool; say who may call (`auth=…`, `auth` in the section `toolset` of the "
            "configuration, --auth-token-env, or --issuer with --audience), listen on 127.0.0.1, or allow it "
            "with --insecure (`insecure=True`)"
        )


async def _end_when_refused(
    auth: Authenticator, credentials: bytes, identity: Identity, request: ArrivingRequest
) -> None:
    await auth.until_refused(credentials, identity)
    request.scope.cancel()


def _is_stream(scope: Scope, head: Head) -> bool:
    """True if the response stays open for what comes later; a call that has begun is let end."""
    return scope["method"] == "GET" or head.fields.get(METHOD) == _LISTEN


def _misplaced(scope: Scope, head: Head) -> Refusal | None:
    if head.repeats and sum(name == _CREDENTIALS for name, _ in head.all) > 1:
        return _REPEATED
    query: bytes = scope.get("query_string", b"")
    if query:
        named = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        if any(name.strip().lower() == "access_token" for name, _ in named):
            return _QUERY
    return None


async def _refuse(auth: Authenticator, refusal: Refusal, scope: Scope, head: Head, send: Send) -> None:
    error = refusal.error or "unauthorized"
    body = json.dumps({"error": error, "error_description": refusal.description}).encode()
    headers: Headers = [(b"cache-control", b"no-store")]
    if refusal.status == 503:
        headers.append((b"retry-after", _RETRY))
    else:
        headers.append((b"www-authenticate", _challenge(auth, refusal, scope, head).encode("latin-1")))
    await reply(send, refusal.status, body, JSON, headers)


def _challenge(auth: Authenticator, refusal: Refusal, scope: Scope, head: Head) -> str:
    told: dict[str, str] = {}
    if auth.authorization_servers:
        door = _SSE if scope["path"].endswith(_SSE) else _MCP
        told["resource_metadata"] = _base(auth, scope, head) + METADATA_PATH + door
    if auth.required_scopes:
        told["scope"] = " ".join(auth.required_scopes)
    if refusal.error:
        told |= {"error": refusal.error, "error_description": refusal.description}
    told = told or {"realm": "mcp"}
    return "Bearer " + ", ".join(f'{name}="{_quotable(text)}"' for name, text in told.items())


def _quotable(text: str) -> str:
    """What a quoted text of a header may hold (RFC 6750, section 3)."""
    return "".join(each if " " <= each <= "~" and each not in '"\\' else "'" for each in text)


def _base(auth: Authenticator, scope: Scope, head: Head) -> str:
    """The URL that this application is reached at, without the path of a transport."""
    if auth.resource:
        return auth.resource.rstrip("/").removesuffix(_MCP)
    host = head.fields.get(b"host", b"").decode("latin-1")
    return f"{scope['scheme']}://{host}{scope.get('root_path', '').rstrip('/')}"
