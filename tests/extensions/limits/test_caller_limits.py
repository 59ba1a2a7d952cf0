"""Limits that differ by principal, role and scope: each caller has its own, and nobody another's."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.extensions.limits.test_call_limits import Bench, Caller, offered, said, stated

from mcp_toolset import Identity, Rules, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.policy import CallLimits, Limits

pytestmark = pytest.mark.anyio


class Known(Caller):
    """A context whose caller is authenticated."""

    def __init__(self, name: str, *roles: str, scopes: tuple[str, ...] = ()) -> None:
        self.identity = Identity.of("app", name, roles=roles, scopes=scopes)
        super().__init__(self.identity.key)


ADMIN, GUEST, BOTH = Known("ann", "admin"), Known("gus", "guest"), Known("kim", "guest", "admin")
PLAIN, NOBODY = Known("pat"), Caller(None)
BY_ROLE = Limits(
    rate="2/min",
    callers=[Limits(rate="3/min", roles=["admin"]), Limits(rate="1/min", timeout=9, roles=["guest"])],
)


async def ran(bench: Bench, caller: Caller, tool: str = "git_read") -> int:
    """How many of five calls of a caller run."""
    before = bench.ran
    for _ in range(5):
        await bench.call(tool, caller)
    return bench.ran - before


async def test_i8_a_rate_may_be_of_a_role_and_is_still_of_each_caller():
    bench = Bench({"*": BY_ROLE})
    callers = [ADMIN, GUEST, Known("gil", "guest"), BOTH, PLAIN, NOBODY]
    assert [await ran(bench, one) for one in callers] == [3, 1, 1, 3, 2, 2]
    assert "limited to 1 call in 60 s" in (await bench.call(caller=GUEST)).text
    bench.time += 60
    assert [await ran(bench, one) for one in callers] == [3, 1, 1, 3, 2, 2]


async def test_i8_a_caller_whose_role_changes_has_the_limits_of_the_new_one():
    bench = Bench({"*": BY_ROLE})
    assert await ran(bench, Known("ann", "guest")) == 1
    assert await ran(bench, ADMIN) == 3
    assert await ran(bench, Known("ann", "guest")) == 0


async def test_i8_each_kind_of_limit_may_be_of_some_callers():
    some = Limits(calls=1, concurrency=1, result_bytes=200, timeout=60, principals=["g*"])
    bench = Bench({"*": Limits(callers=[some])})
    bench.wire = {"content": [{"type": "text", "text": "a" * 500}]}
    assert "may take 200" in (await bench.call(caller=GUEST)).text
    assert "none is left" in (await bench.call(caller=GUEST)).text
    assert (await bench.call(caller=ADMIN)).text == "a" * 500
    assert await ran(bench, ADMIN) == await ran(bench, NOBODY) == 5


async def test_i8_a_timeout_and_the_wait_for_others_are_those_of_the_caller():
    some = Limits(timeout=0.01, roles=["guest"])
    bench = Bench({"*": Limits(concurrency=1, timeout=600, callers=[some])})
    bench.hold = anyio.Event()
    assert "gave no answer within 0.01 s" in (await bench.call(caller=GUEST)).text
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.call, "git_read", PLAIN)
            tasks.start_soon(bench.call, "git_read", ADMIN)
            tasks.start_soon(bench.call, "git_read", ADMIN)
            while bench.ran < 3:
                await checkpoint()
            for _ in range(20):
                await checkpoint()
            assert bench.ran == 3
            bench.hold.set()
    assert bench.ran == 4


@pytest.mark.parametrize(
    ("caller", "rate"),
    [
        (Known("x", "a", scopes=("s",)), "1/s"),
        (Known("x", "a"), "3/s"),
        (Known("x", scopes=("s",)), "3/s"),
        (Known("bot-7", "a"), "2/s"),
        (Known("bot-7", "a", scopes=("s",)), "1/s"),
    ],
)
def test_i8_limits_are_for_a_caller_who_fits_in_all_that_they_name(caller: Known, rate: str):
    some = [Limits(rate="1/s", roles=["a", "b"], scopes=["s"]), Limits(rate="2/s", principals=["bot-*"])]
    limits = {"*": Limits(rate="3/s", callers=some)}
    assert said(limits, offered("t"), caller.identity) == {"rate": rate}


def test_i8_the_pattern_is_looked_at_before_the_caller():
    limits = {"*": BY_ROLE, "git_read": Limits(calls=7, rate="30/min")}
    servers = {"git": {"read": Limits(roles=["guest"], calls=1)}}
    tool = offered("git_read", "git", "read")
    assert stated(limits, tool, GUEST.identity, servers) == {
        "calls": (1, "git.limits['read']"),
        "rate": ("30/min", "limits['git_read']"),
        "timeout": (9, "limits['*'].for[1]"),
    }
    assert said(limits, tool, None, servers) == {"calls": 7, "rate": "30/min"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"roles": "admin", "rate": "1/s"},
        {"roles": [], "rate": "1/s"},
        {"scopes": [5], "rate": "1/s"},
        {"callers": [Limits(rate="1/s")]},
        {"callers": [Limits(roles=["a"])]},
        {"callers": [Limits(roles=["a"], rate="1/s", callers=[Limits(roles=["b"], rate="1/s")])]},
    ],
)
def test_i8_limits_for_nobody_or_of_nothing_are_an_error(wrong: dict[str, Any]):
    with pytest.raises(DefinitionError, match="write a list of names|each says for whom it is"):
        Limits(**wrong)


@tool
def read() -> str:
    """Read."""
    return "read"


async def test_i8_a_server_says_the_limits_of_a_caller_those_of_a_guard_too():
    guard = CallLimits({"read": Limits(timeout=5)})
    server = ToolsetServer(Toolset(read), limits={"*": BY_ROLE}, rules=Rules(guards=[guard]))
    async with server:
        (binding,) = server.bindings()
        said = {(one.key, one.value) for one in server.limits_of(binding, GUEST.identity)}
        assert said == {("rate", "1/min"), ("timeout", 9), ("timeout", 5)}
        assert {one.value for one in server.limits_of(binding)} == {"2/min", 5}
    async with ToolsetServer(Toolset(read)) as free:
        assert free.limits_of(binding, GUEST.identity) == []
