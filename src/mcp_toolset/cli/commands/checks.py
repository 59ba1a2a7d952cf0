"""`mcp-toolset check`: mistakes in a configuration, and faults of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mcp_toolset._records import dataclass, replace
from mcp_toolset.cli import options
from mcp_toolset.cli.output import Column, Output, answering, complain, working
from mcp_toolset.cli.target import configuration_file
from mcp_toolset.errors import ConfigError
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.cli.examination import Finding
    from mcp_toolset.config.models import HubConfig, ServerConfig
    from mcp_toolset.hub.mistakes import Mistakes

_COLUMNS: Final = (Column("server"), Column("state", state=True), Column("note", prose=True))
_EXAMINED: Final = (Column("examined"), Column("state", state=True), Column("note", prose=True))


@click.command(
    "check",
    epilog=options.examples(
        "mcp-toolset check",
        "mcp-toolset check mcp.json",
        "mcp-toolset check mcp.json --machine",
        "mcp-toolset check --schema > mcp-toolset.schema.json",
    ),
)
@click.argument("file", required=False, shell_complete=options.complete_word)
@click.option("--machine", is_flag=True, help="With FILE: check this machine too, and start FILE's servers.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too, as a build should.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of configuration files, for editors.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    show_default=True,
    help="The port at which you want to serve.",
)
@click.option("--no-start", is_flag=True, help="Start no server; look at files and programs alone.")
@options.timeout_option
@options.view_options
@options.json_option
@click.pass_context
def check_command(
    ctx: click.Context,
    file: str | None,
    machine: bool,
    strict: bool,
    schema: bool,
    port: int,
    no_start: bool,
    timeout: float | None,
    as_json: bool,
    views: Mapping[str, str],
) -> int:
    """Check the configuration FILE, or this machine, for all mistakes, and say how to correct them.

    Of FILE no server is started. Of this machine it checks the installed program, PATH, folders, the keyring
    and the port, and starts each server of your clients once, to see whether it answers. It changes nothing.
    The exit code is 1 if there is an error.
    """
    if schema:
        from mcp_toolset.config.schema import published_schema

        with answering() as output:
            output.text(published_schema().rstrip("\n"))
        return 0
    if file is not None and not machine:
        options.refuse_given(ctx, ("port", "no_start", "timeout"), "is for this machine; add --machine")
    if file is None:
        options.refuse_given(ctx, views, "is of a FILE; name it")
    path = None if file is None else configuration_file(file, "check")
    told: dict[str, Any] = {}
    with answering(as_json=as_json) as output:
        failed = path is not None and _check_file(path, views, strict, output, told)
        if machine or path is None:
            if path is not None and not as_json:
                output.text("")
            found = _examined(port, path, timeout, starts=not no_start)
            findings = [one for one in found if one.about != path or one.note not in _notes(told)]
            failed = _show_findings(findings, strict, output, told) or failed
        if as_json:
            output.json(told)
    return int(failed)


def _check_file(
    file: str, views: Mapping[str, str], strict: bool, output: Output, told: dict[str, Any]
) -> bool:
    try:
        checked = _CheckReport.read(file)
    except ConfigError as whole:
        complain(str(whole))
        told |= {"servers": [], "errors": [str(whole)], "warnings": [], "problems": []}
        return True
    for fault in checked.mistakes.sections:
        complain(fault)
    # Of a file with such mistakes no view can be served.
    if views and not checked.mistakes.sections:
        checked = checked.of_view(views)
    told |= checked.as_json()
    if not output.as_json:
        checked.show(output)
    return checked.errors > 0 or (strict and bool(checked.warnings))


@dataclass(frozen=True, slots=True)
class _CheckReport:
    """The mistakes in a file, and by server why a program cannot be started on this machine."""

    mistakes: Mistakes
    missing: dict[str, str]

    @classmethod
    def read(cls, file: str) -> _CheckReport:
        from mcp_toolset.cli.examination import start_fault
        from mcp_toolset.hub.mistakes import mistakes_in

        mistakes = mistakes_in(file)
        found = {server.name: start_fault(server) for server in mistakes.config.servers}
        return cls(mistakes, {name: why for name, why in found.items() if why})

    def of_view(self, views: Mapping[str, str]) -> _CheckReport:
        """The servers alone of which a view of the file may have tools.

        Raises:
            TargetError: there is no such view.
        """
        from mcp_toolset.cli.mount import in_view

        own = in_view(self.config, views)
        mistakes = replace(
            self.mistakes,
            config=replace(self.config, servers=tuple(one for one in self.config.servers if one.name in own)),
            further={name: more for name, more in self.mistakes.further.items() if name in own},
            problems=tuple(one for one in self.mistakes.problems if not one.server or one.server in own),
        )
        return _CheckReport(mistakes, {name: why for name, why in self.missing.items() if name in own})

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

    def as_json(self) -> dict[str, Any]:
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


def _examined(port: int, file: str | None, timeout: float | None, *, starts: bool) -> list[Finding]:
    from mcp_toolset.cli.examination import ExaminedMachine, examine, reached

    examined = ExaminedMachine.here(port, None if file is None else Path(file))
    with working("examining this machine"):
        found = list(examine(examined))
    return found + list(reached(examined, found, timeout) if starts else ())


def _notes(told: Mapping[str, Any]) -> set[str]:
    """Notes of a file that are shown already."""
    notes = (note for server in told["servers"] for note in (server["note"], *server["further"]))
    return {*told["errors"], *notes}


def _show_findings(findings: Sequence[Finding], strict: bool, output: Output, told: dict[str, Any]) -> bool:
    errors, warnings = (sum(one.state == state for one in findings) for state in ("error", "warning"))
    told["machine"] = [{"examined": one.about, "state": one.state, "note": one.note} for one in findings]
    if not output.as_json:
        output.table(_EXAMINED, [(one.about, one.state, one.note) for one in findings])
        found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
        output.say(found if errors or warnings else "nothing is wrong on this machine")
    return errors > 0 or (strict and warnings > 0)
