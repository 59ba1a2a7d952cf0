"""A model of the program answers tools that ask for one, for clients that lend none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.asking import ERAS, Model, Person, connected, text_of

from mcp_toolset import (
    CallReport,
    Rules,
    SampledMessage,
    SamplingRequest,
    ToolContext,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import DefinitionError

pytestmark = pytest.mark.anyio


class Own:
    """A model of the program that numbers its messages."""

    def __init__(self) -> None:
        self.asked: list[SamplingRequest] = []

    async def __call__(self, request: SamplingRequest) -> SampledMessage:
        self.asked.append(request)
        text = f"message {len(self.asked)}"
        return SampledMessage.of(text, model="m-1", usage={"input": 10, "output": 2})


@tool
async def write(context: ToolContext, times: int) -> list[str]:
    """Have a model write."""
    found = [await context.sample("Write.", max_tokens=9, system="Short.") for _ in range(times)]
    return [message.text for message in found]


def served(model: Any, *more: Any, **options: Any) -> ToolsetServer:
    return ToolsetServer(Toolset(write, *more), capabilities=["sample", "ask"], sampler=model, **options)


@pytest.mark.parametrize("mode", ERAS)
async def test_j7_a_client_without_a_model_gets_messages_of_the_programs_model(mode: str) -> None:
    model, reports = Own(), list[CallReport]()
    async with connected(served(model, rules=Rules(observers=[reports.append])), mode) as client:
        result = await client.call_tool("write", {"times": 2})
    assert result.structured_content == {"result": ["message 1", "message 2"]}
    first, second = model.asked
    assert (first.tool, first.max_tokens, first.system) == ("write", 9, "Short.")
    assert first.messages[0]["content"]["text"] == "Write."
    assert first.call == second.call != "" and first.key != second.key
    assert [(report.tool, dict(report.usage)) for report in reports] == [
        ("write", {"input": 20, "output": 4})
    ]


@pytest.mark.parametrize("mode", ERAS)
async def test_j7_a_client_that_lends_its_model_is_asked(mode: str) -> None:
    model, lent = Own(), Model()
    async with connected(served(model), mode, sampling_callback=lent) as client:
        result = await client.call_tool("write", {"times": 1})
    assert result.structured_content == {"result": ["sample 1"]} and model.asked == []


@pytest.mark.parametrize("mode", ERAS)
async def test_j7_a_call_that_runs_again_with_an_answer_gets_the_same_message(mode: str) -> None:
    model, reports = Own(), list[CallReport]()

    @tool
    async def draft(context: ToolContext) -> str:
        """Write, and ask whether it is good."""
        message = await context.sample("Write.")
        answer = await context.ask(f"Is {message.text!r} good?")
        return f"{message.text}: {answer.content['answer']}"

    person, server = Person({"answer": "yes"}), served(model, draft, rules=Rules(observers=[reports.append]))
    async with connected(server, mode, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("draft", {})) == "message 1: yes"
    assert len(model.asked) == 1
    assert sum(dict(report.usage).get("output", 0) for report in reports) == 2


async def test_j7_the_audit_log_has_the_tokens_of_the_call(tmp_path: Path) -> None:
    async with served(Own(), audit=tmp_path / "a.jsonl") as server:
        await server.call_tool("write", {"times": 3})
        await server.call_tool("write", {"times": 0})
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    calls = [line for line in lines if line.get("tool") == "write"]
    assert [line.get("usage") for line in calls] == [{"input": 30, "output": 6}, None]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda request: "text", "text"),
        (lambda request: 7, "the sampler of this server returned int; return a text"),
        (lambda request: 1 / 0, "write failed: division by zero"),
    ],
)
async def test_j7_what_a_sampler_returns_is_a_message_or_an_error(
    model: Callable[[Any], Any], told: str
) -> None:
    async with served(model) as server:
        result = await server.call_tool("write", {"times": 1})
    assert told in result.text


@pytest.mark.parametrize("model", ["gpt", True])
def test_j7_a_server_refuses_what_is_no_function(model: Any) -> None:
    with pytest.raises(DefinitionError, match="sampler is a function of a SamplingRequest, not"):
        served(model)
