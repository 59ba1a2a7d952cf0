"""The log level of a legacy session is as low as the most curious of its callers wants it, and no lower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import UpstreamProtocolError
from mcp_toolset.tools.call import LOCAL_CONTEXT
from mcp_toolset.upstream.session import LogThreshold

pytestmark = pytest.mark.anyio


class Caller(WireContext):
    """A caller that wants a level, and nothing else."""

    def __init__(self, level: str | None) -> None:
        self._level = level

    @property
    def log_level(self) -> str | None:
        return self._level


@dataclass
class Server:
    """Takes a level, or refuses it."""

    refuses: bool = False

    def __post_init__(self) -> None:
        self.levels: list[str] = []

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert method == "logging/setLevel"
        self.levels.append(params["level"])
        if self.refuses:
            raise UpstreamProtocolError("up", -32601, "no such method")
        return {}


@pytest.mark.parametrize("refuses", [False, True])
async def test_the_level_is_lowered_once_and_never_raised(refuses: bool) -> None:
    threshold, server = LogThreshold(), Server(refuses)
    threshold.begin({"logging": {}}, modern=False)
    for level in ("warning", "error", "warning", "debug", "info", None, "loud"):
        wanted = threshold.wanted_by(Caller(level))
        if wanted is not None:
            await threshold.lower(wanted, server.request)
    assert server.levels == ["warning", "debug"]


@pytest.mark.parametrize(("declares", "modern"), [({}, False), ({"logging": {}}, True)])
def test_a_session_without_a_level_is_told_of_none(declares: dict[str, Any], modern: bool) -> None:
    threshold = LogThreshold()
    assert threshold.wanted_by(Caller("debug")) is None
    threshold.begin(declares, modern=modern)
    assert not threshold.applies and threshold.wanted_by(Caller("debug")) is None


async def test_a_new_connection_starts_with_the_level_of_the_server() -> None:
    threshold, server = LogThreshold(), Server()
    for _ in range(2):
        threshold.begin({"logging": {}}, modern=False)
        assert threshold.wanted_by(cast("Any", LOCAL_CONTEXT)) is None
        await threshold.lower(threshold.wanted_by(Caller("info")) or "", server.request)
        assert threshold.wanted_by(Caller("info")) is None
    assert server.levels == ["info", "info"]
