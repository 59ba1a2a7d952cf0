"""`mcp-toolset logs`: what the servers that this user started have logged, by time, and as it comes."""

from __future__ import annotations

import json
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from mcp_toolset.cli.options import LEVELS, complete_word, examples, moment, view_options
from mcp_toolset.cli.output import Output, answering, note, one_line, printable
from mcp_toolset.errors import ConfigError, StoreError, TargetError
from mcp_toolset.tools.hidden_text import plain_to_see
from mcp_toolset.tools.screen import fitted

if TYPE_CHECKING:
    from mcp_toolset.serving.log_reading import LogLine

LINES: Final = 100  # lines that are shown unless something else is asked for
_LOOK: Final = 0.2  # seconds between two looks at the files of other processes
_RANKS: Final = {name: rank for rank, name in enumerate((*LEVELS, "critical"))}


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value, re.IGNORECASE)
    except re.error as fault:
        mend = "put \\ before signs such as ( and ["
        raise click.BadParameter(f"{value!r} is no regular expression: {fault}; {mend}") from None


@click.command(
    "logs",
    options_metavar="[OPTIONS]",
    epilog=examples(
        "mcp-toolset logs -f",
        "mcp-toolset logs mcp.json --server github",
        "mcp-toolset logs --level warning --since 10m",
        "mcp-toolset logs --json --grep timeout",
    ),
)
@click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False), required=False, shell_complete=complete_word
)
@click.option("-f", "--follow", is_flag=True, help="Go on with the lines that come, until Ctrl-C.")
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    metavar="LEVEL",
    default="debug",
    help="From this level on: debug, info, warning or error; by default all.",
)
@click.option(
    "--server",
    metavar="NAME",
    shell_complete=complete_word,
    help="Lines about this mounted server, with what it writes to stderr.",
)
@click.option("--client", metavar="TEXT", help="Lines about clients with this text in their names.")
@view_options
@click.option(
    "--since",
    type=moment("write 10m, 2h, 3d, or 2026-11-23T10:00"),
    metavar="TIME",
    help="Lines from this time on: 10m, 2h, 3d, or 2026-11-23T10:00.",
)
@click.option(
    "--grep", type=_pattern, metavar="TEXT", help="Lines with this regular expression, in any case."
)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"The last N lines; by default {LINES}, and all with --since.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON value.")
def logs_command(
    file: Path | None,
    follow: bool,
    level: str,
    server: str | None,
    client: str | None,
    views: Mapping[str, str],
    since: str | None,
    grep: re.Pattern[str] | None,
    lines: int | None,
    as_json: bool,
) -> int:
    """Show the logs of your bridges, with the stderr of mounted servers.

    Each `mcp-toolset serve` writes a log, with more than its stderr shows. With FILE, only the logs of
    that configuration are shown.
    """
    from mcp_toolset.serving.log_reading import LogReader

    served = None if file is None else _place(str(file.absolute()))

    def wanted(line: LogLine) -> bool:
        return (
            _RANKS.get(line.text("level"), 0) >= _RANKS[level]
            and (served is None or _place(line.served) == served)
            and (server is None or _is_about(line, server))
            and (client is None or client.lower() in line.text("client").lower())
            and (not views or line.text("view") in views.values())
            and (since is None or line.text("time") >= since)
            and (grep is None or grep.search(" ".join(map(str, line.fields.values()))) is not None)
        )

    reader = LogReader(_folder(file))
    news = reader.news()
    found = [line for line in news if wanted(line)]
    if not found and file is not None and not file.exists():
        raise TargetError(f"{file}: no such file, and nothing was logged for it; check the path")
    with answering(as_json=as_json) as output:
        show = _shown(output, as_json)
        last = lines if lines is not None else None if since else LINES
        show(found if last is None else found[len(found) - min(last, len(found)) :])
        if not found:
            _explain(reader.folder, news, follow)
        if follow:
            # Other processes set no event here.
            while not _is_closed(output, _LOOK):
                show(line for line in reader.news() if wanted(line))
            raise BrokenPipeError("nothing reads stdout any more")
    return 0


