"""The transcript of a whole task on the deferred surface, as a model reads and writes it.

    python benchmarks/transcript.py > docs/transcripts/search-resolve-call.txt

The composite of 77 tools is served in process; the calls are a script. The random part of each grant is
replaced, scores are left out, and the clock of the grants stands still, so every run prints the same text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
from composite import composite

from mcp_toolset import ToolContext, ToolsetServer
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.grants import GrantLedger

_RANDOM = re.compile(r"(?<=\.)[\w-]{16}(?=[\"`'])")
_SCORE = re.compile(r'(?<="score":)[\d.]+')
_STEPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "The task: what time is it in Tokyo at 14:30 in Berlin? Then open an issue in acme/shop about it.",
        "search_tools",
        {"query": "convert a time of day to another time zone", "limit": 2},
    ),
    (
        "The first hit does it. Its definition, and the grant to call it:",
        "resolve_tools",
        {"ids": ["time_convert_time"]},
    ),
    (
        "The call.",
        "call_tool",
        {
            "grant": "$0",
            "arguments": {"time": "14:30", "source_timezone": "Europe/Berlin", "timezone": "Asia/Tokyo"},
        },
    ),
    (
        "The second step, in one round less: a search that resolves its first hit.",
        "search_tools",
        {"query": "open an issue in a repository", "limit": 1, "resolve": 1},
    ),
    (
        "A call as a weak model writes it: arguments beside the grant, ticks around it, and a wrong name.",
        "call_tool",
        {"grant": "`$1`", "owner": "acme", "repository": "shop", "title": "Show the time in Tokyo"},
    ),
    (
        "The next call, copied from the error.",
        "call_tool",
        {"grant": "$1", "arguments": {"owner": "acme", "repo": "shop", "title": "Show the time in Tokyo"}},
    ),
    ("What else may happen. A tool's own name, without a grant:", "git_log", {"repo_path": "/src"}),
    ("A server that is not there:", "search_tools", {"query": "history of commits", "server": "gitt"}),
    ("The tools of a server, by pages:", "search_tools", {"query": "", "server": "git", "limit": 4}),
    (
        "Arguments as text, under other names:",
        "call_tool",
        {"tool": "$0", "args": '{"time": "09:00", "source_timezone": "UTC", "timezone": "Asia/Tokyo"}'},
    ),
)


class Model(ToolContext):
    """A model in one session."""

    session = "transcript"


async def transcript() -> AsyncIterator[str]:
    """What is listed, then each call and its answer."""
    ledger = GrantLedger(clock=lambda: 1_000_000_000.0)
    async with ToolsetServer(composite().deferred(), grants=ledger) as server:
        await server.settled()
        yield "The model is listed four tools; it has read these descriptions:\n"
        for each in server.listed(Model()):
            yield f"  {each['name']}({', '.join(each['inputSchema']['properties'])})"
            yield from_margin(each["description"])
        grants: list[str] = []
        for said, name, arguments in _STEPS:
            sent = json.loads(_with(json.dumps(arguments), grants))
            yield f"\n{said}\n\n> {name} {_steady(json.dumps(sent))}"
            answer = await _answer(server, name, sent)
            grants += [grant for grant in re.findall(r'"grant":"([^"]+)"', answer) if grant not in grants]
            yield from_margin(_steady(answer))


def from_margin(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _with(text: str, grants: list[str]) -> str:
    for number, grant in enumerate(grants):
        text = text.replace(f"${number}", grant)
    return text


def _steady(text: str) -> str:
    """The text without what differs from run to run, and from version to version."""
    return _SCORE.sub("…", _RANDOM.sub("kT3xQ9bLm0Zr2aWd", text))


async def _answer(server: ToolsetServer, name: str, arguments: dict[str, Any]) -> str:
    try:
        result = await server.call_tool(name, arguments, context=Model())
    except UnknownToolError as fault:
        return f"(error) {fault}"
    return f"(error) {result.text}" if result.is_error else result.text


async def text() -> str:
    return "\n".join([line async for line in transcript()]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(anyio.run(text))
