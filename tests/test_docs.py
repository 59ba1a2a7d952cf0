"""What the pages show is what the files hold, and every command line that they show is one we have."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest
from tests.support.rows import rows

from mcp_toolset.cli.main import cli

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "servers").rglob("*.md")])
BLOCK = re.compile(r"(?:<!-- (?P<file>[^ ]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def of_page(page: Path, *languages: str) -> list[tuple[Path, str | None, str]]:
    return [block for block in blocks(*languages) if block[0] == page]


def blocks(*languages: str) -> list[tuple[Path, str | None, str]]:
    return [
        (page, block["file"], block["code"])
        for page in PAGES
        for block in BLOCK.finditer(page.read_text())
        if block["language"] in languages
    ]


@rows("page, file, code", blocks("python", "json", "toml"), lambda page, file, code: f"{page.name}: {file}")
def test_a_block_of_code_is_a_file_that_is_tested(page: Path, file: str | None, code: str) -> None:
    assert file is not None, f"{page.name}: a block without the file that it shows"
    assert (ROOT / file).read_text() == code


def test_u93_the_package_is_installed_from_a_checkout_and_one_page_says_so() -> None:
    by_name = re.compile(r"pip install '?mcp-toolset(?!\[)|uvx mcp-toolset")
    told = [page.name for page in PAGES if by_name.search(page.read_text())]
    assert told == ["installing.md"], "an index has the package by now, or a page says so"
    assert "It is on no package index yet" in (ROOT / "docs" / "installing.md").read_text()
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "tutorial.md"):
        first = next(line for _, _, code in of_page(page, "console") for line in code.splitlines())
        assert first.startswith("pip install .")


@rows("page", PAGES)
def test_u92_a_row_of_a_table_is_one_line(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    rows = [line for line in text.splitlines() if line.lstrip().startswith("|")]
    assert [row for row in rows if not row.rstrip().endswith("|")] == []
    assert not re.search(
        r"^\s*\|.*\|\n(?!\s*\|)(?!\s*$)(?!\s*(?:[-*#>]|\d+\.|</|```|!)).*\|\s*$", text, re.MULTILINE
    )


def commands() -> list[str]:
    lines = [line for _, _, code in blocks("console") for line in code.splitlines()]
    return sorted({line.split("  #")[0].strip() for line in lines if line.strip()})


@rows("line", commands())
def test_a_command_line_is_one_that_can_be_typed(line: str) -> None:
    program, *words = shlex.split(line)
    if program == "pip":
        assert words[0] == "install" and (words[1] == "." or words[1].startswith("mcp-toolset["))
        return
    if program != "mcp-toolset":
        path = next(word for word in [program, *words] if "/" in word)
        assert (ROOT / path).is_file()
        return
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    context = command.make_context(words[0], words[1:], resilient_parsing=False)
    assert isinstance(context, click.Context)


@rows("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


@rows("page, file, code", blocks("mermaid"), lambda page, file, code: page.name)
def test_a_picture_names_modules_that_exist(page: Path, file: str | None, code: str) -> None:
    named = re.findall(r"[\w/]+\.py", code)
    assert named
    assert not [path for path in named if not (ROOT / "src/mcp_toolset" / path).is_file()]


def test_no_block_is_of_a_language_that_nothing_checks() -> None:
    languages = {block["language"] for page in PAGES for block in BLOCK.finditer(page.read_text())}
    assert languages <= {"python", "json", "toml", "console", "text", "mermaid"}


@rows("path", sorted((ROOT / "examples").rglob("*.py")))
def test_e6_a_program_runs_only_as_the_main_program(path: Path) -> None:
    last = ast.parse(path.read_text()).body[-1]
    calls = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
    assert not calls or ast.unparse(last).startswith("print("), "write it under if __name__ == '__main__'"


def test_u119_the_comparison_has_its_peers_a_date_per_row_and_the_least_favourable_run():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    header, _, *rows = [line for line in page.splitlines() if line.startswith("|")][:12]
    assert header.endswith("| read in |")
    assert all(re.search(r"\| 20\d\d-\d\d \|$", row) for row in rows), rows
    cells = {row.split("**")[1]: row for row in rows}
    assert {"gridctl", "1MCP", "ToolHive", "mcpproxy-go", "agentgateway"} <= cells.keys()
    assert "profiles" in cells["mcpproxy-go"] and "code in JavaScript" in cells["mcpproxy-go"]
    assert "guardrails" in cells["agentgateway"]
    assert "least favourable |" in page and "| 1.24 to 1.47 | 1.47 |" in page
