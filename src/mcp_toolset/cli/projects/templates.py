"""The files of each kind of project; `NAME` stands for the name of the project, `MODULE` for its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["KINDS"]

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
from MODULE import add, tools


def test_add() -> None:
    result = anyio.run(tools.view().execute, add, {"a": 1, "b": 2})
    assert not result.is_error
    assert result.structured == {"result": 3}
"""

_SERVER_PAGE: Final = """\
# NAME

    pip install mcp-toolset pytest
    pytest
    mcp-toolset list MODULE.py
    mcp-toolset call MODULE.py add a=1 b=2
    mcp-toolset install claude-desktop MODULE.py
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
from MODULE import Notes, add_note, find_notes, make_tools


def test_a_note_is_found() -> None:
    async def run() -> list[str]:
        view = make_tools(Notes()).view()
        await view.execute(add_note, {"text": "buy milk"})
        found = await view.execute(find_notes, {"word": "milk"})
        return found.structured["result"]

    assert anyio.run(run) == ["buy milk"]
"""

_TOOLSET_PAGE: Final = """\
# NAME

    pip install mcp-toolset pytest
    pytest
    mcp-toolset list MODULE.py
    mcp-toolset serve MODULE.py

Mount it in a server of your own: `Toolset(make_tools(notes).prefixed("NAME"))`.
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

from mcp_toolset import Toolset, tool


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def called(path: str) -> str:
    view = Toolset(delete_file).view()
    return anyio.run(lambda: view.execute(delete_file, {"path": path}, rules=rules)).text


def test_protected_files_stay() -> None:
    assert "protected things stay" in called("protected.txt")
    assert called("old.txt") == "deleted old.txt"
'''

_HOOK_PAGE: Final = """\
# NAME

    pip install mcp-toolset pytest
    pytest

Give the rules to a server: `serve(tools, rules=rules)`, with `from MODULE import rules`.
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
