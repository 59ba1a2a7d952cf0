"""Turns of every provider, read from its library's objects and from dictionaries, and given back (O7)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import Response

from mcp_toolset import HookSet, ToolCall, ToolContext, ToolResult, Toolset, ToolView, tool
from mcp_toolset.errors import GrantError, RoundError
from mcp_toolset.rounds import ToolRound

pytestmark = pytest.mark.anyio


@tool
async def look(at: str, closely: bool = False) -> str:
    """Look at something."""
    return f"saw {at}"


@tool
async def fail() -> str:
    """Fail always."""
    raise ValueError("dark")


@tool
async def draw(kind: str) -> ToolResult:
    """Draw a picture."""
    image = {"type": "image", "mimeType": kind, "data": "AAAA"}
    return ToolResult.of_content([{"type": "text", "text": "here"}, {"type": "text", "text": ""}, image])


@tool
async def nothing() -> ToolResult:
    """Say nothing."""
    return ToolResult.of_text("")


VIEW = Toolset(look, fail, draw, nothing).view()

USES: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "text", "text": "Let me look."},
    {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}},
    {"type": "tool_use", "id": "c2", "name": "fail", "input": {}},
    {"type": "tool_use", "id": "c3", "name": "nothing", "input": {}},
]


def anthropic_said(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "assistant", "content": blocks}


def anthropic_library(blocks: list[dict[str, Any]]) -> Message:
    nulls = [block | ({"citations": None} if block["type"] == "text" else {}) for block in blocks]
    usage = {"input_tokens": 1, "output_tokens": 1}
    fields = {"id": "m", "type": "message", "model": "x", "stop_reason": "tool_use", "usage": usage}
    return Message.model_validate({**fields, "stop_sequence": None, **anthropic_said(nulls)})


async def committed(round: ToolRound) -> Any:
    plan = await round.apply(HookSet())
    return plan.commit(await plan.run_pending())


@pytest.mark.parametrize("form", [anthropic_said, anthropic_library])
async def test_l1_anthropic_tool_uses_are_answered_in_one_user_message(form: Any):
    said, told = (await committed(ToolRound.from_anthropic(form(USES), VIEW))).to_anthropic()
    assert said == {"role": "assistant", "content": USES}
    assert told["role"] == "user"
    assert told["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "saw sky"}]},
        {
            "type": "tool_result",
            "tool_use_id": "c2",
            "content": [{"type": "text", "text": "fail failed: dark"}],
            "is_error": True,
        },
        {"type": "tool_result", "tool_use_id": "c3"},
    ]


@pytest.mark.parametrize("content", ["Hello.", [{"type": "text", "text": "Hello."}]])
async def test_l1_an_anthropic_turn_without_calls_commits_to_itself(content: Any):
    message = {"role": "assistant", "content": content}
    assert (await committed(ToolRound.from_anthropic(message, VIEW))).to_anthropic() == [message]


@pytest.mark.parametrize("kind", ["image/png", "image/tiff"])
async def test_o7_anthropic_gets_the_images_that_it_takes(kind: str):
    use = {"type": "tool_use", "id": "c1", "name": "draw", "input": {"kind": kind}}
    _, told = (await committed(ToolRound.from_anthropic(anthropic_said([use]), VIEW))).to_anthropic()
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    shown = {
        "image/png": {"type": "image", "source": source},
        "image/tiff": {"type": "text", "text": "[image/tiff: not shown here]"},
    }
    assert told["content"][0]["content"] == [{"type": "text", "text": "here"}, shown[kind]]


async def test_l22_anthropic_input_that_is_no_object_is_an_issue():
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": ["sky"]}
    round = ToolRound.from_anthropic(anthropic_said([use]), VIEW)
    assert round.issues[0].reason == "invalid_json"


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ({"role": "user", "content": []}, "found role 'user'"),
        ("Hi.", "messages.create"),
        ({"role": "assistant", "content": 7}, "not a list of blocks"),
        ({"role": "assistant", "content": [7]}, r"content\[0\]"),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1"}]},
            r"content\[0\] .* not a tool use",
        ),
    ],
)
def test_l14_what_is_no_anthropic_message_is_refused(message: object, fault: str):
    with pytest.raises(RoundError, match=fault):
        ToolRound.from_anthropic(message, VIEW)


ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "r", "summary": []},
    {
        "type": "function_call",
        "id": "fc",
        "call_id": "c1",
        "name": "look",
        "arguments": '{"at": "sky"}',
        "status": "completed",
    },
    {"type": "custom_tool_call", "id": "ct", "call_id": "c2", "name": "shell", "input": "ls"},
]


def response(items: list[dict[str, Any]]) -> Response:
    fields = {"id": "r", "object": "response", "created_at": 0, "model": "x", "status": "completed"}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return Response.model_validate({**fields, **rest, "output": items})


@pytest.mark.parametrize(
    "form", [response, lambda items: response(items).output, list, lambda items: {"output": items}]
)
async def test_l1_responses_items_are_answered_by_items(form: Any):
    round = ToolRound.from_openai_responses(form(ITEMS), VIEW)
    plan = await round.apply(HookSet())
    plan.submit("c2", "a.txt")
    assert plan.commit(await plan.run_pending()).to_openai_responses() == [
        *ITEMS,
        {"type": "function_call_output", "call_id": "c1", "output": "saw sky"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "a.txt"},
    ]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"id": "r"}, "its output items"),
        ([7], r"output\[0\]"),
        ([{"type": "function_call", "name": "look"}], r"output\[0\] .* not a function call"),
    ],
)
def test_l14_what_is_no_response_is_refused(given: object, fault: str):
    with pytest.raises(RoundError, match=fault):
        ToolRound.from_openai_responses(given, VIEW)


async def test_l1_plain_calls_fit_every_provider():
    done = await committed(ToolRound.from_calls([ToolCall("look", {"at": "sky"}, "c1")], VIEW))
    assert done.to_openai()[0]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at":"sky"}'}
    assert done.to_anthropic()[0]["content"] == [USES[2]]
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"sky"}'}
    assert done.to_openai_responses()[0] == call


@pytest.mark.parametrize("other", ["to_openai", "to_openai_responses"])
async def test_l14_a_turn_goes_back_only_to_where_it_came_from(other: str):
    done = await committed(ToolRound.from_anthropic(anthropic_said(USES), VIEW))
    with pytest.raises(RoundError, match=r"came from anthropic; use to_anthropic\(\)"):
        getattr(done, other)()


async def test_o7_an_export_leads_back_from_its_names_and_its_strict_arguments():
    view = Toolset(look).renamed({"look": "a.look"}).view()
    export = view.export("openai", strict=True)
    (offered,) = export.tools
    name = offered["function"]["name"]
    (public,) = view
    assert name != public
    arguments = json.dumps({"at": "sky", "closely": None})
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": [call]}
    )
    assert ToolRound.from_openai(message, view).calls == ()
    round = ToolRound.from_openai(message, view, export=export)
    assert [(made.name, made.arguments) for made in round.calls] == [(public, {"at": "sky"})]
    said, told = (await committed(round)).to_openai()
    assert said["tool_calls"] == [call]
    assert told["content"] == "saw sky"


async def test_o7_u59_a_deferred_tool_may_be_called_where_the_provider_searched_for_it():
    deferred = ToolView(binding for binding in Toolset(look).deferred().bindings())
    use = anthropic_said([USES[2]])
    with pytest.raises(RoundError, match=r"look is a deferred tool.*ToolRound\.of\(message, export\)"):
        ToolRound.from_anthropic(use, deferred)
    export = deferred.export("anthropic")
    assert [call.id for call in ToolRound.from_anthropic(use, deferred, export=export).calls] == ["c1"]


def test_x1_h17_a_deferred_tool_runs_by_name_only_while_it_is_what_the_provider_showed():
    (shown,) = Toolset(look).deferred().bindings()
    export = ToolView([shown]).export("anthropic")
    use = anthropic_said([USES[2]])
    for moved in (
        replace(shown, definition=shown.definition.described("Look, and erase.")),
        replace(shown, tool_id="another"),
        replace(shown, source="elsewhere"),
    ):
        (issue,) = ToolRound.from_anthropic(use, ToolView([moved]), export=export).issues
        assert issue.reason == "changed_tool"
    resident = ToolView([replace(shown, deferred=False)]).export("anthropic")
    (issue,) = ToolRound.from_anthropic(use, ToolView([shown]), export=resident).issues
    assert issue.reason == "unavailable_tool"


async def test_x1_a_gate_is_asked_in_a_round_as_in_a_served_call():
    def shut(call: ToolCall, context: ToolContext) -> None:
        raise GrantError("no live grant")

    (shown,) = Toolset(look).deferred().bindings()
    view = ToolView([replace(shown, gate=shut)])
    plan = ToolRound.from_anthropic(anthropic_said([USES[2]]), view, export=view.export("anthropic")).plan
    (done,) = (await plan.run_pending()).results
    assert done.result.is_error and "no live grant" in done.result.text


def test_l22_a_name_that_was_not_exported_is_unknown():
    export = VIEW.export("anthropic")
    use = {"type": "tool_use", "id": "c1", "name": "nowhere", "input": {}}
    round = ToolRound.from_anthropic(anthropic_said([use]), VIEW, export=export)
    assert round.issues[0].reason == "unknown_tool"
