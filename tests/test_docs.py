"""What the pages show is what the files hold, and every command line that they show is one we have."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from mcp_toolset.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "servers").rglob("*.md")])
BLOCK = re.compile(r"(?:<!-- (?P<file>[^ ]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks(*languages: str) -> list[tuple[Path, str | None, str]]:
    return [
        (page, block["file"], block["code"])
        for page in PAGES
        for block in BLOCK.finditer(page.read_text())
        if block["language"] in languages
    ]


@pytest.mark.parametrize(("page", "file", "code"), blocks("python", "json"))
def test_a_block_of_code_is_a_file_that_is_tested(page: Path, file: str | None, code: str) -> None:
    assert file is not None, f"{page.name}: a block without the file that it shows"
    assert (ROOT / file).read_text() == code


def commands() -> list[str]:
    lines = [line for _, _, code in blocks("console") for line in code.splitlines()]
    return sorted({line.split("  #")[0].strip() for line in lines if line.strip()})


@pytest.mark.parametrize("line", commands())
def test_a_command_line_is_one_that_can_be_typed(line: str) -> None:
    program, *words = shlex.split(line)
    if program == "pip":
        assert words[0] == "install" and words[1].partition("[")[0] == "mcp-toolset"
        return
    if program != "mcp-toolset":
        path = next(word for word in [program, *words] if "/" in word)
        assert (ROOT / path).is_file()
        return
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    context = command.make_context(words[0], words[1:], resilient_parsing=False)
    assert isinstance(context, click.Context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize(("page", "file", "code"), blocks("mermaid"))
def test_a_picture_names_modules_that_exist(page: Path, file: str | None, code: str) -> None:
    named = re.findall(r"[\w/]+\.py", code)
    assert named
    assert not [path for path in named if not (ROOT / "src/mcp_toolset" / path).is_file()]


def test_no_block_is_of_a_language_that_nothing_checks() -> None:
    languages = {block["language"] for page in PAGES for block in BLOCK.finditer(page.read_text())}
    assert languages <= {"python", "json", "console", "text", "mermaid"}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.stem)
def test_e6_a_program_runs_only_as_the_main_program(path: Path) -> None:
    last = ast.parse(path.read_text()).body[-1]
    calls = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
    assert not calls or ast.unparse(last).startswith("print("), "write it under if __name__ == '__main__'"
