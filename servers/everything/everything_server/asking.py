"""Tools that report, ask the user, use the client's model or look at its folders while they run.

Each works in both protocol eras: where a legacy client is asked at once, the call of a modern one ends with
the question and is run again with the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import anyio

from mcp_toolset import ToolContext, Toolset, tool

STEP: Final = 0.05
"""Seconds between two reports."""


def _object(**fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields)}


NAME: Final = _object(name={"type": "string"})
CONFIRMED: Final = _object(ok={"type": "boolean"})
USER: Final = _object(
    username={"type": "string", "description": "User's response"},
    email={"type": "string", "description": "User's email address"},
)
DEFAULTS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}


def _titled(*titles: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, 1)]


CHOICES: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": _titled("First Option", "Second Option", "Third Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": _titled("First Choice", "Second Choice", "Third Choice")},
        },
    },
}


@tool
async def test_tool_with_logging(context: ToolContext) -> str:
    """Send three log messages."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.log("info", message)
        await anyio.sleep(STEP)
    return "Tool with logging executed successfully"


@tool
async def test_logging_tool(context: ToolContext) -> str:
    """Send a log message, for clients that asked for some."""
    await context.log("info", "This message is for those who want it")
    return "logged"


@tool
async def test_tool_with_progress(context: ToolContext) -> str:
    """Report progress: 0, 50 and 100 of 100."""
    for progress in (0, 50, 100):
        await context.progress(progress, 100, f"Completed step {progress} of 100")
        await anyio.sleep(STEP)
    return "Tool with progress executed successfully"


@tool
async def test_sampling(prompt: str, context: ToolContext) -> str:
    """Have the client's model answer a prompt."""
    return f"LLM response: {(await context.sample(prompt, max_tokens=100)).text}"


async def _asked(context: ToolContext, message: str, form: Mapping[str, Any], *, key: str = "") -> str:
    answer = await context.ask(message, form, key=key)
    return f"action={answer.action}, content={json.dumps(dict(answer.content))}"


@tool
async def test_elicitation(message: str, context: ToolContext) -> str:
    """Ask the user for a name and an address."""
    return "User response: " + await _asked(context, message, USER)


@tool
async def test_streaming_elicitation(context: ToolContext) -> str:
    """Report progress, then ask the user for a name."""
    await context.progress(1, 2, "About to ask")
    return "User response: " + await _asked(context, "What is your name?", NAME, key="user_name")


@tool
async def test_elicitation_sep1034_defaults(context: ToolContext) -> str:
    """Ask with a default for each kind of field."""
    return "Elicitation completed: " + await _asked(context, "Please check these fields", DEFAULTS)


@tool
async def test_elicitation_sep1330_enums(context: ToolContext) -> str:
    """Ask with each kind of choice."""
    return "Elicitation completed: " + await _asked(context, "Please choose", CHOICES)


@tool
def test_missing_capability(context: ToolContext) -> str:
    """Run only for clients that lend their model."""
    context.needs("sampling")
    return "The client lends its model."


@tool
async def test_input_required_result_elicitation(context: ToolContext) -> str:
    """Ask for a name and greet."""
    answer = await context.ask("What is your name?", NAME, key="user_name")
    return f"Hello, {answer.content.get('name', 'stranger')}!"


@tool
async def test_input_required_result_sampling(context: ToolContext) -> str:
    """Have the client's model answer a question."""
    sample = await context.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model said: {sample.text}"


@tool
async def test_input_required_result_list_roots(context: ToolContext) -> str:
    """Look at the client's folders."""
    roots = await context.roots(key="client_roots")
    return f"{len(roots)} roots: {', '.join(str(root.get('uri')) for root in roots)}"


@tool
async def test_input_required_result_request_state(context: ToolContext) -> str:
    """Ask for a confirmation; the state that comes back with it is checked."""
    return "state-ok: " + await _asked(context, "Please confirm", CONFIRMED, key="confirm")


@tool
async def test_input_required_result_multiple_inputs(context: ToolContext) -> str:
    """Ask for a name, a greeting and the folders, all at once."""
    parts: dict[str, str] = {}

    async def name() -> None:
        parts["name"] = str(
            (await context.ask("What is your name?", NAME, key="user_name")).content.get("name")
        )

    async def greeting() -> None:
        parts["greeting"] = (await context.sample("Generate a greeting", max_tokens=50, key="greeting")).text

    async def folders() -> None:
        parts["folders"] = str(len(await context.roots(key="client_roots")))

    async with anyio.create_task_group() as group:
        for part in (name, greeting, folders):
            group.start_soon(part)
    return f"{parts['greeting']} {parts['name']}, of {parts['folders']} folders"


@tool
async def test_input_required_result_multi_round(context: ToolContext) -> str:
    """Ask for a name and then for a colour."""
    colour = _object(color={"type": "string"})
    name = await context.ask("Step 1: What is your name?", NAME, key="step1")
    liked = await context.ask("Step 2: What is your favorite color?", colour, key="step2")
    return f"{name.content.get('name')} likes {liked.content.get('color')}."


@tool
async def test_input_required_result_tampered_state(context: ToolContext) -> str:
    """Ask for a confirmation; a state that was altered is refused."""
    return "state-ok: " + await _asked(context, "Please confirm", CONFIRMED, key="confirm")


@tool
async def test_input_required_result_capabilities(context: ToolContext) -> str:
    """Ask for what the client declares that it can answer, and for nothing else."""
    parts: list[str] = []
    if "sampling" in context.client_capabilities:
        parts.append((await context.sample("Say hello", max_tokens=50, key="sample")).text)
    if "elicitation" in context.client_capabilities:
        parts.append(await _asked(context, "What is your name?", NAME, key="ask"))
    return "; ".join(parts) or "the client answers nothing"


ASKING: Final = Toolset(
    test_tool_with_logging,
    test_logging_tool,
    test_tool_with_progress,
    test_sampling,
    test_elicitation,
    test_streaming_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_missing_capability,
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_tampered_state,
    test_input_required_result_capabilities,
)
