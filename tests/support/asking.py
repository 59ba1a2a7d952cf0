"""People at clients who answer, refuse or are absent, and clients of both eras in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp import Client

from mcp_toolset import ToolsetServer

ERAS = ("legacy", "auto")


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


class Person:
    """Answers each question in turn with the next of some answers; keeps what was asked."""

    def __init__(self, *answers: dict[str, Any] | str) -> None:
        self.answers = list(answers)
        self.asked: list[types.ElicitRequestFormParams] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return types.ElicitResult.model_validate({"action": answer})
        return types.ElicitResult(action="accept", content=answer)

    @property
    def questions(self) -> list[str]:
        return [params.message for params in self.asked]


class Model:
    """Answers each request for a sample with its number."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        self.asked.append(params.model_dump(by_alias=True, exclude_none=True))
        said = types.TextContent(type="text", text=f"sample {len(self.asked)}")
        return types.CreateMessageResult(role="assistant", content=said, model="scripted")


@asynccontextmanager
async def connected(server: ToolsetServer, mode: str, **options: Any) -> AsyncGenerator[Client]:
    with anyio.fail_after(40):
        async with server, Client(server.lowlevel, mode=mode, cache=None, **options) as client:
            yield client
