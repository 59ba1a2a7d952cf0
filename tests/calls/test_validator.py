from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.support.calling import listed, tool_table

from mcp_toolset import Complete, HookSet, ToolCall, ToolContext, ToolDefinition, ToolResult
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, InvalidOutputError
from mcp_toolset.middleware import CallNext, SchemaValidator

pytestmark = pytest.mark.anyio

PERSON = {
    "type": "object",
    "properties": {
        "mail": {"type": "string", "format": "email"},
        "born": {"type": "string", "format": "date"},
    },
}
INPUT = {
    "type": "object",
    "properties": {
        "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
        "at": {"type": "string", "format": "date-time"},
        "code": {"type": "string", "pattern": "^(?=a)"},
        "odd": {"type": "string", "format": "made-up"},
    },
    "$defs": {"person": PERSON},
}
OUTPUT = {"type": "object", "properties": {"url": {"type": "string", "format": "uri"}}, "required": ["url"]}
DEFINITION = ToolDefinition("invite", input_schema=INPUT, output_schema=OUTPUT)
GOOD = ToolResult.of_structured({"url": "https://example.org/a"})


class Tool:
    def __init__(self, answer: Any = GOOD, definition: ToolDefinition = DEFINITION) -> None:
        self.answer = answer
        self.ran = 0
        self.definition = definition

    def dispatch(self, *middleware: Any, hooks: HookSet | None = None) -> Any:
        async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
            self.ran += 1
            return self.answer

        bound = listed(self.definition, execute)
        return tool_table([bound], middleware=middleware, hooks=hooks)

    async def call(self, arguments: dict[str, Any], *middleware: Any, **options: Any) -> ToolResult:
        with anyio.fail_after(30):
            dispatch = self.dispatch(*(middleware or [SchemaValidator()]), **options)
            return await dispatch.call(ToolCall(self.definition.name, arguments))


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"people": [{"mail": "ann@example.org"}, {"mail": "nobody"}]}, "people[1].mail"),
        ({"people": [{"born": "2020-02-30"}]}, "people[0].born"),
        ({"at": "2026-01-02T03:04:05"}, "at"),
    ],
)
async def test_n6_formats_are_asserted_all_through_the_schema_and_nothing_runs(
    arguments: dict[str, Any], place: str
):
    tool = Tool()
    result = await tool.call(arguments)
    assert result.is_error and tool.ran == 0
    assert result.text.startswith(f"Invalid arguments for invite: {place}: ")
    plain = Tool()
    assert (await plain.dispatch().call(ToolCall("invite", arguments))) is GOOD


async def test_n6_what_fits_passes_and_unknown_formats_say_nothing():
    tool = Tool()
    fits = {
        "people": [{"mail": "ann@example.org", "born": "2020-02-29"}],
        "at": "2026-01-02T03:04:05Z",
        "code": "abc",
        "odd": "anything",
    }
    assert await tool.call(fits) is GOOD and tool.ran == 1


async def test_n6_a_pattern_that_needs_backtracking_is_still_checked():
    assert "code" in (await Tool().call({"code": "b"})).text


async def test_n8_a_structured_result_is_held_against_its_schema_formats_included():
    result = await Tool(ToolResult.of_structured({"url": "no url"})).call({})
    assert result.is_error
    assert result.text.startswith("invite returned a result that does not fit its output schema: url: ")
    passed = ToolResult.of_structured({"url": "no url"})
    assert await Tool(passed).call({}, SchemaValidator(output=False)) is passed


@pytest.mark.parametrize(
    "broken", [ToolResult.of_text("lost"), ToolResult.of_structured({}), ToolResult.of_structured({"url": 5})]
)
async def test_n8_what_middleware_inside_makes_of_a_result_is_checked(broken: ToolResult):
    async def spoil(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        await next()
        return broken

    assert await Tool().call({}, spoil) is broken
    result = await Tool().call({}, SchemaValidator(), spoil)
    assert result.is_error and "invite" in result.text


async def test_n8_the_answer_of_a_hook_is_checked_too():
    hooks = HookSet()

    @hooks.execution("invite")
    async def answer(call: ToolCall, input: dict[str, Any]) -> Any:
        return Complete({"url": "no url"})

    assert (await Tool().call({}, hooks=hooks)).is_error


@pytest.mark.parametrize("answer", [ToolResult.of_error("no"), ToolResult({"resultType": "input_required"})])
async def test_n8_errors_and_open_questions_promise_nothing(answer: ToolResult):
    assert await Tool(answer).call({}) is answer


async def test_n6_a_replaced_tool_is_held_against_its_new_schema():
    validator, arguments = SchemaValidator(), {"at": "tomorrow"}
    assert (await Tool().call(arguments, validator)).is_error
    changed = replace(DEFINITION, input_schema={"type": "object"}, output_schema=None)
    answer = ToolResult.of_text("fine")
    assert await Tool(answer, changed).call(arguments, validator) is answer
    assert (await Tool().call(arguments, validator)).is_error


def test_n7_a_dispatch_of_the_applications_own_gets_typed_errors():
    validator = SchemaValidator()
    validator.check_arguments(ToolCall("invite", {}), DEFINITION)
    validator.check_result(ToolCall("invite", {}), DEFINITION, GOOD)
    validator.check_result(ToolCall("plain", {}), ToolDefinition("plain"), ToolResult.of_text(""))
    with pytest.raises(InvalidArgumentsError, match="Invalid arguments for invite: at: "):
        validator.check_arguments(ToolCall("invite", {"at": "now"}), DEFINITION)
    with pytest.raises(InvalidArgumentsError, match="people"):
        validator.check_arguments(ToolCall("invite", {"people": 5}), DEFINITION)
    with pytest.raises(InvalidOutputError, match="returned no structured content"):
        validator.check_result(ToolCall("invite", {}), DEFINITION, ToolResult.of_text(""))


def test_n6_a_schema_that_cannot_be_compiled_is_refused_with_the_place():
    broken = ToolDefinition("odd", input_schema={"type": "object", "properties": {"a": {"type": 5}}})
    with pytest.raises(
        DefinitionError, match="tool 'odd': inputSchema is not a usable schema at /properties"
    ):
        SchemaValidator().check_arguments(ToolCall("odd", {}), broken)
