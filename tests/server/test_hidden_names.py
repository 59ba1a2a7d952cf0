"""What an unknown id is answered with does not depend on tools that are hidden from the caller."""

from __future__ import annotations

import pytest

from mcp_toolset import Tool, ToolBinding, ToolCall, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.grants import AccessDenied

pytestmark = pytest.mark.anyio


class Caller(ToolContext):
    session = "one"
    protocol_version = "2025-11-25"


def named(name: str) -> Tool[..., str]:
    @tool(name=name)
    def secret(note: str = "") -> str:
        """Keep a secret of one user."""
        return note

    return secret


async def answer(guess: str, *names: str) -> str:
    """What a caller who may see the first tool alone is told of an id."""

    def access(binding: ToolBinding, context: ToolContext) -> AccessDenied | None:
        return None if binding.name == names[0] else AccessDenied(shown=False)

    server = ToolsetServer(Toolset(*map(named, names)).deferred(), access=access)
    async with server:
        told = await server.call(ToolCall("resolve_tools", {"ids": [guess]}), Caller())
    assert "secret_bob" not in guess and names[1] not in told.text.replace(guess, "")
    return told.text


@pytest.mark.parametrize(
    ("own", "guess", "other", "instead"),
    [
        ("secret_bob80c46", "secret_annd1fb6", "secret_carldfbdb", "secret_ann0ae07"),
        ("secret_bob56999", "secret_annb5e23", "secret_carlc548d", "secret_ann61fcb"),
    ],
)
async def test_i3_f34_an_unknown_id_is_answered_alike_whether_a_hidden_tool_has_it(
    own: str, guess: str, other: str, instead: str
) -> None:
    assert await answer(guess, own, guess, other) == await answer(guess, own, instead, other)


async def test_f34_the_callers_own_tools_are_still_proposed() -> None:
    assert "did you mean secret_ben12?" in await answer("secret_ben1", "secret_ben12", "unlike_any")
