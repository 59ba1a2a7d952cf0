"""Members of bodies that are read-only: no request has them, however deep they lie."""

from __future__ import annotations

import json
import re
from typing import Any

import anyio
import pytest
from tests.extensions.openapi.shop import shop

from mcp_toolset import OpenAPIToolset, ToolsetServer

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openapi")]

ID: dict[str, Any] = {"type": "integer", "readOnly": True}
TEXT: dict[str, Any] = {"type": "string"}


def thing(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": [*required]} if required else {})}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


PET = thing("id", "name", id=ID, name=TEXT)
STAMPED = thing("id", id=ID)
LOOSE = thing("id", "name", id={"type": "integer"}, name=TEXT)
NODE = thing("id", id=ID, name=TEXT, children={"type": "array", "items": ref("Node")})

CASES: dict[str, tuple[Any, Any, Any]] = {
    "in an object": (PET, {"name": "a"}, {"name": "a", "id": 1}),
    "by a reference": (ref("Pet"), {"name": "a"}, {"name": "a", "id": 1}),
    "in a list": ({"type": "array", "items": ref("Pet")}, [{"name": "a"}], [{"name": "a", "id": 1}]),
    "in a map": (
        {"type": "object", "additionalProperties": ref("Pet")},
        {"x": {"name": "a"}},
        {"x": {"name": "a", "id": 1}},
    ),
    "in itself": (
        ref("Node"),
        {"children": [{"children": [{"name": "a"}]}]},
        {"children": [{"children": [{"name": "a", "id": 1}]}]},
    ),
    "in a part": ({"allOf": [ref("Pet"), thing(size=TEXT)]}, {"name": "a"}, {"name": "a", "id": 1}),
    "in one of two parts": ({"allOf": [STAMPED, LOOSE]}, {"name": "a"}, {"name": "a", "id": 1}),
    "in one of two named parts": (
        {"allOf": [ref("Stamped"), ref("Loose")]},
        {"name": "a"},
        {"name": "a", "id": 1},
    ),
    "beside its parts": ({**STAMPED, "allOf": [ref("Nested")]}, {"name": "a"}, {"name": "a", "id": 1}),
    "required by another part": (
        {"allOf": [STAMPED, {"required": ["id", "name"]}, thing(name=TEXT)]},
        {"name": "a"},
        {"name": "a", "id": 1},
    ),
    "in what has branches": (
        {**STAMPED, "oneOf": [ref("Loose"), thing("size", size=TEXT)]},
        {"name": "a"},
        {"name": "a", "id": 1},
    ),
    "in a branch": ({"anyOf": [ref("Pet"), TEXT]}, {"name": "a"}, {"name": "a", "id": 1}),
    "said beside a reference": (
        thing(name=TEXT, owner={**ref("Loose"), "readOnly": True}),
        {"name": "a"},
        {"owner": {"id": 1, "name": "b"}},
    ),
    "said around a reference": (
        thing("owner", name=TEXT, owner={"allOf": [ref("Loose")], "readOnly": True}),
        {"name": "a"},
        {"owner": {"id": 1, "name": "b"}},
    ),
    "said by a part of the member": (
        thing("id", id={"allOf": [ref("Id"), {"description": "Its id."}]}, name=TEXT),
        {"name": "a"},
        {"name": "a", "id": 1},
    ),
    "that may be null": (
        {"type": "object", "nullable": True, "properties": PET["properties"]},
        {"name": "a"},
        {"name": "a", "id": 1},
    ),
}
SCHEMAS = {
    "Pet": PET,
    "Node": NODE,
    "Stamped": STAMPED,
    "Loose": LOOSE,
    "Nested": {"allOf": [ref("Loose")]},
    "Id": ID,
}


def api(schema: Any, version: str) -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": thing("it", it=schema)}}}
    return {
        "openapi": version,
        "info": {"title": "One", "version": "1"},
        "paths": {"/things": {"post": {"operationId": "go", "requestBody": body, "responses": {}}}},
        "components": {"schemas": SCHEMAS},
    }


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
@pytest.mark.parametrize("case", CASES)
async def test_g1_what_is_read_only_is_neither_offered_nor_sent(case: str, version: str) -> None:
    schema, fits, misfits = CASES[case]
    with anyio.fail_after(60):
        async with ToolsetServer(
            OpenAPIToolset(api(schema, version), transport=shop()), keep=False
        ) as server:
            (tool,) = server.tools()
            good = await server.call_tool("go", {"it": fits})
            bad = await server.call_tool("go", {"it": misfits})
    assert not good.is_error, good.text
    assert json.loads(json.loads(good.text)["body"]) == {"it": fits}
    assert bad.is_error, "it was sent"
    if case != "in a branch":
        assert "read-only" in bad.text and re.search('"(id|owner)"', bad.text), bad.text
    assert not re.search('"(id|owner)": {', json.dumps(tool["inputSchema"]))


async def test_g1_what_one_schema_has_read_only_another_one_may_have() -> None:
    both = thing(first={"allOf": [ref("Stamped"), ref("Loose")]}, second=ref("Loose"))
    with anyio.fail_after(60):
        async with ToolsetServer(OpenAPIToolset(api(both, "3.0.3"), transport=shop()), keep=False) as server:
            it = {"first": {"name": "a"}, "second": {"id": 1, "name": "b"}}
            result = await server.call_tool("go", {"it": it})
    assert not result.is_error, result.text


async def test_g1_a_path_and_a_read_only_member_may_have_one_name() -> None:
    said = api(PET, "3.0.3")
    said["paths"] = {"/things/{id}": said["paths"]["/things"]}
    body = said["paths"]["/things/{id}"]["post"]["requestBody"]
    body["content"]["application/json"]["schema"] = ref("Pet")
    with anyio.fail_after(60):
        async with ToolsetServer(OpenAPIToolset(said, transport=shop()), keep=False) as server:
            result = await server.call_tool("go", {"id": "7", "name": "a"})
    asked = json.loads(result.text)
    assert (asked["path"], json.loads(asked["body"])) == ("/things/7", {"name": "a"})


async def test_g1_what_is_read_only_is_refused_where_a_large_schema_is_cut() -> None:
    deep = thing(**{f"long_name_of_a_member_{number}": thing(a=thing(b=TEXT)) for number in range(1000)})
    large = thing(id=ID, name=TEXT, rest=deep)
    with anyio.fail_after(60):
        async with ToolsetServer(OpenAPIToolset(api(large, "3.0.3"), transport=shop()), keep=False) as server:
            (tool,) = server.tools()
            good = await server.call_tool("go", {"it": {"name": "a"}})
            bad = await server.call_tool("go", {"it": {"name": "a", "id": 1}})
    assert len(json.dumps(tool["inputSchema"])) < 50_000
    assert not good.is_error and bad.is_error
