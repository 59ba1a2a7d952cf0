"""`SessionTable`: whose session goes when many callers have some; the rest is seen at the doors."""

from __future__ import annotations

import anyio
import pytest

from mcp_toolset import HttpLimits
from mcp_toolset.transports.http.sessions import SessionTable

pytestmark = pytest.mark.anyio


class Kept:
    """A session that notes what becomes of it."""

    def __init__(self, name: str, owner: str | None = None, peer: str = "here") -> None:
        self.name, self.owner, self.peer = name, owner, peer
        self.users = 0
        self.is_busy = self.ended = self.closed = False

    def end(self) -> None:
        self.ended = True

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.closed = True


def table(**limits: int) -> SessionTable[Kept]:
    return SessionTable(HttpLimits(**limits), idle_time=60)


@pytest.mark.parametrize("limits", [{"max_sessions_per_peer": 8}, {"max_sessions": 8}])
async def test_u80_the_sessions_of_one_caller_leave_those_of_others_open(limits: dict[str, int]) -> None:
    sessions = table(**limits)
    async with sessions.running():
        bob = Kept("bob", owner="bob")
        sessions.add(bob)
        anns = [Kept(f"ann{number}", owner="ann") for number in range(20)]
        for each in anns:
            assert sessions.admit("here", "ann") is None
            sessions.add(each)
        assert not bob.ended and len(sessions) == 7
        for each in sessions.all():
            sessions.use(each)
        refused = sessions.admit("here", "ann")
        assert refused is not None and "this caller has 6 sessions open, all of them in use" in refused
        assert sessions.admit("here", "carol") is None
        sessions.add(Kept("carol", owner="carol"))
        for each in (bob, anns[-1]):
            sessions.release(each)
        assert sessions.admit("here", "dave") is None
        assert anns[-1].ended and not bob.ended
