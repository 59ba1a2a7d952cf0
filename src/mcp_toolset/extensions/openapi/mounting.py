"""`OpenApiTarget`: a document as the target of a mount, whose requests are answered in this process.

The document is read when the mount is opened, and again from time to time: one that has changed makes other
definitions, which the mount hears of as of any server's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.cache_folder import cache_folder
from mcp_toolset.errors import CallError, DefinitionError, UpstreamError, UpstreamUnavailableError
from mcp_toolset.extending.mounts import MountTarget
from mcp_toolset.extensions.openapi import calling, reading
from mcp_toolset.extensions.openapi.operations import Api, api_of
from mcp_toolset.protocol.dispatch import Dispatcher, Params
from mcp_toolset.protocol.json_rpc import METHOD_NOT_FOUND, MCPError
from mcp_toolset.protocol.methods import (
    MODERN_PROTOCOL_VERSIONS,
    SERVER_INFO_META_KEY,
    SUBSCRIPTION_ID_META_KEY,
)
from mcp_toolset.security.egress import is_web_address
from mcp_toolset.tools.definition import REACHES_META_KEY, ToolDefinition, thawed
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.transports.direct_calls import DirectCall, DirectCalls
from mcp_toolset.transports.stdio_client import StderrTail
from mcp_toolset.upstream.target import Link, TransportFacts

if TYPE_CHECKING:
    import httpx2

DEFER_FROM: Final = 500
"""The number of operations from which on they are found by search."""

REFRESH: Final = 3600.0
"""Seconds after which a document is read again."""

IN_PROCESS: Final = "http://app"
"""The address of an application of this process, unless its document or the program names another one."""

_FETCH: Final = 60.0  # seconds for one document
_FACTS: Final = TransportFacts(carries_headers=True)

_log = logging.getLogger("mcp_toolset.upstream")

Document = Mapping[str, Any] | str | Path


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """The settings of one API.

    Attributes:
        document: Its address, its path, its text, or itself.
        server: The address of the API, in the place of those that the document names.
        credentials: Secrets by the names of security schemes.
        files: The folder of files that arguments may name.
        defer_from: The number of operations from which on they are found by search; 0 for never.
        refresh: Seconds after which the document is read again.
        output_schemas: Whether the operations have output schemas.
    """

    document: Document = field(repr=False)
    server: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, hash=False)
    files: Path | None = None
    defer_from: int = DEFER_FROM
    refresh: float = REFRESH
    output_schemas: bool = False

    @property
    def address(self) -> str:
        """The address of the API, else that of the document; empty if neither is on the web."""
        return self.server or (self.place if is_web_address(self.place) else "")

    @property
    def place(self) -> str:
        """The address of the document; empty for one that the program gives itself."""
        source = self.document
        if isinstance(source, Mapping) or (isinstance(source, str) and reading.is_text(source)):
            return ""
        return reading.address_of(source)

    def check(self) -> None:
        """Refuse what cannot be used, before the document is read.

        Raises:
            DefinitionError: the address of the document or of the server is none.
        """
        _ = self.place
        server = self.server and reading.joined(self.server, "")
        if self.server and (not is_web_address(server) or {"?", "#"} & {*server}):
            raise DefinitionError(f"`server` is {self.server!r}, which is no http or https address")


def _parts(secret: str) -> Iterator[str]:
    """A secret, and the password of `user:password`."""
    yield secret
    yield secret.partition(":")[2]


class OpenApiTarget(MountTarget):
    """The target of a mount; several connections of one mount share what it has read."""

    __slots__ = ("options", "transport", "fault", "_known", "_lock")

    def __init__(self, options: ApiOptions, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """Read nothing yet."""
        options.check()
        self.options, self.transport = options, transport
        self.fault = ""  # why there is no application to send requests to
        self._known: tuple[float, str, Api] | None = None
        self._lock: anyio.Lock | None = None

    def link(self, name: str, headers: Mapping[str, str], hidden: tuple[str, ...], egress: Any) -> Link:
        options = self.options
        for header, value in headers.items():
            if not header.isascii() or "\n" in value or "\r" in value:
                raise DefinitionError(f"mount {name!r}: header {header!r} cannot be sent; correct it")
        return OpenApiLink(
            name,
            "http",
            url=options.address,
            headers=headers,
            hidden=(*hidden, *(part for one in options.credentials.values() for part in _parts(one))),
            egress=egress,
            defer_from=options.defer_from,
            target=self,
        )

    async def api(self, link: Link) -> tuple[str, Api]:
        """The document as it was read last, with a digest of it; read again if that is long ago.

        Raises:
            DocumentError: it was never read, and cannot be.
        """
        self._lock = self._lock or anyio.Lock()
        async with self._lock:
            known, now = self._known, anyio.current_time()
            if known is not None and now < known[0] + self.options.refresh:
                return known[1], known[2]
            try:
                read = await self._read(link)
            except reading.DocumentError as fault:
                if known is None:
                    raise
                _log.warning("%s: its document is kept as it was: %s", link.name, in_log(fault))
                read = known[1:]
            if known is not None and (new := read[1].origins - known[2].origins):
                there = ", ".join(sorted(host for _, host in new))
                told = f"its document names other hosts than at the start, {there}: it is kept as it was"
                _log.warning("%s: %s; restart to take it", link.name, in_log(told))
                read = known[1:]
            self._known = (now, *read)
            return read

    async def _read(self, link: Link) -> tuple[str, Api]:
        options = self.options
        async with calling.client(None, calling.refused(link.egress, options.place)) as http:

            async def fetch(url: str) -> str:
                try:
                    with anyio.fail_after(_FETCH):
                        return await _kept_text(http, url)
                except TimeoutError:
                    raise reading.DocumentError(f"the document was not read within {_FETCH:g} s") from None

            documents = await reading.Reader(fetch).read(options.document)
        digest = documents.digest
        if self._known is not None and self._known[1] == digest:
            return digest, self._known[2]
        origin = IN_PROCESS if self.transport is not None else ""

        def made() -> Api:
            return api_of(
                documents,
                server=options.server,
                origin=origin,
                given=options.credentials,
                output_schemas=options.output_schemas,
                headers=link.headers,
                clean=link.secrets.scrubbed,
            )

        api = await anyio.to_thread.run_sync(made, abandon_on_cancel=True)
        calling.check_credentials(api, options.credentials)
        for name, reason in api.set_aside[:20]:
            _log.warning("%s: operation %s is left out: %s", link.name, in_log(name), in_log(reason))
        return digest, api


@dataclass(frozen=True)
class OpenApiLink(Link):
    """The link to an API."""

    target: Any = field(default=None, repr=False, compare=False)

    @cached_property
    def facts(self) -> TransportFacts:
        return _FACTS

    @property
    def shown(self) -> str:
        place = cast("OpenApiTarget", self.target).options.place
        return super().shown if self.url or not place else reading.shown(place)

    @cached_property
    def identity(self) -> str:
        options = cast("OpenApiTarget", self.target).options
        source = options.place or json.dumps(options.document, sort_keys=True, default=str)
        named = json.dumps(["openapi", source, options.server])
        return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @asynccontextmanager
    async def open(self, stderr: StderrTail) -> AsyncGenerator[Dispatcher]:
        """Read the document, and answer requests by it."""
        target = cast("OpenApiTarget", self.target)
        options = target.options
        async with AsyncExitStack() as stack:
            stack.enter_context(self.secrets.kept_from_logs())
            if target.fault:
                raise UpstreamUnavailableError(self.name, target.fault, sent=False)
            try:
                digest, api = await target.api(self)
            except reading.DocumentError as fault:
                raise UpstreamUnavailableError(self.name, str(fault), sent=False) from None
            sees = calling.refused(self.egress, options.place, options.server)
            http = await stack.enter_async_context(calling.client(target.transport, sees))
            server = _Server(self, target, http, digest, api)
            yield stack.enter_context(DirectCalls(server.answer, passed=(UpstreamError,)))


class _Server:
    """Answers the requests of one connection."""

    def __init__(
        self, link: OpenApiLink, target: OpenApiTarget, http: httpx2.AsyncClient, digest: str, api: Api
    ) -> None:
        self._link, self._target, self._http = link, target, http
        self._digest, self._api = digest, api
        self._outputs: dict[str, tuple[ToolDefinition, SchemaCheck]] = {}

    async def answer(self, context: Any, method: str, params: Params) -> dict[str, Any]:
        if method == "tools/call":
            return await self._called(context, params or {})
        if method == "tools/list":
            return {"tools": [dict(one.definition) for one in self._api.operations.values()]}
        if method == "server/discover":
            return self._introduced()
        if method == "subscriptions/listen":
            return await self._told(context)
        if method == "ping":
            return {}
        raise MCPError(METHOD_NOT_FOUND, "Method not found", method)

    def _introduced(self) -> dict[str, Any]:
        api = self._api
        info = {"name": api.title, "version": api.version or "0"}
        return {
            "supportedVersions": [*MODERN_PROTOCOL_VERSIONS],
            "capabilities": {"tools": {"listChanged": True}},
            "_meta": {SERVER_INFO_META_KEY: info},
            **({"instructions": api.about} if api.about else {}),
        }

    async def _called(self, context: DirectCall, params: Mapping[str, Any]) -> dict[str, Any]:
        name, tool = params.get("name", ""), context.tool
        operation = self._api.operations.get(name)
        if operation is None or tool is None:
            return calling.error(f"Unknown tool: {name}")
        # The definition that hooks, policies and pins have judged may be that of the document before.
        if reached(tool.meta) != reached(operation.definition["_meta"]):
            return calling.error(
                f"{name} has changed, so the call did not run; list the tools again, and repeat it"
            )
        link, headers = self._link, {**self._link.headers, **self._link.about_caller}
        if forwarded := context.headers.get("authorization"):
            headers["authorization"] = forwarded
        options = self._target.options
        access = calling.Access(
            link.name, headers, options.credentials, link.auth, link.credentials, options.files
        )
        try:
            calls = calling.ApiCalls(self._api, self._http, access)
            return await calls.call(name, params.get("arguments") or {}, self._output(tool))
        except CallError as fault:
            return calling.error(str(fault))

    def _output(self, tool: ToolDefinition) -> SchemaCheck | None:
        """The schema that the structured content of a tool has to fit."""
        if tool.output_schema is None:
            return None
        known = self._outputs.get(tool.name)
        if known is None or known[0] is not tool:
            check = SchemaCheck(thawed(tool.output_schema), tool=tool.name, part="outputSchema")
            known = self._outputs[tool.name] = tool, check
        return known[1]

    async def _told(self, context: DirectCall) -> dict[str, Any]:
        """Tell the client when the document has changed."""
        meta = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        granted = {"toolsListChanged": True}
        await context.notify(
            "notifications/subscriptions/acknowledged", {"notifications": granted, "_meta": meta}
        )
        while True:
            await anyio.sleep(self._target.options.refresh)
            digest, api = await self._target.api(self._link)
            if digest != self._digest:
                self._digest, self._api = digest, api
                await context.notify("notifications/tools/list_changed", {"_meta": meta})


def reached(meta: Mapping[str, Any] | None) -> Any:
    """The request that a definition makes."""
    return thawed((meta or {}).get(REACHES_META_KEY))


async def _kept_text(http: httpx2.AsyncClient, url: str) -> str:
    """The text of a document, kept with its ETag, so that only a changed one is sent again."""
    folder = cache_folder()
    place = None if folder is None else folder / "openapi" / hashlib.sha256(url.encode()).hexdigest()[:32]
    known = {} if place is None else await anyio.to_thread.run_sync(_recalled, place)
    etag = known.get("etag", "") if "text" in known else ""
    text, etag = await calling.fetched(http, url, reading.MAX_BYTES, etag)
    if text is None:
        return known["text"]
    if etag and place is not None:
        await anyio.to_thread.run_sync(_keep, place, {"etag": etag, "text": text})
    return text


def _recalled(place: Path) -> dict[str, str]:
    try:
        found: Any = json.loads(place.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    table = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return {key: one for key, one in table.items() if isinstance(one, str)}


def _keep(place: Path, value: Mapping[str, str]) -> None:
    """Keep a text for this user alone; a folder that cannot be written is as good as none."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, path = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file)
        Path(path).replace(place)
    except (OSError, ValueError) as fault:
        _log.debug("a document was not kept: %s", fault)
