"""`SingleLink`: a server that only one replica may have; the other replicas call it through that one.

The owner holds a lease in the shared store and renews it. It stops the server well before its lease can end,
so that two replicas never have it at a time. Another replica takes the lease once it is free, and reaches the
server through its owner until then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.config.tables import SessionRule
from mcp_toolset.errors import CallError, DefinitionError, StoreError, UpstreamUnavailableError
from mcp_toolset.protocol import dispatch
from mcp_toolset.protocol.json_rpc import CLOSED, METHOD_NOT_FOUND, REQUEST_TIMEOUT, MCPError, RequestTimedOut
from mcp_toolset.transports.stdio_client import StderrTail
from mcp_toolset.upstream.target import Link

if TYPE_CHECKING:
    from mcp_toolset.shared.state import SharedState

LEASE: Final = 9.0
"""Seconds after the last renewal in which no other replica may take a lease."""

MARGIN: Final = 6.0
"""Seconds of these that the owner has for stopping the server."""

RENEWAL: Final = 1.0
"""Seconds between two renewals, and between two looks at the owner."""

LONGEST: Final = 3600.0
"""Seconds that a request to the owner may take, if its sender sets no time."""

_HANDSHAKE: Final = ("initialize", "server/discover")
_NO_CALL: Final = cast("dispatch.DispatchContext", None)
"""The context of a notification that is of no call, which sessions do not look at."""

_log = logging.getLogger("mcp_toolset.upstream")


@dataclass(frozen=True)
class SingleLink(Link):
    """The link to a server that is reached through its owner, where replicas share a state.

    Attributes:
        found: The state that the replicas share, once it is known; one process alone needs none.
    """

    found: list[SharedState] = field(default_factory=list["SharedState"], repr=False, compare=False)

    def share(self, shared: SharedState) -> None:
        self.found[:] = [shared]

    @asynccontextmanager
    async def open(self, stderr: StderrTail) -> AsyncGenerator[dispatch.Dispatcher]:
        """Start the server if it is this replica's, else reach it through its owner."""
        if not self.found:
            async with super().open(stderr) as plain:
                yield plain
            return
        lease = Lease(self.found[0], f"{self.name} {self.identity}", self.name)
        owner = await lease.taken()
        if owner:
            yield ThroughOwner(lease, owner)
            return
        try:
            async with super().open(stderr) as inner:
                _log.info("%s: this replica has it, by lease %d", self.name, lease.number)
                yield Owned(inner, lease)
        finally:
            with anyio.CancelScope(shield=True):
                await lease.release()


class Lease:
    """The lease of one server, as one replica sees it."""

    def __init__(self, shared: SharedState, name: str, server: str) -> None:
        self.shared = shared  # what the replicas share
        self.name = name  # its name in the store
        self.server = server  # the name of the mount, for messages
        self.number = 0  # its number, which grows with each owner
        self._until = 0.0

    @property
    def topic(self) -> str:
        return f"single {self.name}"

    @property
    def is_held(self) -> bool:
        """True if the server may be used here at this moment."""
        return time.monotonic() < self._until

    async def taken(self) -> str:
        """Take the lease: empty, or the replica that has it and lives."""
        until = anyio.current_time() + LEASE + RENEWAL
        try:
            while not await self.renew():
                owner = await self.shared.leases.holder(self.name)
                if owner and owner != self.shared.replicas.own and await self.shared.replicas.lives(owner):
                    return owner
                if anyio.current_time() > until:
                    raise UpstreamUnavailableError(
                        self.server, "its owner is gone, and the lease of it has not ended", sent=False
                    )
                await anyio.sleep(RENEWAL / 4)
        except StoreError as fault:
            raise UpstreamUnavailableError(self.server, str(fault), sent=False) from None
        return ""

    async def renew(self) -> bool:
        """Take or renew the lease; false if another replica has it, or it was another's meanwhile."""
        asked = time.monotonic()
        number = await self.shared.leases.take(self.name, ttl=LEASE)
        if not number or (self.number and number != self.number):
            self._until = 0.0
            return False
        self.number, self._until = number, asked + LEASE - MARGIN
        return True

    async def keep(self) -> None:
        """Renew the lease until it is lost."""
        is_mine = True
        while is_mine and self.is_held:
            # No wait is longer than the lease may be used, not even that for the store.
            with anyio.move_on_after(self._until - time.monotonic()):
                await anyio.sleep(RENEWAL)
                try:
                    is_mine = await self.renew()
                except StoreError as fault:
                    _log.info("%s: its lease could not be renewed: %s", self.server, fault)
        _log.warning("%s: this replica has lost the lease of it, and stops it", self.server)

    async def release(self) -> None:
        """Give the lease back; the server is stopped."""
        self._until = 0.0
        try:
            await self.shared.leases.release(self.name)
        except StoreError as fault:
            _log.info("%s: its lease was not given back, and ends by itself: %s", self.server, fault)


