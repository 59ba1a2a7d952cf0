"""Resources, prompts and completions: what a client reads beside the tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import mcp_types
from mcp_types import BlobResourceContents, Resource, ResourceTemplate, TextResourceContents

from mcp_toolset import Prompts, Reference, ToolContext

from .samples import PNG

WATCHED: Final = "test://watched-resource"
_TEMPLATE: Final = "test://template/{id}/data"
_FROM_TEMPLATE: Final = re.compile(r"test://template/([^/]+)/data")
_TEXTS: Final = {
    "test://static-text": "This is the content of the static text resource.",
    WATCHED: "Watched resource content",
}
_IDS: Final = ("100", "101", "123", "200")
_PLACES: Final = ("paris", "park", "party", "peak", "pier")


class EverythingResources:
    """Two texts, a picture and a template; the watched one changes when it is told to."""

    def __init__(self) -> None:
        self._updated: dict[object, Callable[[str], None]] = {}
        self._changes = 0

    async def list_resources(self) -> Sequence[Resource]:
        """The resources that have an address of their own."""
        return [
            Resource(
                name="static-text",
                title="A text",
                uri="test://static-text",
                description="A text that never changes.",
                mime_type="text/plain",
                annotations=mcp_types.Annotations(audience=["user"], priority=0.5),
            ),
            Resource(
                name="static-binary",
                uri="test://static-binary",
                description="A picture that never changes.",
                mime_type="image/png",
            ),
            Resource(
                name="watched-resource",
                uri=WATCHED,
                description="A text to subscribe to; test_touch_resource changes it.",
                mime_type="text/plain",
            ),
        ]

    async def list_resource_templates(self) -> Sequence[ResourceTemplate]:
        """The template."""
        return [
            ResourceTemplate(
                name="template",
                uri_template=_TEMPLATE,
                description="Data by its id.",
                mime_type="application/json",
            )
        ]

    async def read_resource(self, uri: str) -> Sequence[TextResourceContents | BlobResourceContents]:
        """The contents at `uri`; raises `LookupError` where there is nothing."""
        if uri == WATCHED:
            return [_text(uri, f"{_TEXTS[uri]}, changed {self._changes} times")]
        if uri in _TEXTS:
            return [_text(uri, _TEXTS[uri])]
        if uri == "test://static-binary":
            return [BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)]
        if match := _FROM_TEMPLATE.fullmatch(uri):
            data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
            return [TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))]
        raise LookupError("Resource not found")

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """The list never changes."""
        return lambda: None

    def on_update(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` when the watched resource was touched."""
        key = object()
        self._updated[key] = callback
        return lambda: self._updated.pop(key, None) and None

    def touch(self) -> None:
        """Change the watched resource."""
        self._changes += 1
        for callback in list(self._updated.values()):
            callback(WATCHED)


def _text(uri: str, text: str) -> TextResourceContents:
    return TextResourceContents(uri=uri, mime_type="text/plain", text=text)


def _said(text: str) -> mcp_types.PromptMessage:
    return mcp_types.PromptMessage(role="user", content=mcp_types.TextContent(type="text", text=text))


def everything_prompts() -> Prompts:
    """A prompt of each kind."""
    prompts = Prompts()

    @prompts.add
    def test_simple_prompt() -> str:
        """A text and nothing to fill in."""
        return "This is a simple prompt for testing."

    @prompts.add(title="A prompt to fill in")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """A text with two arguments.

        Args:
            arg1: The first test argument.
            arg2: The second test argument.
        """
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @prompts.add
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[mcp_types.PromptMessage]:
        """A resource and what to do with it.

        Args:
            resourceUri: The address of the resource.
        """
        contents = _text(resourceUri, "Embedded resource content for testing.")
        embedded = mcp_types.EmbeddedResource(type="resource", resource=contents)
        return [
            mcp_types.PromptMessage(role="user", content=embedded),
            _said("Please process the embedded resource above."),
        ]

    @prompts.add
    def test_prompt_with_image() -> list[mcp_types.PromptMessage]:
        """A picture and what to do with it."""
        image = mcp_types.ImageContent(type="image", data=PNG, mime_type="image/png")
        return [mcp_types.PromptMessage(role="user", content=image), _said("Please analyze the image above.")]

    @prompts.add
    async def test_input_required_result_prompt(context: ToolContext) -> str:
        """A prompt that asks the user before it is written."""
        form = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
        answer = await context.ask("What context should the prompt use?", form, key="user_context")
        return f"Use the following context: {answer.content.get('context', 'none')}"

    return prompts


async def completed(reference: Reference, argument: str, value: str, others: Mapping[str, str]) -> list[str]:
    """Values that start with what was typed: places for prompts, ids for the template."""
    known = _PLACES if isinstance(reference, mcp_types.PromptReference) else _IDS
    return [word for word in known if word.startswith(value)]
