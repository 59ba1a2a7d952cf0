"""`mcp-toolset new`: begin a server, a toolset or a hook, with a test that passes."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from typing import Final

import click

from mcp_toolset.cli.options import examples
from mcp_toolset.cli.output import answering
from mcp_toolset.errors import TargetError

KINDS: Final = ("server", "toolset", "hook")
TEMPLATES: Final = Path(__file__).parents[1] / "templates"
"""The files of each kind, in which `NAME` is the name of the project and `MODULE` that of its module."""


@click.command("new", epilog=examples("mcp-toolset new server my-tools", "mcp-toolset new hook my-rules"))
@click.argument("kind", type=click.Choice(KINDS), metavar="|".join(KINDS))
@click.argument("name")
def new_command(kind: str, name: str) -> None:
    """Create a server, a toolset or a hook in a new folder NAME: code, a test that passes, and a README.

    A server serves tools. A toolset is a package of tools for servers. A hook is a package of rules for
    tools.
    """
    files = write_project(kind, name, Path.cwd())
    module = next(file.name for file in files if file.suffix == ".py" and not file.name.startswith("test_"))
    with answering() as output:
        for file in files:
            output.say(str(file.relative_to(Path.cwd())))
        look = "" if kind == "hook" else f" && mcp-toolset list {module}"
        output.say(f"next: cd {name} && python -m pytest{look}")


_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def write_project(kind: str, name: str, folder: Path) -> list[Path]:
    module = name.replace("-", "_")
    taken = keyword.iskeyword(module) or module in sys.stdlib_module_names or module == "mcp_toolset"
    if not _NAME.fullmatch(name) or taken:
        why = "is the name of another module" if taken else "cannot name a module"
        mend = "choose another name of up to 40 small letters, digits, - and _, such as my-tools"
        raise click.UsageError(f"{name!r} {why}; {mend}")
    home = folder / name
    try:
        home.mkdir()
    except FileExistsError:
        raise TargetError(f"{home}: exists already; choose another name, or remove it") from None
    except OSError as error:
        raise TargetError(f"{home}: cannot be made ({error.strerror}); choose another folder") from None
    written: list[Path] = []
    for template in (TEMPLATES / "pyproject.toml.txt", *sorted((TEMPLATES / kind).iterdir())):
        file = home / template.stem.replace("MODULE", module)
        text = template.read_text(encoding="utf-8")
        file.write_text(text.replace("NAME", name).replace("MODULE", module), encoding="utf-8")
        written.append(file)
    return written
