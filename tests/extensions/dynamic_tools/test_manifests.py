"""Providers that list manifests: found by name and summary, schemas fetched when a tool is resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from tests.support.contexts import OnWire

from mcp_toolset import (
    DynamicToolset,
    ManifestProvider,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolManifest,
    ToolResult,
    ToolsetServer,
)
from mcp_toolset.cli.main import cli
from mcp_toolset.errors import CallError, DefinitionError, InvalidArgumentsError
from mcp_toolset.rounds import ToolSearch

pytestmark = pytest.mark.anyio

READ_ONLY = {"readOnlyHint": True}


class Warehouse(ManifestProvider):
    """Tools by name, each with its summary, and contracts that a test can change."""

    def __init__(self, *names: str, annotations: Any = None) -> None:
        self.manifests = [
            ToolManifest(name, f"Count the {name} in the warehouse.", annotations=annotations)
            for name in names
        ]
        self.parameter = "shelf"
        self.promised: dict[str, Any] = {}
        self.said: ToolDefinition | None = None
        self.fault: BaseException | None = None
        self.held: anyio.Event | None = None
        self.fetched: list[str] = []
        self.ran: list[ToolCall] = []

    async def list_manifests(self) -> list[ToolManifest]:
        return self.manifests

    async def resolve(self, name: str) -> ToolDefinition | None:
        self.fetched.append(name)
        if self.held is not None:
            await self.held.wait()
        if self.fault is not None:
            raise self.fault
        if not any(one.name == name for one in self.manifests):
            return None
        schema = {
            "type": "object",
            "properties": {self.parameter: {"type": "integer"}},
            "required": [self.parameter],
            "additionalProperties": False,
        }
        return self.said or ToolDefinition(name, f"Count {name}.", schema, **self.promised)

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        self.ran.append(call)
        return ToolResult.of_text(f"{call.name}: 7")


async def asked(server: ToolsetServer, name: str, session: str = "one", **arguments: Any) -> ToolResult:
    return await server.call(ToolCall(name, arguments), OnWire(session))


async def resolved(server: ToolsetServer, *ids: str, session: str = "one") -> list[dict[str, Any]]:
    return (await asked(server, "resolve_tools", session, ids=list(ids))).structured["tools"]


def serving(provider: ManifestProvider, **options: Any) -> ToolsetServer:
    return ToolsetServer(DynamicToolset(provider, name="stock", **options))


async def test_s5_schemas_are_fetched_when_a_tool_is_resolved_and_not_before() -> None:
    provider = Warehouse("bolts", "nuts", "washers", annotations=READ_ONLY)
    async with serving(provider) as server:
        assert "bolts" not in server.registry.view()
        found = (await asked(server, "search_tools", query="count the nuts")).structured["hits"]
        assert found[0]["id"] == "stock_nuts" and found[0]["signature"] == "nuts(…)"
        assert provider.fetched == []

        [tool] = await resolved(server, "nuts")
        assert provider.fetched == ["nuts"]
        assert tool["definition"]["description"] == "Count nuts."
        assert list(tool["definition"]["inputSchema"]["properties"]) == ["shelf"]
        assert tool["definition"]["annotations"] == READ_ONLY

        for calls in ("call_tool", "call_read_only_tool"):
            done = await asked(server, calls, grant=tool["grant"], arguments={"shelf": 3})
            assert (done.text, done.is_error) == ("nuts: 7", False)
        assert provider.ran[0].arguments == {"shelf": 3}
        wrong = await asked(server, "call_tool", grant=tool["grant"], arguments={"shelf": "three"})
        assert wrong.is_error and "nuts(shelf: integer)" in wrong.text
        assert len(provider.ran) == 2


async def test_s5_several_contracts_are_fetched_at_once_and_each_fault_is_of_its_own_tool() -> None:
    provider = Warehouse("bolts", "nuts")
    async with serving(provider) as server:
        provider.held = anyio.Event()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:

                async def both() -> None:
                    first, second, other = await resolved(server, "bolts", "nuts", "screws")
                    assert (first["status"], second["status"]) == ("granted", "granted")
                    assert other["status"] == "not_available"

                group.start_soon(both)
                while len(provider.fetched) < 2:
                    await anyio.lowlevel.checkpoint()
                provider.held.set()
        provider.fault = OSError("the inventory is closed")
        [tool] = await resolved(server, "nuts")
        assert tool["status"] == "not_available" and "the inventory is closed" in tool["reason"]


async def test_s5_a_fetch_has_a_deadline() -> None:
    provider = Warehouse("bolts")
    async with serving(provider, timeout=0.05) as server:
        provider.held = anyio.Event()
        with anyio.fail_after(20):
            [tool] = await resolved(server, "bolts")
        assert tool["reason"] == "stock: bolts could not be looked up in 0.05 s"


async def test_s5_a_call_is_refused_with_the_difference_when_the_contract_has_changed() -> None:
    provider = Warehouse("bolts")
    async with serving(provider) as server:
        [tool] = await resolved(server, "bolts")
        provider.parameter = "rack"
        refused = await asked(server, "call_tool", grant=tool["grant"], arguments={"shelf": 3})
        assert refused.is_error and not provider.ran
        assert "inputSchema.properties.shelf" in refused.text and "resolve it again" in refused.text
        # What was fetched for that call does not make the old grant valid.
        again = await asked(server, "call_tool", grant=tool["grant"], arguments={"rack": 3})
        assert again.is_error and "inputSchema.properties.rack" in again.text and not provider.ran
        assert 'resolve_tools {"ids": ["bolts"]}' in again.text
        [fresh] = await resolved(server, "bolts")
        assert (await asked(server, "call_tool", grant=fresh["grant"], arguments={"rack": 3})).text


async def test_s5_what_another_caller_resolves_does_not_change_what_a_grant_is_for() -> None:
    provider = Warehouse("bolts")
    async with serving(provider) as server:
        [tool] = await resolved(server, "bolts")
        provider.parameter = "rack"
        await resolved(server, "bolts", session="two")
        refused = await asked(server, "call_tool", grant=tool["grant"], arguments={"shelf": 3})
        assert refused.is_error and "has changed since it was granted" in refused.text
        assert not provider.ran


async def test_s5_a_contract_that_is_not_kept_any_more_is_fetched_for_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_toolset.extensions.dynamic_tools.MAX_CONTRACTS", 20)
    names = [f"part{number}" for number in range(22)]
    provider = Warehouse(*names)
    toolset = DynamicToolset(provider, name="stock")
    async with ToolsetServer(toolset) as server:
        [tool] = await resolved(server, "part0")
        for start in (1, 2):
            await resolved(server, *names[start : start + 20], session="two")
        fetched: list[int] = []
        for _ in range(2):
            before = len(provider.fetched)
            done = await asked(server, "call_tool", grant=tool["grant"], arguments={"shelf": 3})
            assert done.text == "part0: 7"
            fetched.append(len(provider.fetched) - before)
        # The second call finds what the first one has fetched, and looks whether it is still so.
        assert fetched == [2, 1]


async def test_s5_a_contract_cannot_be_worse_than_the_manifest_that_policies_have_judged() -> None:
    provider = Warehouse("bolts", annotations=READ_ONLY)
    async with serving(provider) as server:
        provider.said = ToolDefinition("bolts", annotations={"readOnlyHint": False})
        [tool] = await resolved(server, "bolts")
        assert tool["status"] == "not_available"
        assert "its contract says readOnlyHint False, and its manifest True" in tool["reason"]
        provider.said = ToolDefinition("nuts")
        [tool] = await resolved(server, "bolts")
        assert "the contract of 'nuts'" in tool["reason"]
        provider.said = ToolDefinition("bolts", input_schema={"type": "object", "properties": 7})
        [tool] = await resolved(server, "bolts")
        assert "is not a usable schema" in tool["reason"]


async def test_s5_a_result_is_held_against_the_contract() -> None:
    provider = Warehouse("bolts")
    provider.promised = {"output_schema": {"type": "object", "required": ["count"]}}
    async with serving(provider) as server:
        [tool] = await resolved(server, "bolts")
        done = await asked(server, "call_tool", grant=tool["grant"], arguments={"shelf": 3})
        assert done.is_error and "does not fit its output schema" in done.text


async def test_s5_the_host_calls_a_tool_by_name_with_its_contract_fetched() -> None:
    provider = Warehouse("bolts")
    async with serving(provider) as server:
        assert (await server.call_as_host("bolts", {"shelf": 3})).text == "bolts: 7"
        assert (await server.call_as_host("bolts", {"shelf": "x"})).is_error
    async with DynamicToolset(provider, name="stock") as tools:
        assert list(tools.view()) == []
        view = tools.view(deferred=True)
        assert (await view.execute("bolts", {"shelf": 3})).text == "bolts: 7"
        with pytest.raises(InvalidArgumentsError):
            await view.execute("bolts", {"rack": 3})
        provider.parameter = "rack"
        with pytest.raises(CallError, match="resolve it again"):
            await view.execute("bolts", {"shelf": 3})
        assert (await view.execute("bolts", {"rack": 3})).text == "bolts: 7"


async def test_s5_what_needs_a_schema_says_so() -> None:
    async with DynamicToolset(Warehouse("bolts"), name="stock") as tools:
        with pytest.raises(DefinitionError, match="'bolts'; a provider must be sent schemas"):
            tools.view(deferred=True).export("anthropic")
        with pytest.raises(DefinitionError, match="must be sent schemas"):
            ToolSearch(tools).export("anthropic")


async def test_s5_a_manifest_has_an_id_tags_and_a_place_in_the_next_list() -> None:
    provider = Warehouse("bolts", "nuts")
    provider.manifests[0] = ToolManifest("bolts", "Count the bolts.", id="b-1", tags=("metal",))
    async with DynamicToolset(provider, name="stock") as tools:
        first, second = tools.view(deferred=True).values()
        assert (first.tool_id, first.tags) == ("b-1", {"metal"})
        provider.manifests[1] = ToolManifest("nuts", "Count all nuts.")
        provider.manifests.append(ToolManifest("screws", id="b-1"))
        status = await tools.refresh()
        assert status.set_aside == (("screws", "it has the id 'b-1' of 'bolts'; give each its own"),)
        again, changed = tools.view(deferred=True).values()
        assert again is first and changed is not second
        assert changed.definition.description == "Count all nuts."


async def test_s5_a_changed_summary_leaves_a_grant_for_the_same_contract_valid() -> None:
    provider = Warehouse("bolts")
    toolset = DynamicToolset(provider, name="stock")
    async with ToolsetServer(toolset) as server:
        [tool] = await resolved(server, "bolts")
        provider.manifests = [ToolManifest("bolts", "Bolts, counted.")]
        await toolset.refresh()
        done = await asked(server, "call_tool", grant=tool["grant"], arguments={"shelf": 3})
        assert done.text == "bolts: 7"
        provider.manifests = []
        await toolset.refresh()
        gone = await asked(server, "call_tool", grant=tool["grant"], arguments={"shelf": 3})
        assert gone.is_error and len(provider.ran) == 1


PROGRAM = """
from mcp_toolset import DynamicToolset
from tests.extensions.dynamic_tools.test_manifests import Warehouse

