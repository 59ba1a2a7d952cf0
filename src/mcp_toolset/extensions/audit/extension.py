"""`Audit`: a chained line for each call, start, decision, grant, login and changed definition."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial, reduce
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import anyio
import anyio.to_thread

from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.audit.audit_log import AuditLog
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.security.facts import who_fields
from mcp_toolset.tools.source import Scrubbing, ToolSource, fits

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.extension import Answer
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extensions.audit.settings import AuditSettings

TAKE_OVER: Final = 2.0  # seconds between two looks at what other processes have handed over
_STREAM: Final = "subscriptions/listen"
_READS: Final = (
    *("resources/read", "resources/subscribe", "resources/unsubscribe"),
    *("prompts/get", "completion/complete", _STREAM),
)
"""Methods whose requests are recorded; calls of tools are recorded where they are made."""


class Audit(Extension):
    """Records calls, and what else happens to one server, in `log`."""

    key: ClassVar = "audit"

    def __init__(self, log: AuditLog | str | PathLike[str]) -> None:
        """Record in a log, or in the file of this path."""
        self.log = log if isinstance(log, AuditLog) else AuditLog(log)
        self._seen: frozenset[tuple[str, str, str]] = frozenset()
        self._sources: tuple[Scrubbing, ...] = ()
        self._telling: tuple[MountedSource, ...] = ()
        self._ends: list[Callable[[], None]] = []

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """`True` is the log of the configuration."""
        if said is not None and said is not True:
            given = cast("object", said)
            if not isinstance(given, AuditLog | str | PathLike):
                raise DefinitionError(f"audit takes an AuditLog or the path of its file, not {given!r}")
            path = given.path if isinstance(given, AuditLog) else Path(cast("str", given))
            if path.is_dir():
                raise DefinitionError(
                    f"audit={str(path)!r} is a folder, so no line could be written: name a file"
                )
            return cls(cast("AuditLog | str", given))
        if stated is None:
            raise DefinitionError("audit=True does not say where to: give the path of a file")
        return cls(_log_of(cast("AuditSettings", stated)))

    @classmethod
    def event_elsewhere(cls, stated: Settings, kind: str, /, **facts: Any) -> None:
        _log_of(cast("AuditSettings", stated)).hand_over(kind, **facts)

    def bind(self, host: Host) -> Self:
        bound = type(self)(self.log)
        bound.host = host
        return bound

    def observer(self) -> AuditLog:
        return self.log

    def event(self, kind: str, /, **facts: Any) -> None:
        self.log.record(kind, **facts, **(self._digests() if kind == "reloaded" else {}))

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Hold the log open for the length of a block, and follow the grants."""
        async with AsyncExitStack() as stack:
            await anyio.to_thread.run_sync(partial(self.log.open, self._began, beside=True))
            stack.push_async_callback(self._close)
            stack.callback(self.host.grants.watch(self._of_grant))
            stack.callback(self._follow_logins, ())
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            group.start_soon(self._take_over)
            yield

    def _began(self) -> dict[str, Any]:
        server = {"server": self.host.name, "version": self.host.version}
        return {**server, **self._digests(), "toolset": version("mcp-toolset")}

    def _digests(self) -> dict[str, str]:
        """Digests of the configuration, by which its changes are seen; keyed, as a file may hold secrets."""
        path = self.host.configuration
        if path is None or not path.is_file():
            return {}
        return {"configuration": self.log.digest({"file": path.read_text(errors="replace")})}

    def intercept(self, method: str, answer: Answer) -> Answer:
        return self._recorded(answer) if method in _READS else answer

    def _recorded(self, answer: Answer) -> Answer:
        """An answer that records each request; a stream is recorded when it begins."""

        async def recorded(request: RequestContext) -> dict[str, Any]:
            record = partial(self.log.record, "request", **self._facts(request))
            if request.method == _STREAM:
                record()
                return await answer(request)
            outcome, code, began = "cancelled", None, perf_counter()
            try:
                result = await answer(request)
                outcome = "asked" if result.get("resultType") == "input_required" else "result"
                return result
            except MCPError as fault:
                outcome, code = "error", fault.code
                raise
            finally:
                record(outcome=outcome, code=code, duration=perf_counter() - began)

        return recorded

    def _facts(self, request: RequestContext) -> dict[str, Any]:
        """Who asks for what, without the values of arguments."""
        params, connection = request.params or {}, request.connection
        reference: Mapping[str, Any] = params.get("ref") or {}
        wanted: Mapping[str, Any] = params.get("notifications") or {}
        return {
            "method": request.method,
            "uri": params.get("uri") or reference.get("uri") or wanted.get("resourceSubscriptions"),
            "prompt": params.get("name") or reference.get("name"),
            "changes": sorted(kind for kind, is_wanted in wanted.items() if is_wanted is True),
            "arguments": self.log.digest(params.get("arguments") or {}) if "arguments" in params else None,
            **who_fields(request.identity),
            "client": (connection.client_info or {}).get("name"),
            "protocol": request.protocol_version,
            "session": connection.session_id,
        }

    def compiled(self, sources: Mapping[str, ToolSource]) -> None:
        """Record the definitions that differ from their pins by now, and learn which secrets to blank."""
        scrubbing = tuple(source for source in sources.values() if isinstance(source, Scrubbing))
        if scrubbing != self._sources:
            self._sources = scrubbing
            self.log.redact(self, self._scrubbed)
        self._follow_logins(tuple(one for one in sources.values() if fits(one, MountedSource)))
        changes = {
            (name, change.name, change.offered.digest): change
            for name, source in sources.items()
            for change in source.status.changes
        }
        for (server, tool, digest), change in changes.items():
            if (server, tool, digest) not in self._seen:
                self.log.record(
                    "definition_changed",
                    server=server,
                    tool=tool,
                    held=change.held,
                    reason=change.reason,
                    gained=change.gained,
                    pinned=change.pinned.digest if change.pinned else None,
                    offered=digest,
                )
        self._seen = frozenset(changes)

    async def _take_over(self) -> None:
        """Record what commands in other processes do, such as logins to mounted servers."""
        # Other processes set no event here.
        while True:
            await anyio.to_thread.run_sync(self.log.take_over)
            await anyio.sleep(TAKE_OVER)

    def _follow_logins(self, telling: tuple[MountedSource, ...]) -> None:
        if telling == self._telling:
            return
        for end in self._ends:
            end()
        self._telling = telling
        self._ends = [
            source.watch_logins(lambda facts: self.log.record("login", **facts)) for source in telling
        ]

    def _of_grant(self, what: str, /, **facts: Any) -> None:
        kind, _, owner = (facts.pop("owner", None) or "").partition(":")
        who = {"key" if kind == "principal" else "session": owner}
        # The key of a grant is a digest of its handle, so the grant cannot be used by it.
        grant = str(facts.pop("grant", None) or "")[:16]
        self.log.record("grant", outcome=what, **who, grant=grant, **facts)

    def _scrubbed(self, text: str) -> str:
        return reduce(lambda clear, source: source.scrubbed(clear), self._sources, text)

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.log.take_over)
            await anyio.to_thread.run_sync(self.log.close)


def _log_of(settings: AuditSettings) -> AuditLog:
    return AuditLog(settings.path, max_bytes=settings.max_bytes, keep=settings.keep, key=settings.key)


EXTENSION = Audit
