"""What a connection does at its end, and what reaches a client outside of its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from mcp_toolset.context import connection as module
from mcp_toolset.context.connection import Connection
from mcp_toolset.protocol.json_rpc import NoBackChannelError

pytestmark = pytest.mark.anyio
CHANGED = "notifications/tools/list_changed"


class Sender:
    def __init__(self, fault: Exception | None = None) -> None:
        self.sent: list[str] = []
        self.fault = fault

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None
    ) -> dict[str, Any]:
        self.sent.append(method)
        return {"roots": []}

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        if self.fault is not None:
            raise self.fault
        self.sent.append(method)


async def test_what_was_registered_last_is_done_first_whatever_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[int] = []
    connection = Connection()

    async def later() -> None:
        await anyio.lowlevel.checkpoint()
        done.append(1)

    def fail() -> None:
        done.append(2)
        raise KeyError("secret")

    connection.on_close(later)
    connection.on_close(fail)
    connection.on_close(lambda: done.append(3))
    assert connection.has_callbacks
    with anyio.CancelScope() as scope:
        scope.cancel()
        await connection.aclose()
    assert done == [3, 2, 1]
    assert "at the end of a connection failed" in caplog.text
    await connection.aclose()
    assert done == [3, 2, 1]


async def test_an_end_that_hangs_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CLOSE_TIMEOUT", 0.01)
    connection = Connection()
    connection.on_close(anyio.sleep_forever)
    with anyio.fail_after(30):
        await connection.aclose()
    assert "the remaining steps are skipped" in caplog.text


async def test_a_legacy_client_is_asked_and_told_and_a_modern_one_is_not_asked() -> None:
    sender = Sender()
    legacy = Connection(sender)
    modern = Connection(sender, protocol_version="2026-07-28")
    assert legacy.can_send_request and not modern.can_send_request
    assert await legacy.send_raw_request("roots/list", None) == {"roots": []}
    with pytest.raises(NoBackChannelError):
        await modern.send_raw_request("roots/list", None)
    await legacy.notify(CHANGED)
    await modern.notify(CHANGED)
    await modern.notify("notifications/vendor")
    assert sender.sent == ["roots/list", CHANGED, "notifications/vendor"]


@pytest.mark.parametrize(
    "sender", [None, Sender(anyio.BrokenResourceError()), Sender(anyio.ClosedResourceError())]
)
async def test_a_client_that_cannot_be_reached_is_told_nothing(sender: Sender | None) -> None:
    await Connection(sender).notify(CHANGED)
