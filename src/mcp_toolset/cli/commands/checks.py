"""`mcp-toolset check` and `doctor`: mistakes in a configuration, and faults of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.options import complete_word, examples, json_option, timeout_option
from mcp_toolset.cli.output import Column, Output, answering, complain, working
from mcp_toolset.cli.target import ConfigFile, parse_target
from mcp_toolset.errors import ConfigError, ToolsetError
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.config.models import HubConfig, ServerConfig
    from mcp_toolset.hub.mistakes import Mistakes

_COLUMNS: Final = (Column("server"), Column("state", state=True), Column("note", prose=True))


@click.command(
    "check",
    epilog=examples(
        "mcp-toolset check mcp.json",
        "mcp-toolset check mcp.json --strict",
        "mcp-toolset check --schema > mcp-toolset.schema.json",
    ),
)
@click.argument("file", required=False, shell_complete=complete_word)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too, as a build should.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of configuration files, for editors.")
@json_option
@click.pass_context
def check_command(ctx: click.Context, file: str | None, strict: bool, schema: bool, as_json: bool) -> int:
    """Check the configuration FILE for all its mistakes, and say how to correct them. No server is started.

    The exit code is 1 if the file or a server's entry cannot be used.
    """
    if schema:
        from mcp_toolset.config.schema import published_schema

        with answering() as output:
            output.text(published_schema().rstrip("\n"))
        return 0
    if file is None:
        raise click.UsageError("FILE is missing; name a configuration file such as mcp.json", ctx)
    try:
        checked = _CheckReport.read(file)
    except ConfigError as whole:
        if not as_json:
            raise
        with answering(as_json=True) as output:
            output.json({"servers": [], "errors": [str(whole)], "warnings": [], "problems": []})
        complain(str(whole))
        return 1
    for fault in checked.mistakes.sections:
        complain(fault)
    with answering(as_json=as_json) as output:
        checked.show(output)
    return int(checked.errors > 0 or (strict and bool(checked.warnings)))


@dataclass(frozen=True, slots=True)
class _CheckReport:
    """The mistakes in a file, and by server why a program cannot be started on this machine."""

    mistakes: Mistakes
    missing: dict[str, str]

    @classmethod
    def read(cls, file: str) -> _CheckReport:
        from mcp_toolset.cli.examination import start_fault
        from mcp_toolset.hub.mistakes import mistakes_in

        mistakes = mistakes_in(_configuration(file, "check"))
        found = {server.name: start_fault(server) for server in mistakes.config.servers}
        return cls(mistakes, {name: why for name, why in found.items() if why})

    @property
    def config(self) -> HubConfig:
        return self.mistakes.config

    @property
    def errors(self) -> int:
        further = sum(map(len, self.mistakes.further.values()))
        return len(self.mistakes.sections) + sum(bool(one.fault) for one in self.config.servers) + further

    @property
    def warnings(self) -> list[str]:
        return [*self.config.warnings, *(f"{name}: {why}" for name, why in self.missing.items())]

    def show(self, output: Output) -> None:
        if output.as_json:
            output.json(self._as_json())
            return
        if self.config.servers:
            output.table(_COLUMNS, [*self._rows()])
        for warning in self.config.warnings:
            output.say(f"warning: {warning}")
        output.say(self._summary())

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        for server in self.config.servers:
            note = server.fault or self.missing.get(server.name, "")
            yield server.name, self._state(server), note
            for more in self.mistakes.further.get(server.name, ()):
                yield "", "", more

    def _state(self, server: ServerConfig) -> str:
        if server.disabled:
            return "disabled"
        return "misconfigured" if server.fault else "warning" if server.name in self.missing else "ok"

    def _summary(self) -> str:
        counts = counted(len(self.config.servers), "server")
        if not self.errors and not self.warnings:
            return f"{counts}, and nothing is wrong in {self.config.path.name}"
        return f"{counts}, {counted(self.errors, 'error')}, {counted(len(self.warnings), 'warning')}"

    def _as_json(self) -> dict[str, Any]:
        servers = [
            {
                "name": server.name,
                "state": self._state(server),
                "note": server.fault or self.missing.get(server.name, ""),
                "further": self.mistakes.further.get(server.name, []),
            }
            for server in self.config.servers
        ]
        return {
            "servers": servers,
            "errors": list(self.mistakes.sections),
            "warnings": self.warnings,
            "problems": [asdict(problem) for problem in self.mistakes.problems],
        }


_EXAMINED: Final = (Column("examined"), Column("state", state=True), Column("note", prose=True))


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
    from mcp_toolset.cli.examination import ExaminedMachine, examine, reached

    examined = ExaminedMachine.here(port, None if file is None else Path(_configuration(file, "doctor")))
    with answering(as_json=as_json) as output:
        with working("examining this machine"):
            findings = list(examine(examined))
        if not no_start:
            findings += reached(examined, findings, timeout)
        errors = sum(1 for one in findings if one.state == "error")
        if as_json:
            output.json([{"examined": one.about, "state": one.state, "note": one.note} for one in findings])
        else:
            output.table(_EXAMINED, [(one.about, one.state, one.note) for one in findings])
            warnings = sum(1 for one in findings if one.state == "warning")
            found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
            output.say(found if errors or warnings else "nothing is wrong")
    return int(errors > 0)


def _configuration(file: str, command: str) -> str:
    target = parse_target(file)
    if not isinstance(target, ConfigFile):
        raise ToolsetError(f"{file}: {command} reads configuration files; use `mcp-toolset list {file}`")
    return target.path
