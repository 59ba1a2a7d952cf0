"""`skill_text`: a `SKILL.md` (Agent Skills) that says how to search and call tools by a shell.

Servers write names and descriptions of tools. A description is one short line here, without characters that
Markdown obeys, and a tool that is held or denied is not named.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.cli.output import one_line
from mcp_toolset.tools.screen import counted
from mcp_toolset.tools.source import SourceStatus
from mcp_toolset.tools.view import ToolBinding

MARK: Final = "<!-- written by `mcp-toolset skill`; it may be written again -->"
"""The line by which a file of ours is known."""

EXAMPLES: Final = 3
_SERVERS: Final = 20
_ABOUT: Final = 80
_SIMPLE: Final = re.compile(r"[\w.:/@+-]{1,40}")
"""A value of a server's schema that may stand in an example: no sentence, which a model might follow."""

_MARKDOWN: Final = re.compile(r"[`<>|*_\[\]#\\!]")


@dataclass(frozen=True, slots=True)
class SkillFacts:
    """The subject of a skill.

    Attributes:
        name: The name of the skill, of small letters, digits and dashes.
        target: The target as it is written in a command line, an absolute path or a URL, with its options.
        tools: The tools that its reader may call.
        statuses: The mounted servers.
    """

    name: str
    target: Sequence[str]
    tools: Sequence[ToolBinding]
    statuses: Mapping[str, SourceStatus]


def skill_name(text: str) -> str:
    """A name that the Agent Skills format takes: at most 64 small letters, digits and single dashes."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:64].strip("-")
    return plain or "mcp-tools"


def skill_text(facts: SkillFacts) -> str:
    target = shlex.join(facts.target)
    lines = [
        "---",
        f"name: {facts.name}",
        f"description: {json.dumps(_description(facts), ensure_ascii=False)}",
        "---",
        "",
        MARK,
        "",
        f"# Use {counted(len(facts.tools), 'tool')} by the shell",
        "",
        "`mcp-toolset` reaches the tools of MCP servers. Search first, then call; do not guess names.",
        "",
        "## Search",
        "",
        "```sh",
        f"mcp-toolset search {target} {_words_of(facts)} --json",
        "```",
        "",
        "`hits` has the tools, the best first. `name` is what to call; `signature` has the arguments, `?`",
        "marks optional ones. Call a hit only if its `state` is `available`. `--server NAME` searches one",
        "server, `--limit N` gives more hits.",
        "",
        "## Call",
        "",
        "```sh",
        *(_calls(facts) or [f"mcp-toolset call {target} TOOL key=value --json"]),
        "```",
        "",
        "Arguments are `key=value` words; repeat a key for a list. For nested values, write all",
        """arguments as one JSON object, as in `'{"filter": {"state": "open"}}'`; `-` reads it from""",
        "standard input. Quote what the shell would change.",
        "",
        "With `--json` the answer is one JSON value: `content` is a list of blocks, `structuredContent` the",
        "value of tools that have one. Without `--json` the text of the result is printed.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | the call succeeded |",
        "| 1 | the tool failed (`isError`), or there was no call: `error` has the reason and a remedy |",
        "| 2 | the command line is wrong; stderr says how to correct it |",
        "",
        "A call that may change something can fail although it had an effect: look before you repeat it.",
        "A call that a policy denies stays denied; tell your user, and use no other way around it.",
        *_servers(facts),
        "",
    ]
    return "\n".join(lines)


def _description(facts: SkillFacts) -> str:
    named = list(facts.statuses)[:_SERVERS]
    of = f" of {', '.join(_plain(name) for name in named)}" if named else ""
    some = ", ".join(one.name for one in facts.tools[:10])
    tools = counted(len(facts.tools), "tool")
    text = (
        f"Find and call {tools}{of} from a shell with mcp-toolset, such as {some}. "
        "Use it when a task needs one of them and no MCP client is connected."
    )
    return text[:1024]


def _words_of(facts: SkillFacts) -> str:
    """Words that a search of these tools finds something by."""
    shown = [*_shown(facts.tools), *facts.tools]
    own = shown[0].definition.name if shown else "what the tool does"
    words = re.sub(r"[^A-Za-z0-9]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", own)).split()
    return " ".join(words[:4]).lower() or "what the tool does"


def _calls(facts: SkillFacts) -> list[str]:
    call = f"mcp-toolset call {shlex.join(facts.target)}"
    return [" ".join([call, one.name, *(_sample(one) or ()), "--json"]) for one in _shown(facts.tools)]


def _shown(tools: Sequence[ToolBinding]) -> list[ToolBinding]:
    """Tools for examples: they change nothing, and take few and simple arguments."""
    simple = [one for one in tools if _is_read_only(one) and _sample(one) is not None]
    return sorted(simple, key=lambda one: (len(_sample(one) or ()), one.name))[:EXAMPLES]


def _is_read_only(tool: ToolBinding) -> bool:
    hints: Mapping[str, Any] = tool.definition.to_wire().get("annotations") or {}
    return hints.get("readOnlyHint") is True


def _sample(tool: ToolBinding) -> list[str] | None:
    """Words for the required arguments; `None` if one of them is not a simple value."""
    schema: Mapping[str, Any] = tool.definition.to_wire().get("inputSchema") or {}
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    words: list[str] = []
    for name in cast("Sequence[str]", schema.get("required") or ()):
        value = _value(properties.get(name))
        if value is None or not re.fullmatch(r"[\w-]+", name):
            return None
        words.append(shlex.quote(f"{name}={value}"))
    return words if len(words) <= 4 else None


def _value(schema: object) -> str | None:
    if not isinstance(schema, dict):
        return None
    table = cast("dict[str, Any]", schema)
    examples = cast("list[Any]", table["examples"]) if isinstance(table.get("examples"), list) else []
    choices = cast("list[Any]", table["enum"]) if isinstance(table.get("enum"), list) else []
    for given in (table.get("const"), table.get("default"), *examples[:1], *choices[:1]):
        if isinstance(given, str | int | float) and not isinstance(given, bool):
            return str(given) if _SIMPLE.fullmatch(str(given)) else None
    if any(key in table for key in ("pattern", "format", "maxLength")):
        return None
    least = table.get("minimum", 1)
    match table.get("type"):
        case "string":
            return "text"
        case "integer" | "number":
            return str(least) if isinstance(least, int | float) else "1"
        case "boolean":
            return "true"
        case _:
            return None


def _servers(facts: SkillFacts) -> list[str]:
    if not facts.statuses:
        return []
    rows = ["", "## Servers", "", "| server | tools | about |", "|---|---|---|"]
    counts = {name: sum(one.source == name for one in facts.tools) for name in facts.statuses}
    for name, status in [*facts.statuses.items()][:_SERVERS]:
        about = _plain(status.about) if status.is_up else "did not answer when this was written"
        rows.append(f"| {_plain(name)} | {counts[name]} | {about} |")
    if (more := len(facts.statuses) - _SERVERS) > 0:
        rows.append(f"| and {more} more | | |")
    return rows


def _plain(text: str) -> str:
    """A server's text in one short line, without Markdown."""
    line = " ".join(_MARKDOWN.sub(" ", one_line(text)).split())
    return line if len(line) <= _ABOUT else line[: _ABOUT - 1].rstrip() + "…"
