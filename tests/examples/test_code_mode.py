"""The programs of docs/code-mode.md, and the transcript that it shows."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from examples.code_mode import task

from mcp_toolset.config import load_config

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


def _plain(text: str) -> list[str]:
    """Without what differs from run to run: the random part of grants, milliseconds, the order of ends."""
    text = re.sub(r"\.(?:…|[\w-]{16})(?=[\"\n])", ".…", text)
    text = re.sub(r"[\d.]+(?=[},])", "N", text)
    return [line if "calls" not in line else "".join(sorted(line)) for line in text.strip().splitlines()]


async def test_m6_the_transcript_of_a_whole_task_is_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    await task.main()
    page = (ROOT / "docs" / "code-mode.md").read_text()
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert _plain(capsys.readouterr().out) == _plain(shown)


def test_m6_a_configuration_and_a_program_give_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ROOT / "examples" / "code_mode"
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "server", raising=False)
    try:
        assert runpy.run_path(str(folder / "limits.py"))["limited"].toolset.runs_code
    finally:
        sys.modules.pop("server", None)
    config = load_config(ROOT / "examples" / "code_mode" / "mcp.json")
    assert config.code == {"seconds": 5, "calls": 30}
