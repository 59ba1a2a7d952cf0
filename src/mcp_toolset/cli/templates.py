"""The files of each kind of project; `NAME` stands for the name of the project, `MODULE` for its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PROJECT: Final = """\
[project]
name = "NAME"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["mcp-toolset"]

[dependency-groups]
dev = ["pytest"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

_SERVER: Final = '''\
"""Tools of NAME. Look at them with: mcp-toolset list MODULE.py"""

from mcp_toolset import Toolset, serve, tool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


tools = Toolset(add)

if __name__ == "__main__":
    serve(tools, name="NAME")
'''

_SERVER_TEST: Final = """\
import anyio
from MODULE import tools

from mcp_toolset.testing import Client


def test_add() -> None:
    async def run() -> None:
        async with Client(tools) as client:
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert not result.is_error
            assert result.structured_content == {"result": 3}

    anyio.run(run)
"""

_SERVER_PAGE: Final = """\
# NAME

    pip install pytest
    pytest
    mcp-toolset list MODULE.py
    mcp-toolset call MODULE.py add a=1 b=2

While you write tools, serve them with `--reload`: clients stay connected, and get each change.

    mcp-toolset serve MODULE.py --reload

When they are done, put them into a client:

    mcp-toolset install claude-desktop MODULE.py

`test_MODULE.py` calls the tools as a client does, with `mcp_toolset.testing.Client`.
"""

_TOOLSET: Final = '''\
"""A toolset of NAME: its tools, its instructions and what it keeps, for any server that mounts it."""

from dataclasses import dataclass, field
from typing import Annotated

from mcp_toolset import Injected, Toolset, tool


@dataclass
class Notes:
    """What the tools of one toolset keep."""

    texts: list[str] = field(default_factory=list)


@tool
def add_note(text: str, notes: Annotated[Notes, Injected]) -> str:
    """Keep a note."""
    notes.texts.append(text)
    return f"note {len(notes.texts)} is kept"


@tool(read_only=True)
def find_notes(word: str, notes: Annotated[Notes, Injected]) -> list[str]:
    """Find the notes that contain a word."""
    return [text for text in notes.texts if word in text]


def make_tools(notes: Notes) -> Toolset:
    """The toolset over some notes."""
    return Toolset(add_note, find_notes, name="NAME").injecting({Notes: notes})


tools = make_tools(Notes())
'''

_TOOLSET_TEST: Final = """\
import anyio
from MODULE import Notes, make_tools

from mcp_toolset.testing import Client


def test_a_note_is_found() -> None:
    async def run() -> None:
        async with Client(make_tools(Notes())) as client:
            await client.call_tool("add_note", {"text": "buy milk"})
            found = await client.call_tool("find_notes", {"word": "milk"})
            assert found.structured_content == {"result": ["buy milk"]}

    anyio.run(run)
"""

_TOOLSET_PAGE: Final = """\
# NAME

    pip install pytest
    pytest
    mcp-toolset list MODULE.py

While you write tools, serve them with `--reload`: clients stay connected, and get each change. The notes of
the running program are lost each time.

    mcp-toolset serve MODULE.py --reload

Mount it in a server of your own: `Toolset(make_tools(notes).prefixed("NAME"))`.

`test_MODULE.py` calls the tools as a client does, with `mcp_toolset.testing.Client`.
"""

_HOOK: Final = '''\
"""Rules of NAME: a hook that decides about calls, and one that describes a tool in other words."""

from typing import Any

from mcp_toolset import HookSet, Reject, RunNormally, Rules, ToolCall, ToolDefinition

hooks = HookSet()


@hooks.execution("*delete*")
async def nothing_protected_is_deleted(call: ToolCall) -> RunNormally | Reject:
    """Refuse to delete what is protected."""
    arguments: dict[str, Any] = dict(call.arguments)
    if "protected" in str(arguments):
        return Reject("protected things stay; ask a person")
    return RunNormally(arguments)


@hooks.description("*delete*")
async def warn(definition: ToolDefinition) -> str:
    """Tell the model what the rule is."""
    return f"{definition.description} Protected things are never deleted."


rules = Rules(hooks)
'''

_HOOK_TEST: Final = '''\
import anyio
from MODULE import rules

from mcp_toolset import RemoteToolset, ToolsetServer, tool
from mcp_toolset.testing import Client, ScriptedServer


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def test_protected_files_stay() -> None:
    async def run() -> None:
        # The calls that the rules let through end at a server with scripted answers.
        disk = ScriptedServer("disk", delete_file)
        disk.script("delete_file", "deleted")
        async with Client(ToolsetServer(RemoteToolset(disk, name="disk"), rules=rules)) as client:
            refused = await client.call_tool("delete_file", {"path": "protected.txt"})
            assert refused.is_error
            disk.calls.assert_not_called("delete_file")
            await client.call_tool("delete_file", {"path": "old.txt"})
            disk.calls.assert_called_once("delete_file", path="old.txt")

    anyio.run(run)
'''

_HOOK_PAGE: Final = """\
# NAME

    pip install pytest
    pytest

Give the rules to a server: `serve(tools, rules=rules)`, with `from MODULE import rules`.

While you write rules, serve that program with `--reload`: clients stay connected, and the next call passes
the new rules.

    mcp-toolset serve YOUR_PROGRAM.py --reload

`test_MODULE.py` calls a tool as a client does, with `mcp_toolset.testing.Client`.
"""

KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    kind: {"pyproject.toml": _PROJECT, "MODULE.py": code, "test_MODULE.py": test, "README.md": page}
    for kind, code, test, page in (
        ("server", _SERVER, _SERVER_TEST, _SERVER_PAGE),
        ("toolset", _TOOLSET, _TOOLSET_TEST, _TOOLSET_PAGE),
        ("hook", _HOOK, _HOOK_TEST, _HOOK_PAGE),
    )
}
"""The texts of the files of each kind, by path."""
