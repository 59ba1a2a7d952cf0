"""Programs of the pages print what the pages say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.support.warm import Warm

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"<!-- (examples/[^ ]+) -->\n```python\n(?:(?!```).)*?```\n\n```text\n(.*?)```", re.DOTALL)
PAGES = [
    ROOT / "tests" / "rows.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "observing",
            "grants",
            "replicas",
            "audit",
            "large-results",
            "what-a-model-reads",
            "offers",
            "journal",
            "suspended",
            "rules",
            "names",
        )
    ),
]
PROGRAMS = dict(found for page in PAGES for found in SHOWN.findall(page.read_text()))


def check(warm: Warm, file: str, said: str) -> None:
    command = warm.command(str(ROOT / file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_the_programs_are_found() -> None:
    for folder in ("features", "rules"):
        files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples" / folder).glob("*.py")}
        assert files <= PROGRAMS.keys()
    assert len([file for file in PROGRAMS if not re.match("examples/(features|rules)/", file)]) == 14


@pytest.mark.parametrize("file", PROGRAMS)
def test_a_program_prints_what_its_page_says(file: str, warm: Warm) -> None:
    check(warm, file, PROGRAMS[file])


def test_the_programs_of_the_page_about_tests_print_what_it_says(warm: Warm) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    parts = page.split("<!-- examples/testing/")[1:]
    shown = [(part.split(" -->")[0], part.partition("```text\n")[2].partition("```")[0]) for part in parts]
    printed = [(file, said) for file, said in shown if said]
    assert len(printed) == 2
    for file, said in printed:
        check(warm, f"examples/testing/{file}", said)


def output(page: str) -> str:
    """What the first program of a page prints."""
    return (ROOT / "docs" / f"{page}.md").read_text().partition("```text\n")[2].partition("```")[0]


@pytest.mark.needs("dynamic_tools")
def test_h7_h8_h10_h12_the_program_of_the_registry_prints_what_the_page_says(warm: Warm) -> None:
    check(warm, "examples/catalog/registry.py", output("catalog"))


def test_p13_the_program_of_reloads_prints_what_the_page_says(warm: Warm) -> None:
    check(warm, "examples/reload/changes.py", output("configuration"))


def test_u9_the_program_of_slow_servers_prints_what_the_page_says(warm: Warm) -> None:
    page = (ROOT / "docs" / "starting.md").read_text()
    check(warm, "examples/starting/app.py", page.rpartition("```text\n")[2].partition("```")[0])
