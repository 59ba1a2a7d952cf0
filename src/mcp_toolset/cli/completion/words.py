"""`completions`: the files, servers and tools that a word of a command may name.

They are read from files: the configuration, a Python file's text, a client's own file, and what a command has
last found in a target (`seen`). No server is started, no secret is looked up, and no code of the user is run.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import click
from click.shell_completion import CompletionItem

from mcp_toolset.cli.completion.seen import SeenTool, seen
from mcp_toolset.cli.target import SEPARATED
from mcp_toolset.config.jsonc import decode, read_text, without_mark
from mcp_toolset.config.keys import USUAL_FILES, named_servers
from mcp_toolset.errors import ToolsetError

__all__ = ["completions", "files"]

_CONFIGURATIONS: Final = (".json", ".jsonc")
_TARGETS: Final = (*_CONFIGURATIONS, ".py")
_LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a file that is read for its names; a larger one would be slow."""


def completions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    said: Mapping[str, Any] = ctx.params
    words: tuple[str, ...] = said.get("words") or ()
    file = str(said.get("file") or said.get("config") or (words[0] if words else "") or _usual())
    match ctx.info_name, param.name:
        case _ if ctx.meta.get(SEPARATED):
            return _items(files(incomplete))
        case _, "file" | "config":
            return _items(files(incomplete, _CONFIGURATIONS))
        case _, "server" if "URL" in str(getattr(param, "metavar", "")):
            found = (name for name, entry in _servers(file).items() if "command" not in entry)
            return _starting(found, incomplete)
        case _, "server":
            return _starting(_servers(file), incomplete)
        case "enable" | "disable", _:
            return _selected(file, incomplete)
        case "uninstall", _ if not words:
            return [*_installed(said["client"], incomplete), *_items(files(incomplete, _TARGETS))]
        case _ if not words:
            return _items(files(incomplete, _TARGETS))
        case (("call" | "explain"), _) if len(words) == 1:
            tools = [*_tools(words[0])]
            return [
                CompletionItem(one.name, help=one.about) for one in tools if one.name.startswith(incomplete)
            ]
        case "pin", _:
            return _selected(words[0], incomplete)
        case _:
            return []


def files(incomplete: str, suffixes: tuple[str, ...] = ("",)) -> Iterator[str]:
    """The folders, and the files with one of the suffixes, whose paths begin so."""
    written, slash, start = incomplete.rpartition("/")
    folder = os.path.expanduser(f"{written}{slash}") or "."
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        hidden = entry.name.startswith(".") and not start and entry.name not in USUAL_FILES
        if entry.name.startswith(start) and not hidden:
            if entry.is_dir():
                yield f"{written}{slash}{entry.name}/"
            elif entry.name.endswith(suffixes):
                yield f"{written}{slash}{entry.name}"


def _items(values: Iterable[str]) -> list[CompletionItem[Any]]:
    return [CompletionItem(value) for value in values]


def _starting(names: Iterable[str], incomplete: str) -> list[CompletionItem[Any]]:
    return _items(name for name in names if name.startswith(incomplete))


def _usual() -> str:
    return next((name for name in USUAL_FILES if Path(name).is_file()), "")


def _text(path: str) -> str:
    """The text of a regular file that is not too large; else nothing."""
    file = Path(path).expanduser()
    if not file.is_file() or file.stat().st_size > _LARGEST:
        return ""
    return without_mark(read_text(file, path))


def _servers(path: str) -> dict[str, Mapping[str, Any]]:
    """The servers of a configuration, by name."""
    if not path or path.endswith(".py") or "://" in path:
        return {}
    try:
        table = _object(decode(_text(path), path))
    except ToolsetError:
        return {}
    _, section = named_servers(table) or ((), {})
    return {name: _object(entry) for name, entry in _object(section).items()}


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _selected(path: str, incomplete: str) -> list[CompletionItem[Any]]:
    """Servers, and after `SERVER/` its tools."""
    server, slash, _ = incomplete.partition("/")
    if not slash:
        return _starting(_servers(path), incomplete)
    return _starting((f"{server}/{one.tool}" for one in seen(path) if one.server == server), incomplete)


def _tools(target: str) -> Iterator[SeenTool]:
    """The tools that a command has last found in the target, or those in a Python file's text."""
    found = seen(target)
    yield from found
    if not found and target.endswith(".py"):
        for name in _declared(target):
            yield SeenTool(name, name)


def _declared(path: str) -> Iterator[str]:
    """The functions with the decorator `tool`."""
    try:
        tree = ast.parse(_text(path))
    except (SyntaxError, ValueError, ToolsetError):
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = (mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list)
            if any("tool" == ast.unparse(mark).rpartition(".")[2] for mark in marks):
                yield node.name


def _installed(client: str, incomplete: str) -> list[CompletionItem[Any]]:
    """The entries in a client's files that start mcp-toolset."""
    from mcp_toolset.cli.installers.clients import Machine
    from mcp_toolset.cli.installers.discovery import discovered

    found = discovered(Machine.here()).servers
    names = (one.name for one in found if one.client == client and one.note == "mcp-toolset")
    return _starting(dict.fromkeys(names), incomplete)
