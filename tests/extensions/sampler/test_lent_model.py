"""A mounted server that asks for a model gets the program's, in calls of clients that lend none (J7)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from mcp import MCPError
from tests.interaction.desk import Desk
from tests.interaction.test_questions import HERE, upstreams
from tests.support.asking import Person, connected, text_of
from tests.support.warm import Warm

from mcp_toolset import (
    CallReport,
    RemoteToolset,
    Rules,
    SampledMessage,
    SamplingRequest,
    Toolset,
    ToolsetServer,
)
from mcp_toolset.errors import DefinitionError

pytestmark = pytest.mark.anyio


class Own:
    """A model of the program that repeats what it is told, and counts tokens."""

    def __init__(self) -> None:
        self.asked: list[SamplingRequest] = []

    async def __call__(self, request: SamplingRequest) -> SampledMessage:
        self.asked.append(request)
        told = request.messages[0]["content"]
        [text] = [told["text"]] if isinstance(told, dict) else [each["text"] for each in told]
        return SampledMessage.of(f"own {text}", model="m-1", usage={"output": 2})


@pytest.fixture(scope="module")
def targets(warm: Warm) -> Generator[dict[str, Any]]:
    with upstreams(warm, str(HERE / "asker.py")) as made:
        yield {name: target for name, target in made.items() if name.startswith(("stdio", "http"))}


@pytest.fixture(params=["legacy", "2026-07-28"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


def hub(targets: dict[str, Any], model: Any, **options: Any) -> ToolsetServer:
    mounts = [
        RemoteToolset(
            target, name=name, sampler=model, protocol="modern" if name.endswith("modern") else "auto"
        ).prefixed(name)
        for name, target in targets.items()
    ]
    return ToolsetServer(Toolset(*mounts), list_timeout=60, **options)


async def refusal(client: Any, tool: str) -> str:
    """Why a call has failed: a modern server may answer with an error of the protocol."""
    try:
        result = await client.call_tool(tool, {"tag": "t"})
    except MCPError as fault:
        return fault.message
    assert result.is_error
    return text_of(result)


async def test_j7_a_mounted_server_gets_the_programs_model_for_clients_without_one(
    targets: dict[str, Any], mode: str
) -> None:
    model, reports = Own(), list[CallReport]()
    server = hub(targets, model, rules=Rules(observers=[reports.append]))
    async with connected(server, mode) as client:
        await server.settled()
        for upstream in targets:
            reports.clear()
            result = await client.call_tool(f"{upstream}_write", {"tag": upstream})
            assert text_of(result) == f"own {upstream}"
            asked = model.asked[-1]
            assert (asked.server, asked.tool, asked.max_tokens) == (upstream, "write", 7)
            assert asked.system == "Be brief." and asked.call != ""
            assert [dict(report.usage) for report in reports] == [{"output": 2}]


async def test_j7_a_client_that_lends_its_model_is_asked_by_mounted_servers_itself(
    targets: dict[str, Any], mode: str
) -> None:
    model, desk = Own(), Desk()
    server = hub(targets, model)
    async with connected(server, mode, **desk.options) as client:
        await server.settled()
        for upstream in targets:
            await client.call_tool(f"{upstream}_lent", {"tag": "t"})
    assert len(desk.samples) == len(targets) and model.asked == []


async def test_j7_the_user_is_asked_and_the_model_writes_in_one_call(
    targets: dict[str, Any], mode: str
) -> None:
    model, reports = Own(), list[CallReport]()
    person = Person(*({"word": "yes"} for _ in targets))
    server = hub(targets, model, rules=Rules(observers=[reports.append]))
    async with connected(server, mode, elicitation_callback=person) as client:
        await server.settled()
        for upstream in targets:
            result = await client.call_tool(f"{upstream}_write_and_ask", {"tag": "t"})
            assert text_of(result) == "own t yes"
    assert len(person.asked) == len(targets)
    spent = sum(dict(report.usage).get("output", 0) for report in reports)
    assert spent == 2 * len(model.asked)


async def test_j7_tools_that_need_a_model_are_listed_to_clients_without_one(
    targets: dict[str, Any], mode: str
) -> None:
    server = hub(targets, Own())
    async with connected(server, mode) as client:
        await server.settled()
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert {f"{name}_lent" for name in targets} <= listed
        for upstream in targets:
            # It wants the model to call tools, which the bridge has not declared.
            assert "has not declared sampling" in await refusal(client, f"{upstream}_lent")


async def test_j7_calls_of_the_program_itself_get_the_model(targets: dict[str, Any]) -> None:
    model = Own()
    async with hub(targets, model) as server:
        await server.settled()
        for upstream in targets:
            assert (await server.call_tool(f"{upstream}_write", {"tag": "t"})).text == "own t"
    assert [asked.server for asked in model.asked] == list(targets)


async def test_j7_a_model_that_fails_is_told_to_the_server_and_no_secret_of_it(
    targets: dict[str, Any], mode: str
) -> None:
    def failing(request: SamplingRequest) -> str:
        raise RuntimeError("the key sk-1234 is refused")

    server = hub(targets, failing)
    async with connected(server, mode) as client:
        await server.settled()
        for upstream in targets:
            try:
                told = str(await client.call_tool(f"{upstream}_write", {"tag": "t"}))
            except Exception as fault:
                told = str(fault)
            assert "the model of the bridge failed: RuntimeError" in told and "sk-1234" not in told


def test_j7_a_sampler_goes_with_sessions_of_clients_alone() -> None:
    with pytest.raises(DefinitionError, match="callers share one session"):
        RemoteToolset("https://h/mcp", name="up", sampler=Own(), sessions="shared")
    wrong: Any = "gpt"
    with pytest.raises(DefinitionError, match="sampler is a function of a SamplingRequest, not 'gpt'"):
        RemoteToolset("https://h/mcp", name="up", sampler=wrong)
