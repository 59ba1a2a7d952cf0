"""Requests on their way between the SDK and the bridge: their connections and dispatch contexts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import mcp_types as types

from mcp_toolset.context.connection import Connection, RequestContext
from mcp_toolset.protocol.revisions import is_modern
from mcp_toolset.protocol.server_machine import ServerMachine
from mcp_toolset.sdk.errors import from_sdk, to_sdk
from mcp_toolset.sdk.servers import Connection as SdkConnection
from mcp_toolset.sdk.servers import SdkTransportContext, ServerMessageMetadata, aclose_shielded

_KEY: Final = "mcp_toolset.connection"
_SDK_KEY: Final = "mcp_toolset.sdk_connection"

Params = Mapping[str, Any] | None


class KnownConnection:
    """A connection that the SDK has taken, as the bridge sees it.

    Attributes:
        connection: The client.
        machine: What its client has said so far.
    """

    def __init__(self, sdk: SdkConnection) -> None:
        """Take up a connection of the SDK; it may have had its handshake."""
        accepted = sdk.initialize_accepted
        info, declared = sdk.client_params, sdk.client_capabilities
        self.machine = ServerMachine("legacy", version=sdk.protocol_version, initialize_accepted=accepted)
        self.connection = Connection(
            _Outward(sdk),
            protocol_version=sdk.protocol_version,
            client_info=None if info is None else _wire(info.client_info),
            client_capabilities=None if declared is None else _wire(declared),
            initialize_accepted=accepted,
            session_id=sdk.session_id,
        )
        sdk.exit_stack.push_async_callback(self.connection.aclose)

    @classmethod
    def of(cls, sdk: SdkConnection) -> KnownConnection:
        found: KnownConnection | None = sdk.state.get(_KEY)
        if found is None:
            found = sdk.state[_KEY] = cls(sdk)
        return found


def sdk_connection(connection: Connection) -> SdkConnection:
    """The SDK's form of a connection: one for the life of a legacy client, one for each modern request."""
    known: SdkConnection | None = connection.state.get(_SDK_KEY)
    if known is not None:
        return known
    version, info, declared = (
        connection.protocol_version,
        connection.client_info,
        connection.client_capabilities,
    )
    outbound: Any = _Inward(connection)
    if is_modern(version) or connection.initialize_accepted:
        made = SdkConnection.from_envelope(version, info, declared, outbound=outbound)
    else:
        made = SdkConnection.for_loop(outbound, protocol_version_hint=version)
    made.session_id = connection.session_id
    connection.state[_SDK_KEY] = made
    connection.on_close(partial(aclose_shielded, made))
    return made


class _Outward:
    """Sends messages to a client outside of its requests, through the SDK."""

    def __init__(self, sdk: SdkConnection) -> None:
        self._sdk = sdk

    async def send_raw_request(self, method: str, params: Params, opts: Any = None) -> dict[str, Any]:
        return await from_sdk(self._sdk.send_raw_request(method, params, opts))

    async def notify(self, method: str, params: Params, opts: Any = None) -> None:
        await self._sdk.notify(method, params, opts)


class _Inward:
    """The same the other way: what a program sends by the SDK goes over a connection of the bridge."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send_raw_request(self, method: str, params: Params, opts: Any = None) -> dict[str, Any]:
        return await to_sdk(self._connection.send_raw_request(method, params, opts))

    async def notify(self, method: str, params: Params, opts: Any = None) -> None:
        await self._connection.notify(method, params)


class PassedRequest:
    """A request that came by another door, as the SDK's runner takes it: its `DispatchContext`.

    Attributes:
        passed: The request.
    """

    def __init__(self, request: RequestContext) -> None:
        self.passed = request
        self._way: Any = request.way
        self.request_id = request.request_id
        self.transport = SdkTransportContext(kind="bridge", can_send_request=self.can_send_request)
        self.message_metadata = (
            None if request.http is None else ServerMessageMetadata(request_context=request.http)
        )

    @property
    def can_send_request(self) -> bool:
        """Whether the client can be sent requests."""
        return self._way.can_send_request

    @property
    def cancel_requested(self) -> Any:
        """Set when the client has cancelled the request."""
        return self._way.cancel_requested

    @property
    def reason(self) -> str | None:
        return self._way.reason

    async def send_raw_request(self, method: str, params: Params, opts: Any = None) -> dict[str, Any]:
        return await to_sdk(self._way.send_raw_request(method, params, opts))

    async def notify(self, method: str, params: Params, opts: Any = None) -> None:
        """Send a notification that belongs to the request."""
        await self._way.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._way.progress(progress, total, message)


def _wire(model: types.Implementation | types.ClientCapabilities) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
