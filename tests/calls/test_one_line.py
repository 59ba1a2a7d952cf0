"""Description hooks and descriptions apply to a view in one line, and an export decodes its own answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_toolset import Descriptions, HookSet, Rules, ToolDefinition, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError, RoundError, UnknownNameError, UnknownToolError

pytestmark = pytest.mark.anyio


@tool
def search(query: str, limit: int | None = None) -> str:
    """Search."""
    return f"{query} {limit}"


@tool(name="shop.order")
def order(article: str, note: str = "none") -> str:
    """Order."""
    return f"{article} {note}"


TOOLS = Toolset(search, order)


def texts(view: Any) -> dict[str, str]:
    return {name: view[name].definition.description for name in view}


def hooked() -> HookSet:
    hooks = HookSet()

    @hooks.description("search")
    async def told(definition: ToolDefinition) -> str:
        return f"{definition.description} Told."

    return hooks


async def test_u32_a_view_is_described_by_hooks_in_one_line():
    view = await TOOLS.view().with_texts(hooked())
    assert texts(view) == {"search": "Search. Told.", "shop.order": "Order."}
    with pytest.raises(UnknownNameError, match="did you mean search"):
        bad = HookSet()
        bad.description("serch")(hooked().description_hook("search"))  # type: ignore[arg-type]
        await TOOLS.view().with_texts(bad)


async def test_u32_a_hook_that_fails_leaves_its_tool_out_of_the_view():
    hooks = HookSet()

    @hooks.description(order)
    async def fails(definition: ToolDefinition) -> str:
        raise RuntimeError("no text")

    assert list(await TOOLS.view().with_texts(hooks)) == ["search"]


def message(provider: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(arguments)
    if provider == "openai":
        call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": text}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if provider == "openai_responses":
        return {"output": [{"type": "function_call", "call_id": "c1", "name": name, "arguments": text}]}
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": name, "input": arguments}],
    }


@pytest.mark.needs("model_loop")
@pytest.mark.parametrize("provider", ["openai", "openai_responses", "anthropic"])
async def test_u32_an_export_decodes_its_own_answers(provider: Any):

    from mcp_toolset.rounds import ToolRound

    export = TOOLS.view().export(provider, strict=True)
    (name,) = (sent for sent, public in export.names.items() if public == "shop.order")
    note: dict[str, Any] = {} if provider == "anthropic" else {"note": None}
    round = ToolRound.of(message(provider, name, {"article": "tea", **note}), export)
    assert not round.issues and [call.name for call in round.calls] == ["shop.order"]
    await round.plan.run_pending()
    assert round.plan.commit().results[0].result.text == "tea none"


@pytest.mark.needs("model_loop")
async def test_u32_an_export_says_what_it_cannot_read():

    from mcp_toolset.rounds import ToolRound

    with pytest.raises(DefinitionError, match=r"export\.call"):
        ToolRound.of({}, TOOLS.view().export("gemini"))
    with pytest.raises(RoundError):
        ToolRound.of({"role": "user"}, TOOLS.view().export("openai"))
    export = TOOLS.view().export("openai")
    round = ToolRound.of(message("openai", "gone", {}), export, known=("gone",))
    assert [issue.reason for issue in round.issues] == ["unavailable_tool"]


async def test_s2_descriptions_are_a_value_that_is_merged_and_passed_on():
    short = Descriptions({"search": "Find.", order: "Buy."})
    polite = short | {"search": "Please find."}
    assert dict(short) == {"search": "Find.", order: "Buy."} and len(polite) == 2
    expected = {"search": "Please find.", "shop.order": "Buy."}
    assert texts(await TOOLS.view().with_texts(polite)) == expected
    assert texts(TOOLS.described(polite).view()) == expected
    assert texts(await TOOLS.view().with_texts(Rules(descriptions=polite))) == expected
    async with ToolsetServer(TOOLS, rules=Rules(descriptions=polite)) as server:
        assert [shown["description"] for shown in server.tools()] == list(expected.values())
    assert texts(TOOLS.view())["search"] == "Search."


async def test_s2_descriptions_follow_their_tools_and_hooks_see_them():
    short = Descriptions({"search": "Find."})
    view = TOOLS.prefixed("x").view()
    for by in (short, short.prefixed("x")):
        assert texts(await view.with_texts(by))["x_search"] == "Find."
    both = Rules(descriptions=short, hooks=hooked())
    assert texts(await view.with_texts(both))["x_search"] == "Find. Told."
    assert (
        texts(await view.with_texts(both.merged(Rules(descriptions=Descriptions({"search": "Look."})))))[
            "x_search"
        ]
        == "Look. Told."
    )


async def test_s2_descriptions_of_no_tool_are_told():
    wrong = Descriptions({"serch": "Find."})
    with pytest.raises(UnknownNameError, match="did you mean search"):
        await TOOLS.view().with_texts(wrong)
    with pytest.raises(UnknownToolError, match="did you mean search"):
        TOOLS.described(wrong)
    with pytest.raises(DefinitionError, match="texts by tool"):
        Descriptions({"search": 3})  # type: ignore[dict-item]


@pytest.mark.needs("model_loop")
def test_u32_a_round_without_its_export_still_takes_one():

    from mcp_toolset.rounds import ToolRound

    export = TOOLS.view().export("openai", strict=True)
    sent = message("openai", "search", {"query": "tea", "limit": None})
    assert not ToolRound.from_openai(sent, TOOLS.view(), export=export).issues
