"""A policy on calls: denied tools are unknown, others are asked about or wait for an approval."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.refusals import refusal

from mcp_toolset import (
    Complete,
    HookSet,
    Identity,
    Rules,
    RunNormally,
    Tool,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    rejection_reason,
)
from mcp_toolset.errors import CannotAskError, DefinitionError, StoreError, UnknownToolError
from mcp_toolset.middleware import CallNext, ToolMiddleware
from mcp_toolset.policy import Approvals, CallLimits, Limits, Policy, PolicyGuard

pytestmark = pytest.mark.anyio

ONCE, HOUR = "allow once", "allow for one hour"
ANY = {"type": "object", "additionalProperties": True}
ALICE, BOB = Identity.of("app", "alice"), Identity.of("app", "bob")


class Caller(ToolContext):
    """A caller whose user answers in turn, or whose client shows no questions."""

    protocol_version = "2026-07-28"

    def __init__(self, identity: Identity | None, *answers: Any, session: str | None = None) -> None:
        self.identity, self.session = identity, session
        self.principal = None if identity is None else identity.key
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def request(self, method: str, params: Any) -> dict[str, Any]:
        if not self.answers:
            raise CannotAskError("it shows none", obstacle="this client shows no questions")
        self.asked.append(params)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return {"action": "accept", "content": {"decision": answer}}
        return answer


class Layered:
    """A guard that is one layer before the tool."""

    def __init__(self, layer: ToolMiddleware) -> None:
        self.layer = layer

    def gate(self, binding: ToolBinding) -> None:
        return None

    def layers(self, binding: ToolBinding) -> list[ToolMiddleware]:
        return [self.layer]


class Desk:
    """Two tools behind a policy, and the clock and file of its approvals."""

    def __init__(self, policy: Policy, path: Path | None = None, *, hooks: HookSet | None = None) -> None:
        self.time = 1000.0
        self.ran: list[dict[str, Any]] = []
        self.answer = ToolResult.of_text("done")
        self.events: list[dict[str, Any]] = []
        self.approvals = Approvals(path, ttl=600, clock=lambda: self.time)
        self.guard = PolicyGuard(
            policy, approvals=self.approvals, record=self.noted, clock=lambda: self.time, served="desk"
        )
        self.hooks = hooks or HookSet()
        self.offer("Delete a file.")

    def noted(self, event: str, /, **fields: Any) -> None:
        self.events.append({"event": event, **fields})

    def offer(self, description: str, *guards: Any) -> None:
        tools = (
            Tool.from_schema(name, ANY, self.run, description=description) for name in ("delete", "read")
        )
        self.view = Toolset(*tools).view()
        self.rules = Rules(self.hooks, guards=guards or [self.guard])

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        self.ran.append(arguments)
        return self.answer

    async def call(self, caller: ToolContext, tool: str = "delete", **arguments: Any) -> ToolResult:
        with anyio.fail_after(30):
            return await self.view.execute(tool, arguments, caller, rules=self.rules)

    async def waiting(self, caller: ToolContext, **arguments: Any) -> str:
        """Make a call that waits, and return the id of its approval."""
        before = len(self.ran)
        result = await self.call(caller, **arguments)
        assert result.is_error and len(self.ran) == before
        told = result.wire["_meta"]["mcp-toolset/approval"]
        assert told["state"] == "pending" and f"mcp-toolset approvals grant {told['id']}" in result.text
        return told["id"]


ASK = Policy(ask=["delete"])


async def test_i8_a_denied_tool_is_unknown_before_hooks_middleware_and_arguments_are_looked_at():
    hooks, seen = HookSet(), list[str]()

    @hooks.execution("delete")
    async def answers(call: ToolCall, input: Any) -> Complete:
        seen.append("hook")
        return Complete("answered")

    desk = Desk(Policy(deny=["delete"]), hooks=hooks)
    with pytest.raises(UnknownToolError, match="^Unknown tool: delete$"):
        await desk.call(Caller(ALICE))
    assert not seen and not desk.ran and (await desk.call(Caller(ALICE), "read")).text == "done"
    assert [event["decision"] for event in desk.events] == ["deny"]
    assert desk.events[0]["principal"] == "alice" and "delete" in desk.events[0]["rule"]


@pytest.mark.parametrize(
    ("answer", "runs"),
    [
        (ONCE, True),
        (HOUR, True),
        ("deny", False),
        ("allow for ever", False),
        ({"action": "accept", "content": {}}, False),
        ({"action": "decline"}, False),
        ({"action": "cancel"}, False),
        ({"action": "?"}, False),
    ],
)
async def test_i8_a_call_that_is_asked_about_runs_only_if_the_user_allows_it(answer: Any, runs: bool):
    desk, caller = Desk(ASK), Caller(ALICE, answer)
    result = await desk.call(caller, path="a.txt")
    assert bool(desk.ran) is runs and result.is_error is not runs
    assert 'delete?\nArguments: {"path": "a.txt"}' in caller.asked[0]["message"]
    assert runs or rejection_reason(result) is not None
    assert not desk.approvals.waiting()


async def test_i8_once_is_once_and_an_hour_is_an_hour_for_that_caller_and_tool_alone():
    desk, alice = Desk(Policy(ask=["*"])), Caller(ALICE, ONCE, HOUR, "deny", "deny")
    await desk.call(alice, path="a")
    await desk.call(alice, path="a")
    for path in "bcd":
        await desk.call(alice, path=path)
    assert len(desk.ran) == 5 and len(alice.asked) == 2
    assert (await desk.call(alice, "read")).is_error and len(alice.asked) == 3
    bob = Caller(BOB, "deny")
    assert (await desk.call(bob, path="a")).is_error and len(bob.asked) == 1
    desk.offer("Delete everything.")
    desk.time += 1
    other = Caller(ALICE, "deny")
    assert (await desk.call(other, path="a")).is_error and other.asked
    desk.offer("Delete a file.")
    desk.time += 3600
    assert (await desk.call(alice, path="a")).is_error and len(alice.asked) == 4


async def test_i8_callers_who_cannot_be_told_apart_are_not_remembered_and_a_session_is():
    desk = Desk(ASK)
    nobody, here = Caller(None, ONCE), Caller(None, "allow for this session", session="s1")
    await desk.call(nobody)
    assert nobody.asked[0]["requestedSchema"]["properties"]["decision"]["enum"] == [ONCE, "deny"]
    await desk.call(here)
    await desk.call(here)
    assert len(here.asked) == 1 and len(desk.ran) == 3
    there = Caller(None, "deny", session="s2")
    assert (await desk.call(there)).is_error


async def test_i8_what_one_session_of_a_user_allows_is_asked_about_in_another_one():
    desk, allowed = Desk(ASK), "allow for this session"
    await desk.call(Caller(ALICE, allowed, session="s1"))
    there = Caller(ALICE, "deny", session="s2")
    assert (await desk.call(there)).is_error and there.asked


async def test_i8_questions_about_different_calls_differ_even_if_what_is_shown_does_not():
    desk, alice = Desk(ASK), Caller(ALICE, *["deny"] * 4)
    for arguments in ({"password": "a"}, {"password": "b"}, {"x": "y" * 900 + "a"}, {"x": "y" * 900 + "b"}):
        await desk.call(alice, **arguments)
    assert len({asked["message"] for asked in alice.asked}) == 4


async def test_i8_what_the_user_approves_is_what_hooks_have_made_of_the_arguments():
    hooks = HookSet()

    @hooks.execution("delete")
    async def edits(call: ToolCall, input: Any) -> RunNormally:
        return RunNormally({**input, "path": "/srv/" + input["path"]})

    desk, caller = Desk(ASK, hooks=hooks), Caller(ALICE, ONCE)
    await desk.call(caller, path="a")
    assert '"/srv/a"' in caller.asked[0]["message"] and desk.ran == [{"path": "/srv/a"}]


async def test_i8_without_questions_a_call_waits_and_a_grant_lets_the_same_call_through_once():
    desk, alice = Desk(ASK), Caller(ALICE)
    id = await desk.waiting(alice, path="a")
    assert await desk.waiting(alice, path="a") == id
    (shown,) = desk.approvals.waiting()
    assert (shown.id, shown.who, shown.tool, shown.arguments) == (id, "alice", "delete", '{"path": "a"}')
    desk.approvals.decide(id, "granted")
    assert (await desk.call(alice, path="a")).text == "done"
    assert await desk.waiting(alice, path="a") != id
    assert desk.ran == [{"path": "a"}]
    assert [event["decision"] for event in desk.events] == ["approval needed"] * 2 + [
        "approved",
        "approval needed",
    ]


async def test_i8_a_grant_is_for_its_caller_its_arguments_and_its_definition():
    desk, alice = Desk(ASK), Caller(ALICE)
    desk.approvals.decide(await desk.waiting(alice, path="a", n=1), "granted")
    await desk.waiting(Caller(BOB), path="a", n=1)
    await desk.waiting(Caller(None), path="a", n=1)
    for changed in ({"path": "b", "n": 1}, {"path": "a", "n": True}, {"path": "a", "n": 1.0}, {"path": "a"}):
        await desk.waiting(alice, **changed)
    desk.offer("Delete everything.")
    await desk.waiting(alice, path="a", n=1)
    guard = PolicyGuard(ASK, approvals=desk.approvals, served="another server")
    desk.offer("Delete a file.", guard)
    await desk.waiting(alice, path="a", n=1)
    desk.offer("Delete a file.")
    assert (await desk.call(alice, n=1, path="a")).text == "done"


async def test_i8_an_approval_expires_before_and_after_the_decision_and_a_refusal_is_told():
    desk, alice = Desk(ASK), Caller(ALICE)
    first = await desk.waiting(alice)
    desk.time += 600
    with pytest.raises(StoreError, match="no approval"):
        desk.approvals.decide(first, "granted")
    second = await desk.waiting(alice)
    desk.time += 599
    desk.approvals.decide(second, "granted")
    desk.time += 600
    third = await desk.waiting(alice)
    desk.approvals.decide(third, "refused")
    told = await desk.call(alice)
    assert f"approval {third} was refused" in told.text and not desk.ran
    desk.approvals.decide(third, "granted")
    assert (await desk.call(alice)).text == "done"


async def test_i8_an_approval_stays_valid_if_a_limit_refuses_the_approved_call():
    desk, alice = Desk(ASK), Caller(ALICE)
    limit = CallLimits({"delete": Limits(rate="1/min")}, wall=lambda: desk.time, clock=lambda: desk.time)
    desk.offer("Delete a file.", desk.guard, limit)
    for path in ("a", "b"):
        desk.approvals.decide(await desk.waiting(alice, path=path), "granted")
    assert (await desk.call(alice, path="a")).text == "done"

    limited = await desk.call(alice, path="b")
    assert limited.is_error and "try again in 60 s" in limited.text
    (kept,) = desk.approvals.waiting()
    assert kept.state == "granted" and kept.expires == 1600
    desk.time += 60
    assert (await desk.call(alice, path="b")).text == "done" and not desk.approvals.waiting()
    assert [one["path"] for one in desk.ran] == ["a", "b"]


async def test_i8_an_approval_is_used_up_by_a_tool_that_returns_a_refusal_of_an_inner_call():
    desk, alice = Desk(ASK), Caller(ALICE)
    desk.answer = await refusal("an inner rule")
    desk.approvals.decide(await desk.waiting(alice), "granted")
    assert "an inner rule" in (await desk.call(alice)).text
    await desk.waiting(alice)
    assert len(desk.ran) == 1


async def test_i8_a_call_that_a_person_refuses_while_a_limit_holds_it_back_does_not_run():
    desk, alice = Desk(ASK), Caller(ALICE)

    async def refused_meanwhile(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        (approval,) = desk.approvals.waiting()
        desk.approvals.decide(approval.id, "refused")
        return await next()

    desk.offer("Delete a file.", desk.guard, Layered(refused_meanwhile))
    desk.approvals.decide(await desk.waiting(alice), "granted")
    told = await desk.call(alice)
    assert told.is_error and "was refused; do not make this call again" in told.text and not desk.ran
    assert [event["decision"] for event in desk.events] == ["approval needed", "approval refused"]


async def test_i8_an_approval_is_used_up_if_the_call_goes_on_in_another_context():
    desk, alice = Desk(ASK), Caller(ALICE)

    async def elsewhere(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        apart = contextvars.Context()
        return await asyncio.get_running_loop().create_task(next(), context=apart)

    desk.offer("Delete a file.", desk.guard, Layered(elsewhere))
    desk.approvals.decide(await desk.waiting(alice), "granted")
    assert (await desk.call(alice)).text == "done"
    await desk.waiting(alice)
    assert len(desk.ran) == 1


async def test_i9_a_decision_is_recorded_with_its_approval_and_with_who_has_decided(tmp_path: Path):
    desk, alice = Desk(ASK, tmp_path / "approvals.sqlite3"), Caller(ALICE)
    id = await desk.waiting(alice)
    for state in ("refused", "granted"):
        desk.approvals.decide(id, state, decider=f"root-{state}")
        await desk.call(alice)
    told = [(event["decision"], event["approval"], event["by"]) for event in desk.events]
    assert told == [
        ("approval needed", id, ""),
        ("approval refused", id, "root-refused"),
        ("approved", id, "root-granted"),
    ]


async def test_i8_each_of_two_policies_uses_up_an_approval_of_its_own():
    desk, alice = Desk(ASK), Caller(ALICE)
    others = Approvals(ttl=600, clock=lambda: desk.time)
    desk.offer("Delete a file.", desk.guard, PolicyGuard(ASK, approvals=others, served="inner"))
    desk.approvals.decide(await desk.waiting(alice), "granted")
    await desk.waiting(alice)
    others.decide(others.waiting()[0].id, "granted")
    assert (await desk.call(alice)).text == "done"
    assert not desk.approvals.waiting() and not others.waiting()


@pytest.mark.parametrize("stored", [False, True])
async def test_i8_of_many_calls_at_once_exactly_one_uses_a_grant(tmp_path: Path, stored: bool):
    desk, alice = Desk(ASK, tmp_path / "here" / "approvals" if stored else None), Caller(ALICE)
    desk.approvals.decide(await desk.waiting(alice), "granted")
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await desk.call(alice))

    async with anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(call)
    assert len(desk.ran) == 1 and sum(not result.is_error for result in results) == 1


async def test_i8_a_grant_outlives_the_server_that_asked_and_is_used_once_over_processes(tmp_path: Path):
    path = tmp_path / "approvals"
    before, alice = Desk(ASK, path), Caller(ALICE)
    id = await before.waiting(alice)
    assert path.stat().st_mode & 0o777 == 0o600
    Approvals(path, ttl=600, clock=lambda: 1000.0).decide(id, "granted")
    after = Desk(ASK, path)
    assert (await after.call(alice)).text == "done"
    await before.waiting(alice)


async def test_i8_nothing_runs_if_approvals_cannot_be_stored_or_too_many_wait(tmp_path: Path):
    (tmp_path / "approvals").write_text("not a database, " * 100)
    desk = Desk(ASK, tmp_path / "approvals")
    result = await desk.call(Caller(ALICE))
    assert "cannot be read or written" in result.text and not desk.ran
    desk = Desk(ASK)
    for number in range(100):
        await desk.waiting(Caller(ALICE), number=number)
    assert "wait for an approval already" in (await desk.call(Caller(ALICE), path="a")).text
    await desk.waiting(Caller(BOB))


async def test_i8_without_a_store_a_call_that_nobody_can_be_asked_about_is_refused():
    desk = Desk(ASK)
    desk.offer("", PolicyGuard(ASK))
    result = await desk.call(Caller(ALICE))
    assert "this client shows no questions" in result.text and rejection_reason(result) is not None


async def listed(**arguments: Any) -> str:
    """The arguments of a call that waits, as a person sees them."""
    desk = Desk(ASK)
    await desk.waiting(Caller(ALICE), **arguments)
    (waiting,) = desk.approvals.waiting()
    return waiting.arguments


async def test_i8_arguments_are_shown_without_secrets_hidden_characters_and_long_values():
    long = "b\u202ec" + "d" * 500
    shown = await listed(apiKey="s3cret", nested=[{"user_password": ["x"]}], max_tokens=5, a=long)
    assert "s3cret" not in shown and '"user_password": "*** (5 characters, sha256 ' in shown
    assert '"max_tokens": 5' in shown
    assert "\u202e" not in shown and "\\u202e" in shown and "(303 more characters, sha256 " in shown
    assert len(await listed(**{str(n): "x" * 100 for n in range(500)})) < 2100


async def test_u84_what_is_not_shown_has_its_length_and_a_digest():
    async def tells(value: Any) -> str:
        return await listed(api_token=value, text="t" * 200 + str(value))

    one, other = "s3cret-value-1", "s3cret-value-2"
    digest, of_json = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in (one, f'"{one}"'))
    assert "s3cret" not in await tells(one)
    assert f"*** (14 characters, sha256 {of_json})" in await tells(one)
    assert f"… (14 more characters, sha256 {digest})" in await tells(one)
    assert await tells(one) != await tells(other) and await tells(one) == await tells(one)
    assert await tells({"k": [one]}) != await tells({"k": [other]})
    assert "s3cret" not in await tells({"k": [one]})
    many = {str(number): "x" * 100 for number in range(50)}
    assert await listed(**many) != await listed(**{**many, "49": "y" * 100})
    assert re.search(r"… \(\d+ more characters, sha256 [0-9a-f]{16}\)$", await listed(**many))


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("true", True), ('["a"]', ["a"]), ('{"a": 1}', {"a": 1})]
)
async def test_u84_the_list_tells_a_text_from_what_it_would_be_as_json(text: str, value: Any):
    assert await listed(password=text) != await listed(password=value)


async def test_u84_the_person_who_is_asked_sees_them():
    desk = Desk(ASK)
    caller = Caller(ALICE, ONCE)
    await desk.call(caller, api_token="s3cret-value-1")
    asked = caller.asked[0]["message"]
    assert "*** (14 characters, sha256 " in asked and asked.startswith("mcp-toolset needs your approval.\n")


def test_i8_a_guard_is_checked_and_is_a_rule():
    assert Rules.of(PolicyGuard(ASK)).guards and Rules().merged(PolicyGuard(ASK)).guards
    rules: Any = Rules
    with pytest.raises(DefinitionError, match="guards is a list"):
        rules(guards=[ASK])
