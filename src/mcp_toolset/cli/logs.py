"""The options of `serve` about its log: `--log`, `--log-level` and `--log-format`."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.options import gathered
from mcp_toolset.cli.output import log_to_stderr
from mcp_toolset.cli.target import Command, ConfigFile, Program, Target, Url, default_name
from mcp_toolset.errors import ToolsetError

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.serving.log_lines import JsonStream
    from mcp_toolset.serving.serving_log import LogChoice, ServingLog


LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of `serve` about its log; `place` is the folder, or `off`."""

    place: str | None = None
    level: str | None = None
    style: str = "text"

    @contextmanager
    def keeping(self, target: Target, verbose: int) -> Generator[ServingLog]:
        """Keep the log of this process for the length of a block, and tell stderr of records."""
        from mcp_toolset.serving.serving_log import logged

        with ExitStack() as stack:
            # The log comes later: it is a handler as well, and after it no other would be made.
            if self.style == "text":
                log_to_stderr(verbose, quiet=False)
            else:
                from mcp_toolset.serving.log_lines import JsonFormatter, JsonStream

                log_to_stderr(verbose, quiet=False, formatter=JsonFormatter(lambda text: log.clear(text)))
                stream = stack.enter_context(redirect_stderr(JsonStream(sys.stderr)))
                stack.enter_context(_failing_in(stream))
            log = stack.enter_context(logged(self._choice(), _served(target)))
            yield log

    def _choice(self) -> LogChoice:
        from mcp_toolset.serving.log_file import OFF
        from mcp_toolset.serving.serving_log import LogChoice

        if self.place is None:
            return LogChoice(None, self.level)
        return LogChoice(False if self.place == OFF else Path(self.place), self.level)


log_options: Final = gathered(
    "logging",
    LogOptions,
    click.option(
        "--log",
        "place",
        metavar="FOLDER|off",
        help="Keep the log that mcp-toolset logs shows in FOLDER; off keeps none.",
    ),
    click.option(
        "--log-level",
        "level",
        type=click.Choice(LEVELS),
        metavar="LEVEL",
        help="The least level in that log: debug, info (the default), warning or error.",
    ),
    click.option(
        "--log-format",
        "style",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="What the lines on stderr are.",
    ),
)


@contextmanager
def logging_of(server: ToolsetServer, target: Target) -> Generator[None]:
    """Keep what the mounted servers of a command write to stderr, for `mcp-toolset logs`."""
    from mcp_toolset.serving.serving_log import LogChoice, logged

    with logged(LogChoice(), _served(target)) as log:
        log.follow(server, one_client=False)
        yield


@contextmanager
def _failing_in(stream: JsonStream) -> Generator[None]:
    """Tell the error that ends a block as JSON, and leave with its exit code."""
    try:
        yield
    except click.ClickException as fault:
        stream.say("error", fault.format_message())
        raise click.exceptions.Exit(fault.exit_code) from None
    except ToolsetError as fault:
        stream.say("error", str(fault))
        raise click.exceptions.Exit(1) from None


def _served(target: Target) -> str:
    """The served target, without secrets."""
    match target:
        case ConfigFile() | Program():
            return str(Path(target.path).absolute())
        case Url():
            return default_name(target.url)
        case Command():
            return default_name(None, target.argv)
        case _:
            return str(target)
