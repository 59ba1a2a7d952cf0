"""What the application offers itself, given as models of the SDK or in wire form."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from mcp_toolset import ToolContext, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

URI = "memo://one"


class Wire:
    """Resources and prompts as dictionaries."""

    async def list_resources(self) -> Sequence[Mapping[str, Any]]:
        return [{"uri": URI, "name": "one", "mimeType": "text/plain"}]

    async def list_resource_templates(self) -> Sequence[Mapping[str, Any]]:
        return [{"uriTemplate": "memo://{id}", "name": "memo"}]

    async def read_resource(self, uri: str) -> Sequence[Mapping[str, Any]]:
        return [{"uri": uri, "mimeType": "text/plain", "text": "hello"}]

    async def list_prompts(self) -> Sequence[Mapping[str, Any]]:
        return [{"name": "plan", "arguments": [{"name": "goal", "required": True}]}]

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], context: ToolContext
    ) -> Mapping[str, Any]:
        text = f"Plan {arguments['goal']}"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class Models(Wire):
    """The same as models of the SDK."""

    async def list_resources(self) -> Sequence[Any]:
        return [types.Resource.model_validate(wire) for wire in await super().list_resources()]

    async def list_resource_templates(self) -> Sequence[Any]:
        found = await super().list_resource_templates()
        return [types.ResourceTemplate.model_validate(wire) for wire in found]

    async def read_resource(self, uri: str) -> Sequence[Any]:
        found = await super().read_resource(uri)
        return [types.TextResourceContents.model_validate(wire) for wire in found]

    async def list_prompts(self) -> Sequence[Any]:
        return [types.Prompt.model_validate(wire) for wire in await super().list_prompts()]

    async def get_prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Any:
        return types.GetPromptResult.model_validate(await super().get_prompt(name, arguments, context))


async def everything(mode: Any, offers: Wire) -> list[dict[str, Any]]:
    """What a client reads of all that a server offers beside tools."""
    server = ToolsetServer(Toolset(), resources=offers, prompts=offers)
    with anyio.fail_after(30):
        async with Client(server.lowlevel, mode=mode) as client:
            answers = [
                await client.list_resources(),
                await client.list_resource_templates(),
                await client.read_resource(URI),
                await client.list_prompts(),
                await client.get_prompt("plan", {"goal": "tea"}),
            ]
    return [answer.model_dump(by_alias=True, mode="json", exclude={"meta"}) for answer in answers]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_what_is_given_in_wire_form_is_served_as_models_are(mode: Any) -> None:
    wire, models = await everything(mode, Wire()), await everything(mode, Models())
    assert wire == models
    assert wire[0]["resources"][0]["mimeType"] == "text/plain"
    assert wire[4]["messages"][0]["content"]["text"] == "Plan tea"


def values(value: str) -> Any:
    found = [f"{value}{number}" for number in range(101)]
    wire = {"values": found[:2], "total": 101, "hasMore": True}
    return {"values": found, "wire": wire, "model": types.Completion.model_validate(wire)}


@pytest.mark.parametrize(("form", "sent"), [("values", 100), ("wire", 2), ("model", 2)])
async def test_a_completion_is_values_or_a_whole_answer(form: str, sent: int) -> None:
    asked: list[Any] = []

    async def complete(reference: Any, argument: str, value: str, others: Mapping[str, str]) -> Any:
        asked.append((reference, argument, dict(others)))
        return values(value)[form]

    server = ToolsetServer(Toolset(), resources=Wire(), prompts=Wire(), completions=complete)
    prompt = types.PromptReference(type="ref/prompt", name="plan")
    template = types.ResourceTemplateReference(type="ref/resource", uri="memo://{id}")
    with anyio.fail_after(30):
        async with Client(server.lowlevel) as client:
            for reference in (prompt, template):
                answer = await client.complete(
                    reference, {"name": "goal", "value": "t"}, context_arguments={"a": "b"}
                )
                found = answer.completion
                assert (found.values[:2], len(found.values)) == (["t0", "t1"], sent)
                assert (found.total, found.has_more) == (101, True)
    assert asked == [(prompt, "goal", {"a": "b"}), (template, "goal", {"a": "b"})]


def test_prompts_are_declared_without_the_models_of_the_sdk() -> None:
    program = """
import sys
from mcp_toolset import Prompts, ToolContext
from mcp_toolset.tools.source import PromptProvider, ResourceProvider
prompts = Prompts()
@prompts.add
def plan(goal: str, context: ToolContext) -> str:
    return goal
print("mcp_types" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("False\n", "")
