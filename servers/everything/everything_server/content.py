"""Tools whose results have each form that the protocol knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import mcp_types
from pydantic import Field

from mcp_toolset import Tool, Toolset, tool

from .samples import PNG, WAV

SCHEMA_2020_12: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""A schema with the keywords of JSON Schema 2020-12 that must reach a client as they are."""


@tool
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> mcp_types.ImageContent:
    """Return a picture."""
    return mcp_types.ImageContent(type="image", data=PNG, mime_type="image/png")


@tool
def test_audio_content() -> mcp_types.AudioContent:
    """Return a sound."""
    return mcp_types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")


def _embedded(uri: str, mime_type: str, text: str) -> mcp_types.EmbeddedResource:
    contents = mcp_types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return mcp_types.EmbeddedResource(type="resource", resource=contents)


@tool
def test_embedded_resource() -> mcp_types.EmbeddedResource:
    """Return a resource within the result."""
    return _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@tool
def test_resource_link() -> mcp_types.ResourceLink:
    """Return a link to a resource."""
    return mcp_types.ResourceLink(
        type="resource_link", name="static-text", uri="test://static-text", mime_type="text/plain"
    )


@tool
def test_multiple_content_types() -> list[
    mcp_types.TextContent | mcp_types.ImageContent | mcp_types.EmbeddedResource
]:
    """Return a text, a picture and a resource."""
    return [
        mcp_types.TextContent(type="text", text="Multiple content types test:"),
        mcp_types.ImageContent(type="image", data=PNG, mime_type="image/png"),
        _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ]


@tool
def test_error_handling() -> str:
    """Fail, as a tool may."""
    raise ValueError("This tool intentionally returns an error for testing")


@tool
def test_x_mcp_header(
    region: Annotated[
        str, Field(description="Also sent as a header.", json_schema_extra={"x-mcp-header": "Region"})
    ] = "none",
) -> str:
    """Take an argument that HTTP clients repeat in a header."""
    return f"region={region}"


def _described(arguments: Mapping[str, Any]) -> str:
    return ", ".join(sorted(arguments)) or "nothing"


json_schema_2020_12_tool: Final = Tool.from_schema(
    "json_schema_2020_12_tool",
    dict(SCHEMA_2020_12),
    _described,
    description="Take arguments by a schema with many keywords of JSON Schema 2020-12.",
)

CONTENT: Final = Toolset(
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_resource_link,
    test_multiple_content_types,
    test_error_handling,
    test_x_mcp_header,
    json_schema_2020_12_tool,
)
