"""A server with a prompt, a resource and completions, and a client that reads all three."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp_types import PromptReference

from mcp_toolset import Prompts, Reference, Toolset, ToolsetServer
from mcp_toolset.testing import Client

LANGUAGES = ["Dutch", "French", "German"]
prompts = Prompts()


@prompts.add
def translate(text: str, language: str) -> str:
    """Translate a text."""
    return f"Translate into {language}: {text}"


class Handbook:
    """One resource that never changes."""

    async def list_resources(self) -> Sequence[Mapping[str, Any]]:
        return [{"uri": "shop://handbook", "name": "handbook", "mimeType": "text/plain"}]

    async def list_resource_templates(self) -> Sequence[Mapping[str, Any]]:
        return []

    async def read_resource(self, uri: str) -> Sequence[Mapping[str, Any]]:
        if uri != "shop://handbook":
            raise LookupError(f"no resource {uri}")
        return [{"uri": uri, "text": "Answer within a day."}]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


async def complete(reference: Reference, argument: str, value: str, others: Mapping[str, str]) -> list[str]:
    return [name for name in LANGUAGES if name.startswith(value)] if argument == "language" else []


async def main() -> None:
    server = ToolsetServer(Toolset(), resources=Handbook(), prompts=prompts, completions=complete)
    async with Client(server) as client:
        prompt = await client.get_prompt("translate", {"text": "tea", "language": "German"})
        print(prompt.messages[0].content.model_dump()["text"])
        page = await client.read_resource("shop://handbook")
        print(page.contents[0].model_dump()["text"])
        reference = PromptReference(type="ref/prompt", name="translate")
        found = await client.complete(reference, {"name": "language", "value": "F"})
        print(found.completion.values)


if __name__ == "__main__":
    asyncio.run(main())