def _folder(file: Path | None) -> Path:
    """The folder of the log, by the configuration too, as far as that can be read."""
    from mcp_toolset.serving.serving_log import VARIABLE, LogChoice

    said: Any = {}
    if file is not None and file.exists():
        from mcp_toolset.config import load_config

        try:
            said = load_config(file, lookups="skip").log
        except ConfigError:
            # Why it is wrong stands in the log.
            said = {}
    folder = LogChoice().folder(said)
    if folder is None:
        mend = (
            f"unset {VARIABLE}" if said is not None else f"remove `log` from the section `toolset` of {file}"
        )
        raise StoreError(f"the log is turned off; {mend}, and start the server again")
    return folder


@lru_cache
def _place(served: str) -> str:
    return os.path.realpath(served)


def _is_about(line: LogLine, server: str) -> bool:
    return line.text("server") == server or (
        not line.text("server") and line.text("message").startswith((f"{server}:", f"{server} "))
    )


def _shown(output: Output, as_json: bool) -> Callable[[Iterable[LogLine]], None]:
    view = LogView(output.stream)

    def show(lines: Iterable[LogLine]) -> None:
        for line in lines:
            if as_json:
                output.stream.write(plain_to_see(json.dumps(dict(line.fields), ensure_ascii=False)) + "\n")
            else:
                view.show(line)
        output.stream.flush()

    return show


def _explain(folder: Path, lines: Iterable[LogLine], follow: bool) -> None:
    wait = "; waiting for the first line" if follow else ""
    if not lines:
        note(f"no log in {folder} yet: start `mcp-toolset serve mcp.json`, or let a client do so{wait}")
        return
    servers = sorted({line.text("server") for line in lines} - {""})
    about = f"; it has lines of the servers {', '.join(servers)}" if servers else ""
    note(f"no line of the log in {folder} is asked for{about}{wait}")


def _is_closed(output: Output, seconds: float) -> bool:
    """Wait, and say whether nothing reads stdout any more; Windows tells when something is written."""
    if sys.platform == "win32":
        return threading.Event().wait(seconds)
    poll = select.poll()
    poll.register(output.stream.fileno(), 0)
    return bool(poll.poll(seconds * 1000))


_COLOURS: Final = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "red"}
_INDENT: Final = "    "


class LogView:
    """Writes lines to a stream; on a terminal, a heading tells the day and the process where these change."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_screen = stream.isatty()
        self._coloured = (
            self._is_screen and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self._heading = ""

    def show(self, line: LogLine) -> None:
        if self._is_screen:
            text = self._on_screen(line)
        else:
            time, level, pid = (one_line(line.text(name)) for name in ("time", "level", "pid"))
            text = f"{time} {level.upper()} {_short(line)}[{pid}] {_said(line)}"
        trace = printable(line.text("traceback")).rstrip()
        if trace:
            text += "\n" + "\n".join(_INDENT + each for each in trace.split("\n"))
        self._stream.write(text + "\n")
        self._stream.flush()

    def _on_screen(self, line: LogLine) -> str:
        try:
            at = datetime.fromisoformat(line.text("time")).astimezone()
        except ValueError:
            at = datetime.fromtimestamp(0).astimezone()
        heading = f"{at:%Y-%m-%d} {_short(line)} (process {one_line(line.text('pid'))})"
        above = (
            "" if heading == self._heading else self._painted(fitted(heading, self._stream), bold=True) + "\n"
        )
        self._heading = heading
        level = one_line(line.text("level"))
        first, _, rest = fitted(f"{at:%H:%M:%S} {level} {_said(line)}", self._stream).partition("\n")
        below = "".join(f"\n{each}" for each in rest.split("\n") if rest)
        return above + self._painted(first + below, fg=_COLOURS.get(level))

    def _painted(self, text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
        return click.style(text, fg=fg, bold=bold) if self._coloured and (fg or bold) else text


def _said(line: LogLine) -> str:
    server, message, error = (one_line(line.text(name)) for name in ("server", "message", "error"))
    if line.text("logger").startswith("mcp_toolset.stderr."):
        said = printable(line.text("message")).replace("\n", " ")
        return f"{server} stderr: {said}"
    about = f"{server}: " if server and not message.startswith((f"{server}:", f"{server} ")) else ""
    return about + message + (f" ({error})" if error and error not in message else "")


def _short(line: LogLine) -> str:
    return one_line(Path(line.served).name or "?")
