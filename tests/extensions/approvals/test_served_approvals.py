"""A server with a policy that asks: by a question in both eras, or by an approval that waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from tests.support.asking import ERAS, Person, connected, text_of
from tests.support.configured import BOUND, Folder

from mcp_toolset import HookSet, Identity, Rules, RunNormally, ToolCall, Toolset, ToolsetServer, tool
from mcp_toolset.policy import Approvals, Limits, Policy, PolicyGuard
from mcp_toolset.rounds import RoundContext, ToolRound

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@pytest.fixture(autouse=True)
def ran() -> list[str]:
    RAN.clear()
    return RAN


@tool
def delete(path: str) -> str:
    """Delete a file."""
    RAN.append(path)
    return f"deleted {path}"


@tool
def secret() -> str:
    """Say the secret."""
    RAN.append("secret")
    return "42"


POLICY = Policy(ask=["delete"], deny=["secret"])


def serving(**options: Any) -> ToolsetServer:
    approvals = options.pop("approvals", Approvals())
    return ToolsetServer(Toolset(delete, secret), policy=POLICY, approvals=approvals, **options)


@pytest.mark.parametrize("era", ERAS)
async def test_i8_the_user_at_the_client_is_asked_for_each_call_and_the_tool_runs_once(era: str):
    person = Person({"decision": "allow once"}, {"decision": "deny"}, "decline", "cancel")
    async with connected(serving(), era, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("delete", {"path": "a"})) == "deleted a"
        for _ in range(3):
            refused = await client.call_tool("delete", {"path": "b"})
            assert refused.is_error and "the user did not allow it" in text_of(refused)
    assert RAN == ["a"] and len(person.asked) == 4
    assert 'Arguments: {"path": "a"}' in person.questions[0]


async def test_i8_a_session_is_not_asked_again_and_another_one_is():
    server, one, other = serving(), Person({"decision": "allow for this session"}), Person("decline")
    with anyio.fail_after(40):
        async with server:
            async with Client(server.lowlevel, mode="legacy", elicitation_callback=one) as client:
                for path in "ab":
                    assert not (await client.call_tool("delete", {"path": path})).is_error
            async with Client(server.lowlevel, mode="legacy", elicitation_callback=other) as client:
                assert (await client.call_tool("delete", {"path": "a"})).is_error
    assert RAN == ["a", "b"] and len(one.asked) == len(other.asked) == 1


async def test_i8_an_answer_after_the_call_was_cancelled_runs_nothing():
    server, asked, answered = serving(), anyio.Event(), anyio.Event()

    async def late(context: Any, params: Any) -> Any:
        asked.set()
        await answered.wait()
        return await Person({"decision": "allow for this session"})(context, params)

    async with connected(server, "legacy", elicitation_callback=late) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "delete", {"path": "a"})
            await asked.wait()
            tasks.cancel_scope.cancel()
        answered.set()
        assert [shown.name for shown in (await client.list_tools()).tools] == ["delete"]
        asked = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "delete", {"path": "b"})
            await asked.wait()
    assert RAN == ["b"]


@pytest.mark.parametrize("era", ERAS)
async def test_i8_a_client_without_questions_is_told_of_the_approval_that_waits(era: str):
    approvals = Approvals()
    async with connected(serving(approvals=approvals), era) as client:
        refused = await client.call_tool("delete", {"path": "a"})
        assert refused.is_error and refused.meta is not None
        id = refused.meta["mcp-toolset/approval"]["id"]
        assert f"`mcp-toolset approvals grant {id}`" in text_of(refused)
        approvals.decide(id, "granted")
        assert text_of(await client.call_tool("delete", {"path": "a"})) == "deleted a"
        assert (await client.call_tool("delete", {"path": "a"})).is_error
    assert RAN == ["a"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("deferred", [False, True])
async def test_i8_a_denied_tool_is_answered_as_one_that_does_not_exist(era: str, deferred: bool):
    tools = Toolset(delete, secret)
    server = ToolsetServer(tools.deferred() if deferred else tools, policy=POLICY, approvals=False)
    async with connected(server, era) as client:
        call: Callable[[str], dict[str, Any]] = lambda name: {"tool": name, "arguments": {}}  # noqa: E731
        told: list[str] = []
        for name in ("secret", "nothing"):
            try:
                result = await client.call_tool(
                    "call_tool" if deferred else name, call(name) if deferred else {}
                )
                told.append(text_of(result).replace(name, "TOOL"))
            except MCPError as fault:
                told.append(f"{fault.error.code} {fault.error.message}".replace(name, "TOOL"))
    assert told[0] == told[1] and not RAN


async def test_i8_the_same_guard_holds_in_a_loop_of_ones_own():
    guard, alice = (
        PolicyGuard(POLICY, approvals=Approvals()),
        RoundContext(principal=Identity.of("app", "alice")),
    )
    view = Toolset(delete, secret).view()
    message = {
        "role": "assistant",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "delete", "arguments": '{"path": "a"}'}},
            {"id": "2", "type": "function", "function": {"name": "secret", "arguments": "{}"}},
        ],
    }
    plan = await ToolRound.from_openai(message, view).apply(guard)
    report = await plan.run_pending(context=alice)
    (question,) = report.questions
    assert 'Arguments: {"path": "a"}' in question.question and not RAN
    plan.answer(question.id, {"decision": "allow once"})
    await plan.run_pending(context=alice)
    assert {result.id: result.result.text for result in plan.results} == {
        "1": "deleted a",
        "2": "Unknown tool: secret",
    }
    assert RAN == ["a"]


@pytest.mark.parametrize("era", ERAS)
async def test_i8_limits_of_a_server_hold_for_its_clients(era: str):
    server = ToolsetServer(Toolset(delete), limits={"delete": Limits(rate="1/day")})
    async with connected(server, era) as client:
        assert not (await client.call_tool("delete", {"path": "a"})).is_error
        assert "limited to 1 call in 86400 s" in text_of(await client.call_tool("delete", {"path": "b"}))
    assert RAN == ["a"]


async def test_i8_what_nobody_limits_or_judges_has_no_guard(tmp_path: Path):
    server = ToolsetServer(Toolset(delete), approvals=tmp_path / "approvals")
    async with server:
        assert not (await server.call_tool("delete", {"path": "a"})).is_error
        assert not (tmp_path / "approvals").exists()


class Stamped:
    """A hook that adds a value to the arguments that no other run has."""

    def __init__(self) -> None:
        self.made = 0

    async def __call__(self, call: ToolCall) -> RunNormally:
        self.made += 1
        return RunNormally({**call.arguments, "stamp": f"stamp {self.made}"})


@tool
def remove(path: str, stamp: str = "") -> str:
    """Delete a file."""
    RAN.append(f"{path} with {stamp}")
    return f"deleted {path}"


def stamping(approvals: Approvals, **options: Any) -> ToolsetServer:
    rules = Rules(hooks=HookSet())
    rules.hooks.execution("remove")(Stamped())
    return ToolsetServer(
        Toolset(remove), rules=rules, policy=Policy(ask=["remove"]), approvals=approvals, **options
    )


@pytest.mark.parametrize("era", ERAS)
async def test_u122_a_call_to_which_a_hook_adds_a_fresh_value_is_asked_about_once_and_runs_as_asked(era: str):
    person = Person({"decision": "allow once"}, {"decision": "allow once"})
    async with connected(stamping(Approvals()), era, elicitation_callback=person) as client:
        for path in "ab":
            assert text_of(await client.call_tool("remove", {"path": path})) == f"deleted {path}"
    shown = [question.partition('"stamp": "')[2].partition('"')[0] for question in person.questions]
    assert len(set(shown)) == 2
    assert RAN == [f"a with {shown[0]}", f"b with {shown[1]}"]


@pytest.mark.parametrize("era", ERAS)
async def test_u122_an_approval_lets_the_arguments_run_that_were_shown_and_only_once(era: str):
    approvals = Approvals()
    async with connected(stamping(approvals), era) as client:
        for number in (1, 2):
            first = await client.call_tool("remove", {"path": "a"})
            again = await client.call_tool("remove", {"path": "a"})
            (waits,) = approvals.waiting()
            for refused in (first, again):
                assert refused.is_error and refused.meta is not None
                assert refused.meta["mcp-toolset/approval"]["id"] == waits.id
            assert (await client.call_tool("remove", {"path": "b"})).is_error
            (other,) = [one for one in approvals.waiting() if one.id != waits.id]
            approvals.decide(waits.id, "granted")
            assert (await client.call_tool("remove", {"path": "b"})).is_error
            approvals.decide(other.id, "granted")
            assert not (await client.call_tool("remove", {"path": "b"})).is_error
            assert not (await client.call_tool("remove", {"path": "a"})).is_error
            assert not approvals.waiting() and len(RAN) == 2 * number
            for ran, shown in zip(RAN[-2:], (other, waits), strict=True):
                assert f'"{ran.partition(" with ")[2]}"' in shown.arguments
    assert len(set(RAN)) == 4


async def test_i8_a_policy_that_a_reload_brings_has_approvals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOOLSET_APPROVALS", str(tmp_path / "approvals"))
    folder = Folder(tmp_path)
    folder.write({"one": folder.entry("a")})
    with anyio.fail_after(BOUND):
        async with folder.server() as server:
            await server.settled()
            assert server.extensions.get("approvals") is None
            folder.write({"one": folder.entry("a")}, permissions={"ask": ["one/a"]})
            await server.reload(timeout=BOUND)
            assert (await server.call_tool("one_a")).text.count("mcp-toolset approvals grant") == 1
            assert server.extensions["approvals"]
