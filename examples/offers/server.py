"""A server with a prompt, a resource and completions, and a client that reads all three."""

import asyncio
from collections.abc import Mapping

from mcp_types import PromptReference

from mcp_toolset import Prompts, Reference, Resources, Toolset, ToolsetServer
from mcp_toolset.testing import Client

LANGUAGES = ["Dutch", "French", "German"]
prompts = Prompts()
resources = Resources()


@prompts.add
def translate(text: str, language: str) -> str:
    """Translate a text."""
    return f"Translate into {language}: {text}"


@resources.add("shop://handbook")
def handbook() -> str:
    """How we answer."""
    return "Answer within a day."


@resources.add("shop://orders/{number}")
def order(number: int) -> dict[str, int]:
    """Read an order."""
    return {"number": number}


async def complete(reference: Reference, argument: str, value: str, others: Mapping[str, str]) -> list[str]:
    return [name for name in LANGUAGES if name.startswith(value)] if argument == "language" else []


async def main() -> None:
    server = ToolsetServer(Toolset(), resources=resources, prompts=prompts, completions=complete)
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
