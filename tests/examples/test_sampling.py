"""The programs of the page on sampling print what the page says."""

from __future__ import annotations

import runpy
from pathlib import Path

import anyio
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "offers.md").read_text()


@pytest.mark.needs("sampler")
@pytest.mark.anyio
@pytest.mark.parametrize("name", ["sampling", "mounted"])
async def test_j7_the_programs_of_the_page_print_what_it_says(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = runpy.run_path(str(ROOT / "examples" / "sampling" / f"{name}.py"))
    with anyio.fail_after(60):
        await program["main"]()
    assert f"```text\n{capsys.readouterr().out}```" in PAGE
