"""`mcp-toolset new`: begin a server, a toolset or a hook, with a test that passes."""

from __future__ import annotations

from pathlib import Path

import click

from mcp_toolset.cli.options import examples

__all__ = ["new_command"]


@click.command("new", epilog=examples("mcp-toolset new server my-tools", "mcp-toolset new hook my-rules"))
@click.argument("kind", type=click.Choice(["server", "toolset", "hook"]), metavar="server|toolset|hook")
@click.argument("name")
def new_command(kind: str, name: str) -> None:
    """Create a server, a toolset or a hook in a new folder NAME: code, a test that passes, and a README.

    A server serves tools. A toolset is a package of tools for servers. A hook is a package of rules for
    tools.
    """
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.projects.project import write_project

    files = write_project(kind, name, Path.cwd())
    module = next(file.name for file in files if file.suffix == ".py" and not file.name.startswith("test_"))
    with answering() as output:
        for file in files:
            output.say(str(file.relative_to(Path.cwd())))
        look = "" if kind == "hook" else f" && mcp-toolset list {module}"
        output.say(f"next: cd {name} && python -m pytest{look}")
