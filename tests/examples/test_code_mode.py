"""The programs of docs/code-mode.md, and the transcript that it shows."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from mcp_toolset.config import load_config

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


def _plain(text: str) -> list[str]:
    """Without what differs from run to run: the random part of grants, milliseconds, the order of ends."""
    text = re.sub(r"\.(?:…|[\w-]{16})(?=[\"\n])", ".…", text)
    text = re.sub(r"[\d.]+(?=[},])", "N", text)
    return [line if "calls" not in line else "".join(sorted(line)) for line in text.strip().splitlines()]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[[str], dict[str, Any]]]:
    """Loads a program of the page from its own folder."""
    folder = ROOT / "examples" / "code_mode"
    monkeypatch.syspath_prepend(folder)
    sys.modules.pop("server", None)
    yield lambda name: runpy.run_path(str(folder / name))
    sys.modules.pop("server", None)


@pytest.mark.needs("code")
async def test_m6_the_transcript_of_a_whole_task_is_what_happens(
    program: Callable[[str], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    await program("task.py")["main"]()
    page = (ROOT / "docs" / "code-mode.md").read_text()
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert _plain(capsys.readouterr().out) == _plain(shown)


@pytest.mark.needs("code")
def test_m6_a_configuration_and_a_program_give_limits(program: Callable[[str], dict[str, Any]]) -> None:
    assert program("limits.py")["limited"].toolset.extension_keys == {"code"}
    config = load_config(ROOT / "examples" / "code_mode" / "mcp.json")
    stated = config.extensions["code"]
    assert (stated.max_compute_seconds, stated.max_calls, stated.timeout) == (5, 30, 60)
