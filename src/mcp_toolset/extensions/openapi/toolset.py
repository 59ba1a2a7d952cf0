"""`OpenAPIToolset`: the operations of an OpenAPI document as tools."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import anyio
import anyio.abc

from mcp_toolset.catalog.pins.lockfile import LockEntry
from mcp_toolset.catalog.pins.policy import PinPolicy
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.mounts import MountAuth
from mcp_toolset.extensions.openapi.mounting import DEFER_FROM, REFRESH, ApiOptions, Document, OpenApiTarget
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.upstream.toolset import DEFAULT_START_TIMEOUT, DEFAULT_TIMEOUT, RemoteToolset

if TYPE_CHECKING:
    import httpx2


_NAME: Final = 32
_CLOSING: Final = 5.0  # seconds that an application may take to close

_log = logging.getLogger("mcp_toolset.upstream")


class OpenAPIToolset(RemoteToolset):
    """The operations of an OpenAPI document as tools: each call is a request to the API.

    It is a mounted server like any other: it has a status, its definitions are pinned, and hooks, policies,
    limits and search treat its tools like those of other servers. See docs/openapi.md.
    """

    def __init__(
        self,
        document: Document,
        *,
        name: str = "",
        server: str = "",
        headers: Mapping[str, str] | None = None,
        credentials: Mapping[str, str] | None = None,
        auth: MountAuth | httpx2.Auth | None = None,
        transport: httpx2.AsyncBaseTransport | Callable[..., Any] | None = None,
        files: str | Path | None = None,
        egress: Iterable[str] = (),
        defer_from: int = DEFER_FROM,
        refresh: float = REFRESH,
        output_schemas: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        start_timeout: float = DEFAULT_START_TIMEOUT,
        pins: PinPolicy | None = None,
        lock: str | Path | LockEntry | None = None,
        hidden: Iterable[str] = (),
        **others: Any,
    ) -> None:
        """Describe the API; nothing is read or sent before `async with`.

        Args:
            document: A document of OpenAPI 3.0, 3.1 or Swagger 2.0: its address, its path, its text in JSON
                or YAML, or itself, such as `app.openapi()`.
            name: The name of the mount; by default, from the address, the path or the title.
            server: The address of the API, in the place of those that the document names.
            headers: Sent with every request to the API; the document itself is read without them.
            credentials: Secrets by the names of security schemes of the document: a key, a token, or
                `user:password` for `basic`.
            auth: Gets and renews credentials for the API, as for `RemoteToolset`.
            transport: The transport of requests: one of httpx2, or an ASGI application of this process,
                whose lifespan then is that of the toolset.
            files: The folder of files that arguments may name by their paths in it; by default there is
                none, and files are given as `data:` URIs.
            egress: Hosts and networks to which requests may go, though they are at loopback, link-local or
                private addresses, and though neither the document is there nor `server`.
            defer_from: The number of operations from which on they are found by search; 0 for never.
            refresh: Seconds after which the document is read again.
            output_schemas: Whether tools have output schemas, which the answers of the API are made to fit.
            timeout: Seconds that one call may take.
            start_timeout: Seconds that reading the document may take.
            pins: The reaction to definitions that change.
            lock: A lock file that `mcp-toolset pin` wrote.
            hidden: Values that must not be shown.
            others: Extensions of the mount, such as `retries=2`; see `MountKeywords`.

        Raises:
            DefinitionError: the address of the document or the server is none, or as for `RemoteToolset`.
        """
        app = transport if transport is not None and not hasattr(transport, "handle_async_request") else None
        if app is not None and not callable(app):
            raise DefinitionError(
                f"`transport` is {type(transport).__name__}, which is neither a transport of httpx2 nor an "
                "application of ASGI; the address of an API is its `server`"
            )
        self._app = cast("Any", app)
        self._state: dict[str, Any] = {}
        options = ApiOptions(
            document,
            server.rstrip("/"),
            dict(credentials or {}),
            Path(files) if files else None,
            defer_from,
            refresh,
            output_schemas,
        )
        self._start_timeout = start_timeout
        self._target = target = OpenApiTarget(
            options, cast("Any", transport) if app is None else _transport_to(self._asgi)
        )
        super().__init__(
            target,
            name=name or _name_of(document),
            headers=headers,
            auth=auth,
            egress=egress,
            timeout=timeout,
            start_timeout=start_timeout,
            pins=pins,
            lock=lock,
            hidden=hidden,
            **others,
        )

    async def _asgi(self, scope: Any, receive: Any, send: Any) -> None:
        """The application, with the state of its lifespan."""
        await self._app({**scope, "state": dict(self._state)} if self._state else scope, receive, send)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled, within the lifespan of an application that was given."""
        lifespan = getattr(getattr(self._app, "router", None), "lifespan_context", None)
        if lifespan is None:
            return await super().run(task_status=task_status)
        living, over = anyio.CancelScope(shield=True), anyio.Event()
        async with anyio.create_task_group() as group:
            begun = anyio.Event()
            group.start_soon(self._live, lifespan(self._app), living, begun, over)
            try:
                with anyio.move_on_after(self._start_timeout):
                    await begun.wait()
                await super().run(task_status=task_status)
            finally:
                # What stands behind the `yield` of a lifespan is to run though the toolset is cancelled.
                over.set()
                living.deadline = anyio.current_time() + (0 if self._target.fault else _CLOSING)

    async def _live(
        self, lifespan: Any, living: anyio.CancelScope, begun: anyio.Event, over: anyio.Event
    ) -> None:
        """The lifespan, in a task of its own: it may have task groups, which begin and end in one task."""
        self._target.fault = f"the application has not started within {self._start_timeout:g} s"
        with living:
            try:
                async with lifespan as state:
                    self._state, self._target.fault = dict(state or {}), ""
                    begun.set()
                    await over.wait()
            # An application may fail in as many ways as there are applications; others go on without it.
            except Exception as fault:
                told = f"{type(fault).__name__}: {fault}"
                if self._target.fault:
                    self._target.fault = f"the application did not start: {told}"
                _log.warning("%s: the application has failed: %s", self.source_name, in_log(told))
                begun.set()
        if living.cancelled_caught:
            _log.warning("%s: the lifespan of the application was cut off", self.source_name)


def _transport_to(app: Any) -> httpx2.AsyncBaseTransport:
    import httpx2

    return httpx2.ASGITransport(app, raise_app_exceptions=False)


def _name_of(document: Document) -> str:
    """A name for an API, from the address, the path or the title of its document."""
    if isinstance(document, Mapping):
        info: Any = document.get("info")
        text = str(cast("dict[str, Any]", info).get("title", "")) if isinstance(info, dict) else ""
    elif isinstance(document, Path) or "://" not in document:
        text = "" if "\n" in str(document) or str(document)[:1] == "{" else Path(document).stem
    else:
        labels = (urlsplit(document).hostname or "").split(".")
        text = labels[-2] if len(labels) > 1 and not labels[-1].isdecimal() else "-".join(labels)
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:_NAME] or "api"
