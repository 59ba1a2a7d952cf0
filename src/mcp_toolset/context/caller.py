"""`Caller`: who has made a request, read off the request; `WireContext` reports to it and asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp_toolset.context.client import ServedClient, carried_by, client_of, declared_by, stream_of
from mcp_toolset.context.principal import identity_of
from mcp_toolset.context.request_state import Replay
from mcp_toolset.protocol.http_headers import SESSION
from mcp_toolset.protocol.revisions import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY
from mcp_toolset.tools.core.asking import (
    ANSWERABLE,
)
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.capability import CAPABILITIES

if TYPE_CHECKING:
    from mcp_toolset.context.incoming import RequestContext

_NOTHING: Final[Mapping[str, Any]] = {}


class Caller(ToolContext):
    """The client of one request: what it declares, what it can be asked, how much it wants to hear."""

    __slots__ = (
        "_carried",
        "_client",
        "_meta",
        "_params",
        "_replay",
        "_request",
        "_wants_progress",
        "identity",
        "modern",
        "principal",
        "protocol_version",
        "session",
    )

    capabilities = frozenset(CAPABILITIES)
    """All: middleware and hooks are the host's own code; handlers get a `HandlerContext`."""

    def __init__(self, request: RequestContext) -> None:
        self._request = request
        self.protocol_version = request.protocol_version
        modern = self.modern = request.modern
        self._client: ServedClient | None = None if modern else client_of(request)
        self.session = None if self._client is None else self._client.key
        identity = self.identity = None if request.http is None else identity_of(request.http.scope)
        self.principal = None if identity is None else identity.key
        self._params: Mapping[str, Any] = request.params or {}
        self._replay: Replay | None = None
        self._carried: Mapping[str, Any] | None = None
        raw: Any = self._params.get("_meta", _NOTHING)
        given: object = raw
        self._meta: Mapping[str, Any] = raw if isinstance(given, (dict, Mapping)) else _NOTHING
        in_process = modern and request.http is None
        self._wants_progress = "progressToken" in self._meta or in_process

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        return self._meta

    @property
    def params(self) -> Mapping[str, Any]:
        """The request's parameters, without what is this server's own of a round trip."""
        return self._params

    @property
    def client(self) -> ServedClient:
        """The program that made this request."""
        if self._client is None:
            self._client = client_of(self._request)
        return self._client

    @property
    def client_key(self) -> str | None:
        """What tells its program from every other; `None` if nothing does."""
        return stream_of() if self._client is None else self._client.key

    @property
    def share(self) -> str:
        """Whose share of what is scarce it takes: the principal's, else its program's; empty if unknown."""
        return self.principal or self.client_key or ""

    @property
    def declares(self) -> Mapping[str, Any]:
        """The requests that this client answers in the course of this call, in wire form."""
        if self.modern:
            return declared_by(self._meta.get(CLIENT_CAPABILITIES_META_KEY))
        return self.client.declares if self._request.way.can_send_request else _NOTHING

    @property
    def carried(self) -> Mapping[str, Any]:
        """The client's capabilities that mounted servers are told of: what it answers, and extensions."""
        if self.modern:
            if self._carried is None:
                self._carried = carried_by(self._meta.get(CLIENT_CAPABILITIES_META_KEY))
            return self._carried
        if self.answers:
            return self.client.carried
        return {name: each for name, each in self.client.carried.items() if name not in ANSWERABLE}

    @property
    def answers(self) -> bool:
        """Whether requests reach this client in the course of this call, as it is legacy."""
        return not self.modern and self._request.way.can_send_request

    @property
    def has_own_stream(self) -> bool:
        """Whether what is said in this call and in others of its client comes on streams of their own."""
        http = self._request.http
        return http is not None and self.answers and SESSION.decode() in http.headers

    @property
    def request_id(self) -> str:
        return "" if self._request.request_id is None else str(self._request.request_id)

    @property
    def client_info(self) -> Mapping[str, Any]:
        """What the client says that it is, in wire form; empty where it says nothing."""
        return self._request.connection.client_info or _NOTHING

    @property
    def log_level(self) -> str | None:
        """The least severe log message that this client wants; `None` while it has not said."""
        if self.modern:
            return self._meta.get(LOG_LEVEL_META_KEY)
        return self.client.log_level

    @property
    def authorization(self) -> str | None:
        """The credentials that the client sent with this request, over HTTP."""
        http = self._request.http
        return None if http is None else http.headers.get("authorization")

    @property
    def origin(self) -> str | None:
        """The address at which the client reaches this server, without a path; `None` without HTTP."""
        http = self._request.http
        host = None if http is None else http.headers.get("host")
        return f"{http.scope['scheme']}://{host}{http.scope.get('root_path', '')}" if http and host else None

    def sent(self, name: str) -> list[str]:
        """The values of a header of the HTTP request, `name` in lower case: one for each line with it."""
        http, wanted = self._request.http, name.encode()
        lines: Iterable[tuple[bytes, bytes]] = () if http is None else http.scope["headers"]
        return [value.decode("latin-1") for each, value in lines if each == wanted]

    @property
    def cancelled_because(self) -> str | None:
        """Why the client has cancelled this request, if it has, and has said so."""
        return self._request.way.reason

    @property
    def wants_progress(self) -> bool:
        """Whether the client sent a progress token (in process, modern, it needs none)."""
        return self._wants_progress
