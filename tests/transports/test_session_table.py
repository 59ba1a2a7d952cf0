"""`SessionTable`: which sessions are open, whose they are, and which one goes when there is no more room."""

from __future__ import annotations

import logging

import anyio
import pytest

from mcp_toolset import HttpLimits
from mcp_toolset.errors import StateError
from mcp_toolset.transports.http.sessions import SessionTable, shortened

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


async def test_f30_a_session_is_found_by_the_user_who_has_opened_it() -> None:
    sessions = table()
    async with sessions.running():
        ann, nobody = Kept("a" * 32, owner="ann"), Kept("b" * 32)
        sessions.add(ann)
        sessions.add(nobody)
        assert sessions.find(ann.name, "ann") is ann
        assert sessions.find(nobody.name, None) is nobody
        for name, user in ((ann.name, "bob"), (ann.name, None), (nobody.name, "ann"), ("", None)):
            assert sessions.find(name, user) is None


async def test_u48_a_refusal_does_not_log_a_whole_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sessions = table()
    async with sessions.running():
        sessions.add(Kept("0123456789abcdef", owner="ann"))
        for name in ("0123456789abcdef", "fedcba9876543210", "made\nup by an attacker"):
            assert sessions.find(name, "bob") is None
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "01234567…" in said and "fedcba98…" in said and "made\\nup" in said
    assert "89ab" not in said and "7654" not in said and "attacker" not in said
    assert shortened("123456789") == "123456789"


async def test_u46_the_session_that_is_idle_longest_goes_and_never_one_in_use() -> None:
    sessions = table(max_sessions=3)
    async with sessions.running():
        first, second, third = (Kept(name) for name in ("one", "two", "three"))
        for each in (first, second, third):
            assert sessions.admit("here", None) is None
            sessions.add(each)
        sessions.use(first)
        second.is_busy = True
        assert sessions.admit("here", None) is None
        assert [first.ended, second.ended, third.ended] == [False, False, True]
        sessions.add(Kept("four"))
        sessions.release(first)
        assert sessions.admit("here", None) is None
        assert len(sessions) == 2 and "four" not in sessions and "one" in sessions


async def test_u46_an_address_takes_the_room_of_its_own_sessions_alone() -> None:
    sessions = table(max_sessions_per_peer=1)
    async with sessions.running():
        here, there = Kept("one", peer="here"), Kept("two", peer="there")
        sessions.add(here)
        sessions.add(there)
        assert sessions.admit("there", None) is None
        assert there.ended and not here.ended
        sessions.use(here)
        refused = sessions.admit("here", None)
        assert refused is not None and "clients at here have 1 sessions" in refused
        assert "max_sessions_per_peer is 1" in refused


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


async def test_f30_sessions_end_that_were_idle_for_too_long_and_all_with_the_application() -> None:
    sessions = table()
    async with sessions.running():
        old, used, new = Kept("old"), Kept("used"), Kept("new")
        for each in (old, used, new):
            sessions.add(each)
        sessions._idle["old"] = sessions._idle["used"] = float("-inf")
        sessions.use(used)
        sessions.expire()
        assert [old.ended, used.ended, new.ended] == [True, False, False]
        with anyio.fail_after(30):
            while not old.closed:
                await anyio.lowlevel.checkpoint()
        # What ends in use is not idle afterwards.
        sessions.end(used)
        sessions.release(used)
        sessions.end(used)
        assert "used" not in sessions._idle
    assert used.closed and new.ended and new.closed
    with pytest.raises(StateError, match="lifespan"):
        sessions.require_running()
