"""`mcp-toolset call` and `get`: call one tool, get one prompt or resource of a target.

Arguments are `key=value` words, one JSON object, or `-` for JSON on stdin. A word's value is parsed by the
tool's schema, so that `id=5` is a number where the tool takes a number and text where it takes text.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.options import (
    TargetAccess,
    json_option,
    reach_options,
    target_and_words,
    target_command,
    written,
)
from mcp_toolset.cli.output import Output, TerminalContext, answering, block_text, complain, working
from mcp_toolset.cli.target import parse_target
from mcp_toolset.errors import CallError, InvalidArgumentsError

if TYPE_CHECKING:
    from mcp_toolset.context.offer_kinds import Kind
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.result import ToolResult
    from mcp_toolset.tools.view import ToolBinding


@target_command(
    "call",
    "TARGET TOOL [ARGUMENTS…] | TOOL [ARGUMENTS…] -- COMMAND…",
    "mcp-toolset call app.py add a=1 b=2",
    "mcp-toolset call app.py sort names=b names=a",
    "mcp-toolset call add a=1 b=2 -- python app.py",
)
@click.option(
    "--key", metavar="KEY", help="What a repeat of this call has too, for servers that record calls."
)
@json_option
@reach_options
@click.pass_context
def call_command(
    ctx: click.Context, words: Sequence[str], key: str | None, as_json: bool, reach: TargetAccess
) -> int:
    """Call TOOL of TARGET and print its result.

    ARGUMENTS are key=value words, one JSON object, or - for JSON on stdin. To give a list, repeat its key.
    The exit code is 1 if the tool reports an error.
    """
    target, command, (tool, *typed) = target_and_words(ctx, words, "TOOL", more=True)
    place, arguments = parse_target(target, command), typed_arguments(typed, sys.stdin)

    async def call(server: ToolsetServer) -> ToolResult:
        binding = await _tool(server, tool, written(target, command))
        return await _call(server, binding, _fitting(binding, arguments), key, reach.timeout)

    with answering() as output:
        result = reach.run_on(place, call)
        _show_result(result, tool, output, as_json)
    return 1 if result.is_error else 0


async def _tool(server: ToolsetServer, name: str, target: str) -> ToolBinding:
    from mcp_toolset.cli.commands.tools import listed
    from mcp_toolset.context.offer_kinds import PROMPTS
    from mcp_toolset.tools.binding import loaded

    tools = {binding.name: binding for binding in server.bindings()}
    if name in tools:
        # The schemas of a tool that is listed by a manifest are fetched first.
        return await loaded(tools[name].contracted)
    if "://" in name:
        raise CallError(
            f"{name}: no tool, but the address of a resource; use mcp-toolset get {target} {name}"
        )
    close = difflib.get_close_matches(name, tools, n=1)
    mend = f"did you mean {close[0]}?" if close else f"see mcp-toolset list {target}"
    if any(entry["name"] == name for entry in await listed(server, PROMPTS)):
        mend = f"it is a prompt: use mcp-toolset get {target} {name}"
    raise CallError(f"{name}: no such tool in {target}; {mend}")


def _fitting(binding: ToolBinding, typed: TypedArguments) -> dict[str, Any]:
    from mcp_toolset.catalog.search.entry import CatalogEntry

    arguments = typed.read(binding.definition.input_schema)
    problems = binding.arguments.problems(arguments)
    if problems:
        signature = CatalogEntry(binding.definition, binding.name).signature
        raise InvalidArgumentsError(f"{binding.name}: {'; '.join(problems)}; it takes {signature}")
    return arguments


async def _call(
    server: ToolsetServer,
    binding: ToolBinding,
    arguments: dict[str, Any],
    key: str | None,
    seconds: float | None,
) -> ToolResult:
    import anyio

    try:
        with anyio.fail_after(seconds), working(f"calling {binding.name} …"):
            return await server.call_as_host(binding.name, arguments, context=TerminalContext(key))
    except TimeoutError:
        raise CallError(
            f"{binding.name}: no result within {seconds:g} s; allow more with --timeout"
        ) from None


def _show_result(result: ToolResult, tool: str, output: Output, as_json: bool) -> None:
    if as_json:
        output.json(dict(result.wire))
    elif result.is_error:
        text = _text(result) or "it failed and said nothing more"
        complain(text if tool in text else f"{tool}: {text}")
    else:
        output.text(_text(result))


def _text(result: ToolResult) -> str:
    if not result.content:
        return result.text
    return "\n".join(map(block_text, result.content))


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@target_command(
    "get",
    "TARGET WHAT [ARGUMENTS…] | WHAT [ARGUMENTS…] -- COMMAND…",
    "mcp-toolset list app.py --prompts",
    "mcp-toolset get app.py review language=French",
    "mcp-toolset list mcp.json --resources",
    "mcp-toolset get mcp.json file:///notes/today.md",
)
@json_option
@reach_options
@click.pass_context
def get_command(ctx: click.Context, words: Sequence[str], as_json: bool, reach: TargetAccess) -> None:
    """Get a prompt or a resource of TARGET, and print it.

    WHAT is the name of a prompt or the URI of a resource. ARGUMENTS are those of a prompt: key=value words,
    one JSON object, or - for JSON on stdin. Binary content is printed with --json alone.
    """
    target, command, (what, *typed) = target_and_words(ctx, words, "WHAT", more=True)
    place, told = parse_target(target, command), written(target, command)
    if typed and "://" in what:
        raise click.UsageError(f"{what} is a resource, which takes no arguments; remove {typed[0]!r}", ctx)
    arguments = typed_arguments(typed, sys.stdin).as_texts()
    with answering() as output:
        found = reach.run_on(place, lambda server: _got(server, what, arguments, told))
        if as_json:
            output.json(dict(found))
            return
        for part in found.get("contents", ()):
            output.text(block_text({"type": "resource", "resource": part}))
        messages: Sequence[Mapping[str, Any]] = found.get("messages", ())
        for message in messages:
            text = block_text(message.get("content") or {})
            output.text(text if len(messages) == 1 else f"{message.get('role')}: {text}")


async def _got(
    server: ToolsetServer, what: str, arguments: Mapping[str, str], target: str
) -> Mapping[str, Any]:
    from mcp_toolset.cli.commands.tools import listed, unknown
    from mcp_toolset.context.offer_kinds import PROMPTS, RESOURCES

    async def names(kind: Kind, key: str) -> list[str]:
        return [str(entry[key]) for entry in await listed(server, kind)]

    # The name of a prompt may have a colon, too.
    named = _SCHEME.match(what) and "://" not in what and what in await names(PROMPTS, "name")
    if _SCHEME.match(what) and not arguments and not named:
        try:
            return await server.offering.read(what, TerminalContext())
        except LookupError:
            raise unknown("resource", what, await names(RESOURCES, "uri"), target) from None
    try:
        return await server.offering.prompt(what, arguments, TerminalContext())
    except LookupError as fault:
        if what in (known := await names(PROMPTS, "name")):
            raise CallError(f"{what}: {fault}; check its arguments") from None
        raise unknown("prompt", what, known, target) from None


_KINDS: Final = ("anyOf", "oneOf", "allOf")
_DEEPEST: Final = 8
_HOW: Final = "write key=value words, one JSON object, or - for JSON on stdin"


@dataclass(frozen=True, slots=True)
class TypedArguments:
    """The arguments after the tool's name: a whole object, or texts by key that a schema has yet to parse."""

    whole: dict[str, Any] | None
    texts: Mapping[str, Sequence[str]]

    def read(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        if self.whole is not None:
            return self.whole
        return {key: _value(key, texts, schema) for key, texts in self.texts.items()}

    def as_texts(self) -> dict[str, str]:
        if self.whole is not None:
            return {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in self.whole.items()
            }
        return {key: _single(key, texts) for key, texts in self.texts.items()}


def typed_arguments(words: Sequence[str], stdin: TextIO) -> TypedArguments:
    if list(words) == ["-"]:
        return TypedArguments(_object(stdin.read(), "stdin"), {})
    if len(words) == 1 and words[0].lstrip().startswith(("{", "[")):
        return TypedArguments(_object(words[0], "the arguments"), {})
    texts: dict[str, list[str]] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise click.UsageError(f"{word!r} is not an argument; {_HOW}")
        texts.setdefault(key, []).append(value)
    return TypedArguments(None, texts)


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as fault:
        raise click.UsageError(
            f"{place}: line {fault.lineno} column {fault.colno}: not valid JSON: {fault.msg}; {_HOW}"
        ) from None
    except RecursionError:
        raise click.UsageError(f"{place}: nested too deeply; {_HOW}") from None
    if not isinstance(value, dict):
        raise click.UsageError(f"{place}: a JSON {_type_of(value)}, not an object; {_HOW}")
    return cast("dict[str, Any]", value)


def _value(key: str, texts: Sequence[str], schema: Mapping[str, Any]) -> Any:
    from mcp_toolset.tools.result import mapping_of

    part = mapping_of(mapping_of(schema.get("properties")).get(key))
    types = _types(part, schema, _DEEPEST)
    if "array" in types and not (len(texts) == 1 and isinstance(_json(texts[0]), list)):
        items = _types(mapping_of(part.get("items")), schema, _DEEPEST)
        return [_parsed(text, items) for text in texts]
    return _parsed(_single(key, texts), types)


def _single(key: str, texts: Sequence[str]) -> str:
    if len(texts) > 1:
        raise click.UsageError(f"{key} is given {len(texts)} times, and is not a list; give it once")
    return texts[0]


def _parsed(text: str, types: set[str]) -> Any:
    value = _json(text)
    if value is None and text != "null":
        return text
    found = _type_of(value)
    if not types:
        return value
    if found == "string" or (found not in types and not (found == "integer" and "number" in types)):
        # If no text is accepted either, the tool's own check gives the best message.
        return text if "string" in types or found == "string" else value
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _types(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> set[str]:
    """The JSON types that a schema allows; empty if it does not say."""
    from mcp_toolset.tools.result import list_of, mapping_of

    if depth == 0:
        return set()
    said = part.get("type", [])
    found = {said} if isinstance(said, str) else {item for item in said if isinstance(item, str)}
    found |= {_type_of(choice) for choice in list_of(part.get("enum"))}
    if "const" in part:
        found.add(_type_of(part["const"]))
    for branch in [_target(part, root), *(branch for kind in _KINDS for branch in list_of(part.get(kind)))]:
        found |= _types(mapping_of(branch), root, depth - 1)
    return found


def _target(part: Mapping[str, Any], root: Mapping[str, Any]) -> object:
    from mcp_toolset.tools.result import mapping_of

    pointer = part.get("$ref")
    if not isinstance(pointer, str) or not pointer.startswith("#/"):
        return None
    found: object = root
    for step in pointer[2:].split("/"):
        found = mapping_of(found).get(step.replace("~1", "/").replace("~0", "~"))
    return found
