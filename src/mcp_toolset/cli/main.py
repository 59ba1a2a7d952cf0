"""`main`, the entry point of `mcp-toolset`: errors become one line on stderr and an exit code here only.

0 is success, 1 a failure, 2 a mistake in the command line, 130 an interrupt, 141 a closed stdout (128 +
SIGPIPE, as with any filter). Importing this module imports no server and no search: each command imports what
it needs when it runs.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import Final

import click

from mcp_toolset import __version__
from mcp_toolset.cli.commands.checks.check import check_command
from mcp_toolset.cli.commands.clients.discover import discover_command
from mcp_toolset.cli.commands.clients.install import install_command, uninstall_command
from mcp_toolset.cli.commands.clients.restore import restore_command
from mcp_toolset.cli.commands.credentials.login import login_command, logout_command
from mcp_toolset.cli.commands.credentials.secret import secret_command
from mcp_toolset.cli.commands.records.audit import audit_command
from mcp_toolset.cli.commands.records.learning import learning_command
from mcp_toolset.cli.commands.rules.approvals import approvals_command
from mcp_toolset.cli.commands.rules.explain import explain_command
from mcp_toolset.cli.commands.rules.pin import pin_command
from mcp_toolset.cli.commands.targets.call import call_command
from mcp_toolset.cli.commands.targets.get import get_command
from mcp_toolset.cli.commands.targets.inspect import inspect_command
from mcp_toolset.cli.commands.targets.list import list_command
from mcp_toolset.cli.commands.targets.read import read_command
from mcp_toolset.cli.commands.targets.search import search_command
from mcp_toolset.cli.commands.targets.serve import serve_command
from mcp_toolset.cli.display.output import complain, debugging
from mcp_toolset.cli.options import examples
from mcp_toolset.errors import ToolsetError, innermost

__all__ = ["cli", "main"]

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
READER_LEFT: Final = 141


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which a new user meets them."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its whole first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _sentence(command)) for name, command in self.commands.items()])


def _sentence(command: click.Command) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


@click.group(
    cls=_InOrder,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "mcp-toolset list app.py",
        "mcp-toolset search mcp.json history of commits",
        "mcp-toolset install cursor mcp.json",
    ),
)
@click.version_option(__version__, "--version", prog_name="mcp-toolset")
def cli() -> None:
    """Serve typed tools and other MCP servers as one MCP server, and inspect what they offer.

    TARGET is a configuration file (.json), a Python file (file.py or file.py:attribute), an importable
    module:attribute, a URL, or a command after --.
    """


for _command in (
    serve_command,
    list_command,
    search_command,
    call_command,
    get_command,
    read_command,
    inspect_command,
    check_command,
    login_command,
    logout_command,
    pin_command,
    explain_command,
    approvals_command,
    discover_command,
    install_command,
    uninstall_command,
    restore_command,
    secret_command,
    audit_command,
    learning_command,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code. An error is one line on stderr; see `debugging`."""
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
        return _failed(innermost(fault, ToolsetError, click.ClickException))
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
    else:
        complain(f"{fault.format_message().rstrip('.')} (see {command} --help)", command=command)
    return USAGE


if __name__ == "__main__":
    sys.exit(main())
