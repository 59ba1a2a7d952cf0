"""Completion for bash, zsh and fish: the files, servers and tools that a word of a command may name.

Names are read from files: the configuration, the text of a Python file, a client's own file, and the list of
tools that a command has last found in a target (`seen`). No server is started, no secret is looked up, and no
code is run.
Each completion is one line, with its help after a tab. Values are quoted for the shell: names come from files
and servers, and a name such as `$(…)` must not become a command.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import click
from click.shell_completion import CompletionItem, ShellComplete, shell_complete, split_arg_string

from mcp_toolset.cli.target import SEPARATED, SeenTool, seen
from mcp_toolset.config.jsonc import decode, read_text, without_mark
from mcp_toolset.config.keys import USUAL_FILES, named_servers
from mcp_toolset.errors import ToolsetError

_CONFIGURATIONS: Final = (".json", ".jsonc")
_TARGETS: Final = (*_CONFIGURATIONS, ".py")
_LARGEST: Final = 4 * 1024 * 1024  # bytes of a file that is read for names; a larger file would be slow


def completions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """The completions of one parameter of a command; `shell_complete` of the parameters."""
    given: Mapping[str, Any] = ctx.params
    words: tuple[str, ...] = given.get("words") or ()
    usual = next((name for name in USUAL_FILES if Path(name).is_file()), "")
    file = str(given.get("file") or given.get("config") or (words[0] if words else "") or usual)
    match ctx.info_name, param.name:
        case _ if ctx.meta.get(SEPARATED):
            return _items(files(incomplete))
        case _, "file" | "config":
            return _items(files(incomplete, _CONFIGURATIONS))
        case _, "server" if "URL" in str(getattr(param, "metavar", "")):
            names = (name for name, entry in _servers(file).items() if "command" not in entry)
            return _starting(names, incomplete)
        case _, "server":
            return _starting(_servers(file), incomplete)
        case "enable" | "disable", _:
            return _servers_or_tools(file, incomplete)
        case "uninstall", _ if not words:
            return [*_installed(given["client"], incomplete), *_items(files(incomplete, _TARGETS))]
        case _ if not words:
            return _items(files(incomplete, _TARGETS))
        case (("call" | "explain"), _) if len(words) == 1:
            tools = [*_tools(words[0])]
            return [
                CompletionItem(tool.name, help=tool.about)
                for tool in tools
                if tool.name.startswith(incomplete)
            ]
        case "pin", _:
            return _servers_or_tools(words[0], incomplete)
        case _:
            return []


def files(incomplete: str, suffixes: tuple[str, ...] = ("",)) -> Iterator[str]:
    """The folders and the files with these suffixes that begin as the word does."""
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


def _text(path: str) -> str:
    """The text of a regular file; empty if the file is too large or missing."""
    file = Path(path).expanduser()
    if not file.is_file() or file.stat().st_size > _LARGEST:
        return ""
    return without_mark(read_text(file, path))


def _servers(path: str) -> dict[str, Mapping[str, Any]]:
    """The entries of the servers in a configuration, by name."""
    if not path or path.endswith(".py") or "://" in path:
        return {}
    try:
        table = _object(decode(_text(path), path))
    except ToolsetError:
        return {}
    _, section = named_servers(table) or ((), {})
    return {name: _object(entry) for name, entry in _object(section).items()}


def _object(value: object) -> Mapping[str, Any]:
    """A JSON object; an empty one for any other value."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _servers_or_tools(path: str, incomplete: str) -> list[CompletionItem[Any]]:
    """The servers of a configuration; after `SERVER/`, the tools of this server."""
    server, slash, _ = incomplete.partition("/")
    if not slash:
        return _starting(_servers(path), incomplete)
    return _starting((f"{server}/{one.tool}" for one in seen(path) if one.server == server), incomplete)


def _tools(target: str) -> Iterator[SeenTool]:
    """The tools that a command has last found in the target, or those in a Python file's text."""
    catalog = seen(target)
    yield from catalog
    if not catalog and target.endswith(".py"):
        for name in _decorated_tools(target):
            yield SeenTool(name, name)


def _decorated_tools(path: str) -> Iterator[str]:
    """The functions of a Python file with a decorator `tool`, by its syntax alone."""
    try:
        tree = ast.parse(_text(path))
    except (SyntaxError, ValueError, ToolsetError):
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = (mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list)
            if any(ast.unparse(mark).rpartition(".")[2] == "tool" for mark in marks):
                yield node.name


def _installed(client: str, incomplete: str) -> list[CompletionItem[Any]]:
    """The servers that `install` has written into a client's file."""
    from mcp_toolset.cli.clients import Machine
    from mcp_toolset.cli.install import discovered

    servers = discovered(Machine.here()).servers
    names = (one.name for one in servers if one.client == client and one.note == "mcp-toolset")
    return _starting(dict.fromkeys(names), incomplete)


_PROGRAM: Final = "mcp-toolset"
_LINE: Final = "COMP_LINE"  # the variable with the line before the cursor
_BREAKS: Final = "COMP_BREAKS"  # the variable with the characters at which bash divides words
_NEEDS_BACKSLASH: Final = re.compile(r"[^\w@%+=:,./~-]|(?<!^)~", re.ASCII)
_QUOTED_PART: Final = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_ANY_QUOTE: Final = re.compile("[\"']")
_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f\x7f]")

