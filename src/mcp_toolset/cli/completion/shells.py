"""`answer_shell`: the completion of bash, zsh and fish; a shell gives the line up to the cursor.

The answer is a line for each completion, with a tab before its help. Values are quoted for the shell here:
names come from files and from servers, and a name such as `$(…)` must not become a command.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, cast

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    shell_complete,
    split_arg_string,
)

from mcp_toolset.cli.completion.words import files

__all__ = ["answer_shell"]

_PROGRAM: Final = "mcp-toolset"
_LINE: Final = "COMP_LINE"
_BREAKS: Final = "COMP_BREAKS"
_SPECIAL: Final = re.compile(r"[^\w@%+=:,./~-]|(?<!^)~", re.ASCII)
_QUOTED: Final = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_QUOTE: Final = re.compile("[\"']")
_NO_WORD: Final = re.compile(r"[\x00-\x1f\x7f]")

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
        """The words before the cursor, and the part of a word that is there."""
        *words, last = split_arg_string(os.environ.get(_LINE, "") + "x")
        return words[1:], last[:-1]

    def complete(self) -> str:
        """The completions, a line each."""
        try:
            args, incomplete = self.get_completion_args()
            option, equals, _ = incomplete.partition("=")
            head = option + equals if equals and option.startswith("--") else ""
            items = [] if self._is_lost(args) else self.get_completions(args, incomplete)
            lines = [self.format_completion(item) for item in _with_files(items, head)]
        # A message would be printed into the line that a person is typing, so a fault completes nothing.
        except Exception:
            return ""
        return "\n".join(line for line in lines if line)

    def _is_lost(self, args: Sequence[str]) -> bool:
        """Whether the first word is no command."""
        command = next((word for word in args if not word.startswith("-")), None)
        group = cast("click.Group", self.cli)
        return command is not None and group.get_command(click.Context(group), command) is None

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """One completion with its help; empty if it is no word."""
        value = self.written(str(item.value))
        if not value or _NO_WORD.search(value):
            return ""
        return f"{value}\t{' '.join(item.help.split())}" if item.help else value

    def written(self, value: str) -> str:
        """The value as it is written on the line; after a quote only a value that needs no backslash."""
        if not _QUOTE.search(_QUOTED.sub("", os.environ.get(_LINE, ""))):
            return self.bare(value)
        return "" if _SPECIAL.search(value.replace(" ", "")) else value

    def bare(self, value: str) -> str:
        """The value with backslashes, and with its leading `~`."""
        return _escaped(value)


class _Bash(_Completion):
    name = "bash"
    source_template = _BASH

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """One completion; bash shows no help."""
        return super().format_completion(CompletionItem(item.value))

    def bare(self, value: str) -> str:
        """The value from the last character on at which bash divides words, such as `=`."""
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
        """The value; fish quotes it."""
        return value


def _escaped(value: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", value)


def _with_files(items: Iterable[CompletionItem[Any]], head: str) -> Iterator[CompletionItem[Any]]:
    """The completions, with files for an item that asks for them."""
    for item in items:
        if item.type in ("file", "dir"):
            yield from (CompletionItem(head + path) for path in files(item.value))
        else:
            yield CompletionItem(f"{head}{item.value}", help=item.help)


def answer_shell(cli: click.Group, variable: str, asked: str) -> int:
    """Print the script of a shell (`bash_source`), or its completions (`bash_complete`); the exit code."""
    name, _, what = asked.partition("_")
    shell = next((each for each in (_Bash, _Zsh, _Fish) if each.name == name), None)
    if shell is None:
        return shell_complete(cli, {}, _PROGRAM, variable, asked)
    completion = shell(cli, {}, _PROGRAM, variable)
    text = completion.source() if what == "source" else completion.complete()
    # An empty line would be a completion.
    sys.stdout.buffer.write(f"{text}\n".encode() if text else b"")
    return 0
