"""Each mistake on the command line is a few lines with place, cause and mend, which no terminal cuts."""

import os
import re
from collections.abc import Iterator

import pytest
from tests.cli.mistakes import SCREEN, WIDTHS, Mistake, answer, every_answer, files, mistakes, surroundings
from tests.support.rows import rows

from mcp_toolset.cli.clients import CLIENTS
from mcp_toolset.cli.main import COMMANDS, main

Answered = dict[str, tuple[Mistake, int, str, str]]

WIDE = ("install notepad", "list http://127.0.0.1:9", "serve kit.py --transport http --port 0 --shared")
"""Lines that are tried at the other width too; all go through the same function."""


@pytest.fixture(scope="module")
def answered() -> Iterator[Answered]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MCP_TOOLSET_")]:
            patch.delenv(name)
        yield {each[0].line: each for each in every_answer()}


@pytest.mark.needs("*")
@rows("line", [mistake.line for mistake in mistakes()])
def test_u61_a_mistake_is_told_with_place_cause_and_mend(answered: Answered, line: str):
    mistake, code, shown, _ = answered[line]
    words = " ".join(shown.split())
    assert [part for part in mistake.says if part not in words] == [], shown
    assert code == mistake.code, shown
    assert "Traceback" not in shown and "unexpected " not in shown
    assert shown.startswith(("mcp-toolset", "error: mcp_toolset", "nowhere.json"))
    assert len(shown.splitlines()) < 9
    is_whole(shown, WIDTHS[0])


@pytest.mark.parametrize("start", WIDE)
def test_u61_a_mistake_fits_a_wide_terminal_too(answered: Answered, start: str, tmp_path_factory):
    mistake, _, narrow, _ = next(each for line, each in answered.items() if line.startswith(start))
    folder = tmp_path_factory.mktemp("mistakes")
    with surroundings() as words:
        files(folder)
        code, shown = answer(mistake, WIDTHS[1], folder, words)
    is_whole(shown, WIDTHS[1])
    assert (code, shown.split()) == (mistake.code, narrow.split())
    assert len(shown.splitlines()) < len(narrow.splitlines())


def is_whole(shown: str, columns: int) -> None:
    """No line is longer than the terminal, which would cut a word; one long word cannot be helped."""
    assert [line for line in shown.split("\n") if len(line) > columns and " " in line.strip()] == []


@pytest.mark.needs("*")
def test_u61_every_answer_is_as_it_was_read_and_kept(answered: Answered):
    again = "read what has changed, then keep it with: python -m tests.cli.mistakes"
    assert "\n".join(screen for *_, screen in answered.values()) == SCREEN.read_text(), again


def test_u61_help_names_every_client(capsys: pytest.CaptureFixture[str]):
    main(["install", "--help"])
    told = re.split(r"[\s,.]+", capsys.readouterr().out)
    assert [client for client in CLIENTS if client not in told] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_u61_no_help_cuts_a_word_at_60_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "60")
    main([name, "--help"])
    shown, _, lines = capsys.readouterr().out.partition("Examples:")
    long = [line for line in shown.split("\n") if len(line) > 60]
    assert "mcp-\n" not in shown and "\N{NON-BREAKING HYPHEN}" not in shown
    assert "..." not in shown.replace("[ARGS]...", "") and long == []
    assert "mcp-toolset " in lines


def test_u61_there_are_mistakes_of_every_command():
    lines = [mistake.line for mistake in mistakes()]
    assert len(lines) >= 80 and len(set(lines)) == len(lines)
    tried = {word for line in lines for word in line.split()}
    assert set(COMMANDS) - tried == set()