tools = DynamicToolset(Warehouse("bolts"), name="stock")
"""


def test_s5_the_command_line_calls_a_tool_with_its_contract_fetched(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "stock.py"
    program.write_text(PROGRAM)
    done = CliRunner().invoke(cli, ["call", str(program), "bolts", "shelf=3"])
    assert (done.exit_code, capfd.readouterr().out) == (0, "bolts: 7\n")
    wrong = CliRunner().invoke(cli, ["call", str(program), "bolts", "shelf=x"])
    assert wrong.exit_code != 0 and wrong.exception is not None
    assert "it takes bolts(shelf: integer)" in repr(wrong.exception)


@pytest.mark.parametrize("given", [{"name": "b"}, ToolDefinition("b", "B.", {"type": "array"})])
async def test_s5_a_contract_that_cannot_be_used_is_told_of_its_tool_alone(given: Any) -> None:
    class Odd(ManifestProvider):
        async def list_manifests(self) -> list[ToolManifest]:
            return [ToolManifest("a", "A."), ToolManifest("b", "B.")]

        async def resolve(self, name: str) -> ToolDefinition:
            return given if name == "b" else ToolDefinition(name, "A.")

        async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
            return ToolResult.of_text("ran")

    async with ToolsetServer(DynamicToolset(Odd(), name="odd")) as server:
        tools = (await server.call_tool("resolve_tools", {"ids": ["a", "b"]})).structured["tools"]
    assert [one["status"] for one in tools] == ["granted", "not_available"]
    assert "odd: b cannot be used" in tools[1]["reason"]