class Owned:
    """The connection of the owner, which sends requests of other replicas too."""

    def __init__(self, inner: dispatch.Dispatcher, lease: Lease) -> None:
        """Send nothing before `run`."""
        self._inner, self.notify = inner, inner.notify
        self._lease = lease
        self._said: dict[str, dict[str, Any] | MCPError] = {}
        self._begun = anyio.Event()

    async def run(
        self,
        on_request: dispatch.OnRequest,
        on_notify: dispatch.OnNotify,
        on_notify_intercept: dispatch.OnNotifyIntercept | None = None,
        *,
        task_status: dispatch.Started = dispatch.NOT_AWAITED,
    ) -> None:
        """Hand on what the server sends until the connection ends, or the lease is lost."""

        async def heard(context: dispatch.DispatchContext, method: str, params: dispatch.Params) -> None:
            await self._tell(method, params)
            await on_notify(context, method, params)

        replicas = self._lease.shared.replicas
        replicas.serve(self._lease.topic, self._asked)
        async with anyio.create_task_group() as group:

            async def end() -> None:
                await self._lease.keep()
                group.cancel_scope.cancel()

            group.start_soon(end)
            await self._inner.run(on_request, heard, on_notify_intercept, task_status=task_status)
            group.cancel_scope.cancel()

    async def send_raw_request(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request, unless another replica may have the server by now."""
        if not self._lease.is_held:
            raise MCPError.from_error_data(CLOSED)
        if method not in _HANDSHAKE:
            return await self._inner.send_raw_request(method, params, opts)
        try:
            said = self._said[method] = await self._inner.send_raw_request(method, params, opts)
        except MCPError as fault:
            self._said[method] = fault
            raise
        self._begun.set()
        return said

    async def _asked(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a request of another replica; the handshake was made once."""
        method, params = asked["method"], asked["params"]
        try:
            await self._begun.wait()
            if method in _HANDSHAKE:
                said = self._said.get(method) or MCPError(METHOD_NOT_FOUND, "Method not found", method)
                if isinstance(said, MCPError):
                    raise said
                return {"result": said}
            return {"result": await self.send_raw_request(method, params)}
        except MCPError as fault:
            return {"error": {"code": fault.code, "message": fault.message, "data": fault.data}}

    async def _tell(self, method: str, params: dispatch.Params) -> None:
        """Tell the other replicas what the server says to everybody."""
        if method.endswith(("list_changed", "resources/updated")):
            replicas = self._lease.shared.replicas
            told = {"method": method, "params": params and dict(params), "from": replicas.own}
            try:
                await replicas.tell("", f"{self._lease.topic} said", told)
            except (CallError, StoreError) as fault:
                _log.info("%s: other replicas were not told of %s: %s", self._lease.server, method, fault)


class ThroughOwner:
    """A connection by way of the replica that has the server."""

    def __init__(self, lease: Lease, owner: str) -> None:
        self._lease = lease
        self._owner = owner
        self._is_open = True

    async def run(
        self,
        on_request: dispatch.OnRequest,
        on_notify: dispatch.OnNotify,
        on_notify_intercept: dispatch.OnNotifyIntercept | None = None,
        *,
        task_status: dispatch.Started = dispatch.NOT_AWAITED,
    ) -> None:
        """Hand on what the owner tells of the server, until it is the owner no more."""

        async def told(said: Mapping[str, Any]) -> None:
            method, params = said["method"], said["params"]
            if said["from"] == self._owner and not (
                on_notify_intercept is not None and on_notify_intercept(method, params)
            ):
                await on_notify(_NO_CALL, method, params)

        self._lease.shared.replicas.serve(f"{self._lease.topic} said", told)
        task_status.started()
        try:
            # Nothing tells that a replica is gone.
            while await self._is_owner():  # noqa: ASYNC110
                await anyio.sleep(RENEWAL)
        finally:
            self._is_open = False

    async def _is_owner(self) -> bool:
        shared = self._lease.shared
        try:
            holder = await shared.leases.holder(self._lease.name)
            return holder == self._owner and await shared.replicas.lives(holder)
        except StoreError:
            return False

    async def send_raw_request(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> dict[str, Any]:
        if not self._is_open:
            raise MCPError.from_error_data(CLOSED)
        if method == "subscriptions/listen":
            # The owner tells of changes without being asked.
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        within = (opts or {}).get("timeout", LONGEST)
        asked = {"method": method, "params": _without_token(params)}
        try:
            with anyio.fail_after(within):
                said = await self._lease.shared.replicas.ask(
                    self._owner, self._lease.topic, asked, within=LONGEST
                )
        except TimeoutError:
            raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} timed out") from None
        except (CallError, StoreError) as fault:
            _log.info("%s: %s was not answered by its owner: %s", self._lease.server, method, fault)
            raise MCPError.from_error_data(CLOSED) from None
        if (error := said.get("error")) is not None:
            raise MCPError(error["code"], error["message"], error["data"])
        return said["result"]

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None:
        """Say nothing: the owner speaks for all."""


def single_link(link: Link, sessions: SessionRule, *, forwards: bool) -> SingleLink:
    """The same link, to a server that one replica alone may have."""
    if sessions not in ("auto", "shared") or forwards or link.facts.in_process:
        raise DefinitionError(
            f"mount {link.name!r}: a single server has one session for all callers, so it goes with no other "
            "`sessions`, with no forwarding of callers, and with no server of this process"
        )
    return SingleLink(**{each.name: getattr(link, each.name) for each in fields(link)})


def _without_token(params: dispatch.Params) -> dict[str, Any]:
    """Parameters without the token for progress, which means another request to the owner."""
    made = dict(params or {})
    if "_meta" in made:
        made["_meta"] = {key: each for key, each in made["_meta"].items() if key != "progressToken"}
    return made
