import json
import unicodedata
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.calling import listed, tool_table

from mcp_toolset import ToolCall, ToolContext, ToolDefinition, ToolResult, rejection_reason
from mcp_toolset.errors import CallError
from mcp_toolset.middleware import OutputFormatter, PermissionChecker

pytestmark = pytest.mark.anyio

NOBODY = ToolContext()
OUTPUT = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}


class Person(ToolContext):
    """A client with somebody who answers questions."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def request(self, method: str, params: Any) -> dict[str, Any]:
        self.asked.append((method, params))
        if self.answer is None:
            await anyio.sleep_forever()
        if isinstance(self.answer, Exception):
            raise self.answer
        assert isinstance(self.answer, dict)
        return self.answer


async def through(
    middleware: Any, wire: dict[str, Any], *, output: Any = None, context: ToolContext = NOBODY
) -> tuple[ToolResult, int]:
    """A result after a middleware, and how often the tool ran."""
    ran = 0

    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        nonlocal ran
        ran += 1
        return ToolResult(wire)

    definition = ToolDefinition("probe", output_schema=output)
    bound = listed(definition, execute)
    dispatch = tool_table([bound], middleware=[middleware])
    with anyio.fail_after(30):
        return await dispatch.call(ToolCall("probe", {}), context), ran


async def decided(policy: Any, context: ToolContext = NOBODY, **options: Any) -> bool:
    """True if the call ran; a refusal must be a marked one, by policy."""
    result, ran = await through(PermissionChecker(policy, **options), {"content": []}, context=context)
    if not ran:
        reason = rejection_reason(result)
        assert reason is not None and reason.source == "policy"
        assert reason.reason == "probe is not permitted by the policy of this server"
    return ran == 1


async def later(call: ToolCall) -> Any:
    return "allow"


async def test_n4_allow_runs_and_deny_does_not():
    assert await decided(lambda call: "allow")
    assert await decided(later)
    assert not await decided(lambda call: "deny")


@pytest.mark.parametrize("answer", [None, True, 1, "", "ALLOW", "yes"])
async def test_n4_an_answer_that_is_none_of_the_three_denies(answer: Any):
    assert not await decided(lambda call: answer)


async def test_n4_a_policy_that_raises_lets_nothing_run():
    def fail(call: ToolCall) -> Any:
        raise RuntimeError("no policy file")

    result, ran = await through(PermissionChecker(fail), {})
    assert (result.is_error, ran) == (True, 0)
    assert "policy file" not in result.text


@pytest.mark.parametrize(
    ("answer", "runs"),
    [
        ({"action": "accept", "content": {}}, True),
        ({"action": "decline"}, False),
        ({"action": "cancel"}, False),
        ({}, False),
        (CallError("this client cannot be asked"), False),
    ],
)
async def test_n4_ask_runs_only_if_the_person_accepts(answer: Any, runs: bool):
    person = Person(answer)
    assert await decided(lambda call: "ask", person) is runs
    ((method, question),) = person.asked
    assert method == "elicitation/create"
    assert question["message"] == "Allow the call of probe with {}?"


async def refused(context: ToolContext, **options: Any) -> str:
    """Why a call did not run that the user had to be asked about."""
    checker = PermissionChecker(lambda call: "ask", **options)
    result, ran = await through(checker, {"content": []}, context=context)
    reason = rejection_reason(result)
    assert not ran and reason is not None and reason.source == "policy"
    return reason.reason


async def test_n4_ask_without_a_client_is_a_refusal_that_says_so():
    told = await refused(NOBODY)
    assert told.startswith("probe did not run: the policy of this server has the user asked about this call")
    assert "this call has no client that answers requests" in told
    assert told.endswith("use a client that shows questions (elicitation), or have the policy allow the call")


async def test_n4_silence_is_a_no_and_the_reason_says_so():
    assert "and there was no answer within 0.01 s" in await refused(Person(None), ask_timeout=0.01)


def texts(*parts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": part} for part in parts]}


async def test_n5_a_result_that_fits_is_passed_on_as_it_is():
    wire = {**texts("12345", "67890"), "structuredContent": {"a": 1}}
    result, _ = await through(OutputFormatter(10), wire)
    assert result.wire is wire


async def test_n5_text_is_cut_over_all_blocks_and_a_note_says_so():
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    wire = texts("12345", "67890", "more")
    wire["content"].insert(1, image)
    result, _ = await through(OutputFormatter(7), wire)
    assert result.content == [
        {"type": "text", "text": "12345"},
        image,
        {"type": "text", "text": "67"},
        {"type": "text", "text": "[7 characters were cut off; ask for less]"},
    ]


async def test_n5_nothing_follows_after_the_place_of_the_cut():
    result, _ = await through(OutputFormatter(2), texts("ae\u0301", "b"))
    assert [block["text"] for block in result.content] == ["a", "[3 characters were cut off; ask for less]"]


async def test_n5_what_else_a_block_and_a_result_have_is_kept():
    block = {"type": "text", "text": "12345", "annotations": {"priority": 1}}
    result, _ = await through(OutputFormatter(2), {"content": [block], "_meta": {"a": 1}, "isError": True})
    assert result.content[0] == {**block, "text": "12"}
    assert result.wire["_meta"] == {"a": 1} and result.is_error
    assert block["text"] == "12345"


async def test_n5_embedded_text_counts_and_is_cut():
    resource = {"uri": "file:///a", "mimeType": "text/plain", "text": "12345"}
    wire = {"content": [{"type": "resource", "resource": resource}, {"type": "text", "text": "x"}]}
    result, _ = await through(OutputFormatter(3), wire)
    assert result.content[0] == {"type": "resource", "resource": {**resource, "text": "123"}}
    assert "3 characters were cut off" in result.text and len(result.content) == 2


ROWS = {"rows": ["x" * 10] * 10}


async def test_n5_structured_content_that_is_too_long_is_left_out_with_a_note():
    result, _ = await through(OutputFormatter(50), {**texts("short"), "structuredContent": ROWS})
    assert "structuredContent" not in result.wire
    assert result.text == "short\n[the structured content was too long and is left out; ask for less]"


async def test_n5_short_structured_content_stays_beside_text_that_is_cut():
    result, _ = await through(OutputFormatter(10), {**texts("x" * 20), "structuredContent": {"a": 1}})
    assert result.structured == {"a": 1}
    assert "[10 characters were cut off; the structured content is whole; ask for less]" in result.text


async def test_n5_promised_structured_content_stays_whole_and_valid():
    wire = {**texts(json.dumps(ROWS)), "structuredContent": ROWS}
    result, _ = await through(OutputFormatter(50), wire, output=OUTPUT)
    assert result.structured == ROWS
    assert not result.is_error and "cut off; the structured content is whole" in result.text


async def test_n5_an_error_promises_nothing():
    wire = {**texts("no"), "structuredContent": ROWS, "isError": True}
    result, _ = await through(OutputFormatter(50), wire, output=OUTPUT)
    assert "structuredContent" not in result.wire and result.is_error


async def test_n5_an_open_question_is_passed_on_as_it_is():
    wire = {"resultType": "input_required", "inputRequests": {"a": "x" * 99}}
    result, _ = await through(OutputFormatter(5), wire, output=OUTPUT)
    assert result.wire is wire


@pytest.mark.parametrize("block", [{"type": "text"}, {"type": "text", "text": None}, {"type": "resource"}])
async def test_n5_a_malformed_block_of_a_stranger_is_passed_on(block: Any):
    result, _ = await through(OutputFormatter(5), {"content": [block]})
    assert result.content == [block]


WHOLE = {
    "accent": "e\u0301",
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "skin tone": "\U0001f44d\U0001f3fd",
    "flag": "\U0001f1f3\U0001f1f4",
    "heart": "\u2764\ufe0f",
    "keycap": "1\ufe0f\u20e3",
    "line end": "\r\n",
    "hangul": "\u1112\u1161\u11ab",
    "devanagari": "\u0915\u094d\u0937\u093f",
}


async def cut(text: str, limit: int) -> str:
    result, _ = await through(OutputFormatter(limit), texts(text))
    kept = result.content[0]["text"]
    return "" if kept.startswith("[") else kept


@pytest.mark.parametrize("character", [name for name in WHOLE if name != "devanagari"])
@pytest.mark.parametrize("count", [1, 3])
async def test_n5_no_character_is_split(character: str, count: int):
    whole = WHOLE[character]
    for limit in range(1, len(whole) * (count + 1)):
        kept = await cut(whole * (count + 1), limit)
        assert kept == whole * (limit // len(whole))


@given(st.text(st.sampled_from("ab\r\n" + "".join(WHOLE.values())), min_size=1), st.integers(1, 20))
async def test_n5_what_is_kept_is_a_beginning_within_the_limit_that_ends_at_a_character(
    text: str, limit: int
):
    kept = text if len(text) <= limit else await cut(text, limit)
    assert text.startswith(kept) and len(kept) <= limit
    if len(kept) < len(text):
        assert not kept.endswith("\u200d")
        assert not kept or not unicodedata.combining(text[len(kept)])


@given(st.lists(st.text("ab\u0301", max_size=9), max_size=5), st.integers(1, 20))
async def test_n5_no_more_than_the_limit_comes_through(parts: list[str], limit: int):
    result, _ = await through(OutputFormatter(limit), texts(*parts))
    total = sum(map(len, parts))
    if total <= limit:
        assert result.wire == texts(*parts)
        return
    *kept, note = [block["text"] for block in result.content]
    assert sum(map(len, kept)) <= limit
    assert note == f"[{total - sum(map(len, kept))} characters were cut off; ask for less]"