_BASH: Final = """\
%(complete_func)s() {
    local value
    COMPREPLY=()
    while IFS= read -r value; do
        COMPREPLY+=("$value")
        [[ $value == */ ]] && type compopt >/dev/null 2>&1 && compopt -o nospace
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_BREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "${1/#\\~/$HOME}" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null ||
    complete -F %(complete_func)s %(prog_name)s
"""

_ZSH: Final = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local value help
    local -a plain described open
    while IFS=$'\\t' read -r value help; do
        if [[ $value == */ ]]; then
            open+=("$value")
        elif [[ -n $help ]]; then
            described+=("${value//:/\\\\:}:$help")
        else
            plain+=("$value")
        fi
    done < <(COMP_LINE="${(j: :)words[1,CURRENT-1]} $compstate[quote]$PREFIX" \\
        %(complete_var)s=zsh_complete ${~words[1]} 2>/dev/null)
    (( $#described )) && _describe -V unsorted described -U -Q
    (( $#plain )) && compadd -U -Q -V unsorted -a plain
    (( $#open )) && compadd -U -Q -S '' -V unsorted -a open
    (( $#described + $#plain + $#open ))
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH: Final = """\
function %(complete_func)s
    set -lx COMP_LINE (commandline -cp)
    set -lx %(complete_var)s fish_complete
    set -l program (commandline -opc)[1]
    $program 2>/dev/null
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Completion(ShellComplete):
    """The completion of one shell."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The whole words before the cursor, and the incomplete word at the cursor."""
        *words, last = split_arg_string(os.environ.get(_LINE, "") + "x")
        return words[1:], last[:-1]

    def complete(self) -> str:
        """The completions of the line, one in each line; empty after any error."""
        try:
            args, incomplete = self.get_completion_args()
            option, equals, _ = incomplete.partition("=")
            head = option + equals if equals and option.startswith("--") else ""
            items = [] if self._has_unknown_command(args) else self.get_completions(args, incomplete)
            lines = [self.format_completion(item) for item in _with_files(items, head)]
        # A message would be printed into the line that a person is typing, so an error gives no completions.
        except Exception:
            return ""
        return "\n".join(line for line in lines if line)

    def _has_unknown_command(self, args: Sequence[str]) -> bool:
        command = next((word for word in args if not word.startswith("-")), None)
        group = cast("click.Group", self.cli)
        return command is not None and group.get_command(click.Context(group), command) is None

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """One completion with its help; empty if it has control characters."""
        value = self.written(str(item.value))
        if not value or _CONTROL_CHARACTER.search(value):
            return ""
        return f"{value}\t{' '.join(item.help.split())}" if item.help else value

    def written(self, value: str) -> str:
        """The value quoted for the line; empty if it needs a backslash within an open quote."""
        if not _ANY_QUOTE.search(_QUOTED_PART.sub("", os.environ.get(_LINE, ""))):
            return self.bare(value)
        return "" if _NEEDS_BACKSLASH.search(value.replace(" ", "")) else value

    def bare(self, value: str) -> str:
        """The value with backslashes, for a line without an open quote."""
        return _escaped(value)


class _Bash(_Completion):
    name = "bash"
    source_template = _BASH

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return super().format_completion(CompletionItem(item.value))

    def bare(self, value: str) -> str:
        """The value after the last `:` or `=` of the word: bash replaces only that part."""
        incomplete = self.get_completion_args()[1]
        breaks = set(os.environ.get(_BREAKS, ":=")) & {":", "="}
        start = 1 + max((incomplete.rfind(each) for each in breaks), default=-1)
        return _escaped(value)[len(_escaped(incomplete[:start])) :]


class _Zsh(_Completion):
    name = "zsh"
    source_template = _ZSH


class _Fish(_Completion):
    name = "fish"
    source_template = _FISH

    def written(self, value: str) -> str:
        return value


def _escaped(value: str) -> str:
    return _NEEDS_BACKSLASH.sub(r"\\\g<0>", value)


def _with_files(items: Iterable[CompletionItem[Any]], head: str) -> Iterator[CompletionItem[Any]]:
    """The items with `head` before each, and with files in place of click's placeholder for them."""
    for item in items:
        if item.type in ("file", "dir"):
            yield from (CompletionItem(head + path) for path in files(item.value))
        else:
            yield CompletionItem(f"{head}{item.value}", help=item.help)


def answer_shell(cli: click.Group, variable: str, asked: str) -> int:
    """Print a shell's script (`bash_source`) or its completions (`bash_complete`); returns the exit code."""
    name, _, what = asked.partition("_")
    shell = next((each for each in (_Bash, _Zsh, _Fish) if each.name == name), None)
    if shell is None:
        return shell_complete(cli, {}, _PROGRAM, variable, asked)
    completion = shell(cli, {}, _PROGRAM, variable)
    text = completion.source() if what == "source" else completion.complete()
    # An empty line would be an empty completion.
    sys.stdout.buffer.write(f"{text}\n".encode() if text else b"")
    return 0
