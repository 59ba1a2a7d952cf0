"""Loops that the application owns, with the providers' libraries as they are (L1, A16).

A model cannot be had here: a local endpoint says what is scripted, and keeps what it was asked. The
libraries, the wire and everything of ours is real.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from tests.extensions.model_loop.endpoint import Calls, Endpoint, message, scripted
from tests.extensions.model_loop.loop_tools import TOOLS
from tests.support.warm import Warm

from mcp_toolset import HookSet, Reject, RunNormally, ToolCall
from mcp_toolset.extensions.model_loop.tool_round import ToolRoundPlan
from mcp_toolset.rounds import ToolRound

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]

FIRST: Calls = [
    ("a1", "add", {"a": 20, "b": 22}),
    ("a2", "shout", {"text": "hello"}),
    ("a3", "delete", {"id": "7"}),
    ("a4", "add", {"a": 1}),
]
SECOND: Calls = [
    ("b1", "pay", {"amount": 5}),
    ("b2", "add", {"a": 1, "b": 2}),
    ("b3", "book", {"seat": "2A"}),
]
SCRIPT: list[Calls | str] = [FIRST, SECOND, "All done."]
"""Several rounds: parallel calls with a refused and a wrong one; a manual call and a question; the end."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with scripted(SCRIPT) as made:
        yield made


EXPECTED = {
    "a1": "42",
    "a2": "HELLO",
    "a3": "Rejected: ask a person first",
    "a4": 'Rejected: Invalid arguments for add: "b" is a required property',
    "b1": '{"receipt":5}',
    "b2": "3",
    "b3": "yes to seat 2A?",
}


def guard() -> HookSet:
    hooks = HookSet()

    @hooks.execution("delete")
    async def ask_first(call: ToolCall, input: dict[str, Any]) -> RunNormally | Reject:
        return Reject("ask a person first")

    return hooks


async def first_process(round: ToolRound, messages: list[Any], path: Path) -> ToolRoundPlan | None:
    """One round: to its end, or, where it waits for somebody, as far as it goes and into a file."""
    plan = await round.apply(guard())
    report = await plan.run_pending()
    if not (report.manual or report.questions):
        return plan
    await anyio.Path(path).write_text(json.dumps({"messages": messages, "round": plan.to_state()}))
    return None


def second_process(
    provider: str, endpoint: Endpoint, path: Path, clients: Warm
) -> subprocess.CompletedProcess[str]:
    keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    urls = {"OPENAI_BASE_URL": f"{endpoint.url}/v1", "ANTHROPIC_BASE_URL": endpoint.url}
    command = clients.command("-m", "tests.extensions.model_loop.resume", provider, str(path))
    environment = {"PATH": os.environ["PATH"], **keys, **urls}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def finished(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout) == (0, "All done.\n"), done.stderr
    assert done.stderr == "awaiting_user\n"


async def test_l1_a16_an_openai_loop_is_taken_up_by_a_second_process(
    endpoint: Endpoint, tmp_path: Path, clients: Warm
):
    messages: list[Any] = [{"role": "user", "content": "Do it all."}]
    view, path = TOOLS.view(), tmp_path / "round.json"
    tools: Any = view.to_openai()
    async with AsyncOpenAI(api_key="none", base_url=f"{endpoint.url}/v1") as client:
        while True:
            reply = await client.chat.completions.create(model="m", messages=messages, tools=tools)
            round = ToolRound.from_openai(reply.choices[0].message, view)
            plan = await first_process(round, messages, path)
            if plan is None:
                break
            messages += plan.commit().to_openai()
    finished(second_process("openai", endpoint, path, clients))
    final = endpoint.asked[-1]["messages"]
    told = {said["tool_call_id"]: said["content"] for said in final if said["role"] == "tool"}
    assert list(told.items()) == list(EXPECTED.items())
    assert [said["role"] for said in final] == [
        "user",
        "assistant",
        *["tool"] * 4,
        "assistant",
        *["tool"] * 3,
    ]
    assert len(endpoint.asked) == 3


async def test_l1_a16_a_responses_loop_is_taken_up_by_a_second_process(
    endpoint: Endpoint, tmp_path: Path, clients: Warm
):
    items: list[Any] = [{"role": "user", "content": "Do it all."}]
    view, path = TOOLS.view(), tmp_path / "round.json"
    tools: Any = view.to_openai_responses()
    async with AsyncOpenAI(api_key="none", base_url=f"{endpoint.url}/v1") as client:
        while True:
            reply = await client.responses.create(model="m", input=items, tools=tools)
            plan = await first_process(ToolRound.from_openai_responses(reply, view), items, path)
            if plan is None:
                break
            items += plan.commit().to_openai_responses()
    finished(second_process("responses", endpoint, path, clients))
    final = endpoint.asked[-1]["input"]
    told = {item["call_id"]: item["output"] for item in final if item.get("type") == "function_call_output"}
    assert list(told.items()) == list(EXPECTED.items())
    assert [item["id"] for item in final if item.get("type") == "reasoning"] == ["r", "r"]


async def test_l1_a16_an_anthropic_loop_is_taken_up_by_a_second_process(
    endpoint: Endpoint, tmp_path: Path, clients: Warm
):
    messages: list[Any] = [{"role": "user", "content": "Do it all."}]
    view, path = TOOLS.view(), tmp_path / "round.json"
    export = view.export("anthropic")
    async with AsyncAnthropic(api_key="none", base_url=endpoint.url) as client:
        while True:
            reply = await client.messages.create(
                model="m", max_tokens=100, messages=messages, **export.request()
            )
            round = ToolRound.from_anthropic(reply, view, export=export)
            plan = await first_process(round, messages, path)
            if plan is None:
                break
            messages += plan.commit().to_anthropic()
    finished(second_process("anthropic", endpoint, path, clients))
    final = endpoint.asked[-1]["messages"]
    assert [said["role"] for said in final] == ["user", "assistant", "user", "assistant", "user"]
    blocks = [block for said in (final[2], final[4]) for block in said["content"]]
    assert {block["tool_use_id"]: block["content"][0]["text"] for block in blocks} == EXPECTED
    assert [block["tool_use_id"] for block in blocks if block.get("is_error")] == ["a3", "a4"]
    assert final[3]["content"] == message(SECOND)["content"]
