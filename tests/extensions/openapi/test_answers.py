"""Output schemas: the shape of answers, which results keep though the API does not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import jsonschema_rs
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from mcp_toolset import OpenAPIToolset, ToolsetServer

pytestmark = [pytest.mark.anyio, pytest.mark.needs("openapi")]

PET: dict[str, Any] = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string", "minLength": 3, "description": "What it is called."},
        "state": {"enum": ["sold", "here"], "type": "string"},
        "password": {"type": "string", "writeOnly": True},
        "tags": {"type": "array", "items": {"type": "string"}},
        "parent": {"$ref": "#/components/schemas/Pet"},
        "owner": {"oneOf": [{"type": "string"}, {"$ref": "#/components/schemas/Owner"}]},
        "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}
OWNER = {"allOf": [{"type": "object", "properties": {"age": {"type": "number", "nullable": True}}}]}
REF = {"$ref": "#/components/schemas/Pet"}


def api(*responses: tuple[str, Any]) -> dict[str, Any]:
    """A document of one operation whose answers have these statuses and schemas."""
    said = {
        status: {
            "description": "ok",
            **({} if schema is None else {"content": {"application/json": {"schema": schema}}}),
        }
        for status, schema in responses
    }
    return {
        "openapi": "3.0.3",
        "info": {"title": "One", "version": "1"},
        "paths": {"/things": {"get": {"operationId": "go", "responses": said}}},
        "components": {"schemas": {"Pet": PET, "Owner": OWNER, "Bare": {"type": "object"}}},
    }


def answering(answer: Response) -> Starlette:
    async def reply(request: Request) -> Response:
        return answer

    return Starlette(routes=[Route("/things", reply)])


@asynccontextmanager
async def opened(said: Any, answer: Response, **options: Any) -> AsyncIterator[ToolsetServer]:
    options = {"output_schemas": True, **options}
    tools = OpenAPIToolset(said, transport=answering(answer), **options)
    with anyio.fail_after(60):
        async with ToolsetServer(tools, keep=False) as server:
            yield server


async def published(said: Any, **options: Any) -> Any:
    async with opened(said, JSONResponse({}), **options) as server:
        (tool,) = server.tools()
        return tool.get("outputSchema")


async def test_g1_output_schemas_are_published_on_demand() -> None:
    assert await published(api(("200", REF)), output_schemas=False) is None
    schema = await published(api(("200", REF), ("404", {"type": "string"})))
    assert schema["type"] == "object"
    assert [*schema["properties"]] == ["id", "name", "state", "tags", "parent", "owner", "extra"]
    assert schema["properties"]["name"] == {"type": "string", "description": "What it is called."}
    assert "required" not in json.dumps(schema) and "enum" not in json.dumps(schema)


@pytest.mark.parametrize(
    "responses",
    [
        [("200", REF), ("204", None)],
        [("200", REF), ("202", {"type": "object", "properties": {"job": {}}})],
        [("200", {"type": "array", "items": REF})],
        [("200", {"oneOf": [REF, {"type": "object", "properties": {"job": {}}}]})],
        [("200", {"type": "object", "additionalProperties": REF})],
        [("200", {"type": "object"})],
        [("404", REF)],
        [],
    ],
)
async def test_g1_answers_that_may_be_something_else_have_no_output_schema(responses: Any) -> None:
    assert await published(api(*responses)) is None


WHOLE = {
    "id": 1,
    "name": "a",
    "state": "new",
    "tags": ["x"],
    "parent": {"id": 2, "name": "b"},
    "owner": {"age": None, "town": "Oslo"},
    "extra": {"a": 1},
    "unknown": {"b": None},
}


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        ({}, {}),
        ({"id": None}, {"id": None}),
        ({"id": "1", "name": 5}, {"id": None, "name": None}),
        ({"tags": ["x", 1]}, {"tags": None}),
        ({"tags": "x"}, {"tags": None}),
        ({"parent": {"id": "2", "name": "b"}}, {"parent": {"name": "b"}}),
        (
            {"parent": {"parent": {"parent": {"tags": {}, "id": 3}}}},
            {"parent": {"parent": {"parent": {"id": 3}}}},
        ),
        ({"owner": "me"}, {}),
        ({"owner": 5}, {"owner": None}),
        ({"owner": {"age": "old", "town": "Oslo"}}, {"owner": {"town": "Oslo"}}),
        ({"extra": {"a": 1, "b": "x"}}, {"extra": {"a": 1}}),
        ({"id": 1.0}, {}),
        ({"id": True}, {"id": None}),
    ],
)
async def test_g1_structured_content_fits_though_the_answer_does_not(changed: Any, lost: Any) -> None:
    answer = {**WHOLE, **changed}
    async with opened(api(("200", REF)), JSONResponse(answer)) as server:
        (tool,) = server.tools()
        result = await server.call_tool("go", {})
    assert not result.is_error, result.text
    assert jsonschema_rs.is_valid(tool["outputSchema"], result.structured)
    left = {**answer, **lost}
    assert result.structured == {
        name: one for name, one in left.items() if name not in lost or one is not None
    }
    assert json.loads(result.content[0]["text"]) == answer
    assert len(result.content) == (2 if lost else 1), "a note says what the structured content lacks"


@pytest.mark.parametrize(
    "answer", [JSONResponse([1]), PlainTextResponse("well"), Response(status_code=204), JSONResponse(None)]
)
async def test_g1_an_answer_that_is_no_object_is_a_text_beside_an_empty_one(answer: Response) -> None:
    async with opened(api(("200", REF)), answer) as server:
        result = await server.call_tool("go", {})
    assert not result.is_error and result.structured == {}
    assert "does not fit" in result.content[-1]["text"]


async def test_g1_an_error_of_the_api_has_no_structured_content() -> None:
    async with opened(api(("200", REF)), JSONResponse({"no": 1}, status_code=404)) as server:
        result = await server.call_tool("go", {})
    assert result.is_error and result.structured is None


async def test_g1_an_answer_that_is_too_much_to_check_is_a_text() -> None:
    answer = {"tags": ["x"] * 300_000}
    async with opened(api(("200", REF)), JSONResponse(answer)) as server:
        result = await server.call_tool("go", {})
    assert not result.is_error, result.text[:500]
    assert result.structured == {}
