"""`main`, the entry point of `mcp-toolset`: errors become one line on stderr and an exit code here only.

0 is success, 1 a failure, 2 a mistake in the command line, 130 an interrupt, 141 a closed stdout (128 +
SIGPIPE, as with any filter). Importing this module imports no command: each is imported when it is run.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, cast

import click

from mcp_toolset import __version__
from mcp_toolset._index import commands_of_others, declaring, homes, loaded
from mcp_toolset.cli.options import Commands, Context, examples, usage_message
from mcp_toolset.cli.output import complain, debugging
from mcp_toolset.errors import DefinitionError, ToolsetError, innermost

FAILED: Final = 1
INTERRUPTED: Final = 130
READER_LEFT: Final = 141
COMPLETION: Final = "_MCP_TOOLSET_COMPLETE"
"""The variable by which a shell asks for its script, or for completions."""


COMMANDS: Final[Mapping[str, str]] = {
    "serve": "serve",
    "list": "tools",
    "search": "tools",
    "call": "tools",
    "get": "tools",
    "check": "checks",
    "new": "new",
    "pack": "pack",
    "pin": "rules",
    "explain": "rules",
    "enable": "rules",
    "disable": "rules",
    "install": "clients",
    "uninstall": "clients",
    "secret": "secret",
    "logs": "logs",
}
"""The module of each command, below `cli.commands`, in the order in which a new user meets them."""


class _Commands(Commands):
    """Commands whose modules are imported when they are run, or told of."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys((*COMMANDS, *homes("commands"), *commands_of_others())))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (home := COMMANDS.get(cmd_name)) is not None:
            module = import_module(f"mcp_toolset.cli.commands.{home}")
        elif (home := homes("commands").get(cmd_name)) is not None:
            module = declaring(home, "command")
        elif (point := commands_of_others().get(cmd_name)) is not None:
            command = loaded(point)
            if not isinstance(command, click.Command):
                raise DefinitionError(f"{point.name}: {point.value} is no command of click")
            command.context_class = Context
            return command
        else:
            return None
        command = cast("click.Command", getattr(module, f"{cmd_name}_command"))
        command.context_class = Context
        return command


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "mcp-toolset list app.py",
        "mcp-toolset search mcp.json history of commits",
        "mcp-toolset install cursor mcp.json",
    ),
)
@click.version_option(__version__, "--version", prog_name="mcp-toolset")
def cli() -> None:
    """Serve Python tools and other MCP servers as one MCP server, and look at them.

    TARGET is a configuration file (.json), a Python file (file.py or file.py:attribute), an importable
    module:attribute, a URL, or a command after --.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code. An error is one line on stderr; see `debugging`."""
    if asked := os.environ.get(COMPLETION):
        from mcp_toolset.cli.completion import answer_shell

        return answer_shell(cli, COMPLETION, asked)
    if sys.stdin is None:  # standard input is closed: it is read as an empty one
        sys.stdin = open(os.devnull)
    code = _run(arguments)
    if threading.active_count() > 1:
        from mcp_toolset.concurrency.signals import leave_no_thread

        leave_no_thread(code)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    stdout = sys.stdout
    try:
        code = cli.main(arguments, prog_name="mcp-toolset", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit:
        # click treats a closed stdout as a failure, and discards what is still to be flushed.
        if sys.stdout is stdout:
            raise
        return READER_LEFT
    # The last resort: an unforeseen error is still one line, not a traceback.
    except Exception as fault:
        if debugging() and not isinstance(fault, click.ClickException):
            raise
        cause = innermost(fault, ToolsetError, click.ClickException)
        words = [*(sys.argv[1:] if arguments is None else arguments), "--"]
        if isinstance(cause, ToolsetError) and "--json" in words[: words.index("--")]:
            # A program that reads the answer reads the reason, too.
            sys.stdout.write(json.dumps({"error": str(cause)}) + "\n")
            sys.stdout.flush()
        return _failed(cause)
    return code if isinstance(code, int) else 0


def _failed(fault: BaseException) -> int:
    match fault:
        case click.ClickException():
            return _mistaken(fault)
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case BrokenPipeError():
            # The reader has closed the pipe. Nothing must be flushed at the end of the process.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return READER_LEFT
        case ToolsetError():
            complain(str(fault))
        case _:
            complain(f"unexpected {type(fault).__name__}: {fault}; set MCP_TOOLSET_DEBUG=1 to see where")
    return FAILED


def _mistaken(fault: click.ClickException) -> int:
    context = fault.ctx if isinstance(fault, click.UsageError) else None
    command = context.command_path if context is not None else "mcp-toolset"
    if isinstance(fault, click.exceptions.NoArgsIsHelpError):
        sys.stderr.write(fault.format_message() + "\n")
    elif context is None:
        complain(usage_message(fault))
    else:
        complain(f"{usage_message(fault)} (see {command} --help)", command=command)
    return fault.exit_code


if __name__ == "__main__":
    sys.exit(main())
