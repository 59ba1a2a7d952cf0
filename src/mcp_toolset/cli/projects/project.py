"""`write_project`: a new folder with the files of one kind of project."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from mcp_toolset.cli.projects.templates import KINDS
from mcp_toolset.errors import TargetError

__all__ = ["write_project"]

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def write_project(kind: str, name: str, folder: Path) -> list[Path]:
    """Write a project into a new folder of its name below `folder`; returns the files."""
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
    files: Mapping[str, str] = KINDS[kind]
    written: list[Path] = []
    for path, text in files.items():
        file = home / path.replace("MODULE", module)
        file.write_text(text.replace("NAME", name).replace("MODULE", module), encoding="utf-8")
        written.append(file)
    return written
