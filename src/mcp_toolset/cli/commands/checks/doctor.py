"""`mcp-toolset doctor`: what is wrong on this machine, and how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from mcp_toolset.cli.display.tables import Column
from mcp_toolset.cli.options import examples, json_option
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.cli.examination import Finding

__all__ = ["doctor_command"]

_COLUMNS: Final = (Column("examined"), Column("state", state=True), Column("note", prose=True))


@click.command("doctor", epilog=examples("mcp-toolset doctor", "mcp-toolset doctor --json"))
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    show_default=True,
    help="The port that you want to serve at.",
)
@json_option
def doctor_command(port: int, as_json: bool) -> int:
    """Say what is wrong on this machine, and how to mend it.

    It looks at the program, PATH, the clients and whether they can start their servers, folders, the keyring,
    the port. Nothing is changed, and no server is started. The exit code is 1 if there is an error.
    """
    from mcp_toolset.cli.display.output import answering, working
    from mcp_toolset.cli.examination import Examined, examine

    with answering(as_json=as_json) as output:
        with working("examining this machine"):
            findings = list(examine(Examined.here(port)))
        errors = sum(1 for one in findings if one.state == "error")
        if as_json:
            output.json([_as_json(one) for one in findings])
        else:
            output.table(_COLUMNS, [(one.about, one.state, one.note) for one in findings])
            warnings = sum(1 for one in findings if one.state == "warning")
            found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
            output.say(found if errors or warnings else "nothing is wrong")
    return int(errors > 0)


def _as_json(finding: Finding) -> dict[str, str]:
    return {"examined": finding.about, "state": finding.state, "note": finding.note}
