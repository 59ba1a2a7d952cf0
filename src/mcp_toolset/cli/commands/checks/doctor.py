"""`mcp-toolset doctor`: what is wrong on this machine, and how to mend it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mcp_toolset.cli.display.tables import Column
from mcp_toolset.cli.options import examples, json_option, timeout_option
from mcp_toolset.cli.target import ConfigFile, parse_target
from mcp_toolset.errors import ToolsetError
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.cli.examination import Finding

__all__ = ["doctor_command"]

_COLUMNS: Final = (Column("examined"), Column("state", state=True), Column("note", prose=True))


@click.command(
    "doctor",
    epilog=examples("mcp-toolset doctor", "mcp-toolset doctor mcp.json", "mcp-toolset doctor --json"),
)
@click.argument("file", required=False)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    show_default=True,
    help="The port at which you want to serve.",
)
@click.option("--no-start", is_flag=True, help="Start no server; look at files and programs alone.")
@timeout_option
@json_option
def doctor_command(file: str | None, port: int, no_start: bool, timeout: float | None, as_json: bool) -> int:
    """Check this machine for faults, and say what to do; with FILE, that configuration too.

    It checks the installed program, PATH, folders, the keyring and the port, and starts each server of your
    clients and of FILE once, to see whether it answers. It changes nothing. The exit code is 1 if there is an
    error.
    """
    from mcp_toolset.cli.display.output import answering, working
    from mcp_toolset.cli.examination import Examined, examine, reached

    examined = Examined.here(port, None if file is None else _configuration(file))
    with answering(as_json=as_json) as output:
        with working("examining this machine"):
            findings = list(examine(examined))
        if not no_start:
            findings += reached(examined, findings, timeout)
        errors = sum(1 for one in findings if one.state == "error")
        if as_json:
            output.json([_as_json(one) for one in findings])
        else:
            output.table(_COLUMNS, [(one.about, one.state, one.note) for one in findings])
            warnings = sum(1 for one in findings if one.state == "warning")
            found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
            output.say(found if errors or warnings else "nothing is wrong")
    return int(errors > 0)


def _configuration(file: str) -> Path:
    target = parse_target(file)
    if not isinstance(target, ConfigFile):
        raise ToolsetError(f"{file}: doctor reads configuration files; use `mcp-toolset list {file}`")
    return Path(target.path)


def _as_json(finding: Finding) -> dict[str, str]:
    return {"examined": finding.about, "state": finding.state, "note": finding.note}
