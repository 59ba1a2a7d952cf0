"""The page of the configuration has every key that is read, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mcp_toolset.config.entries import ServerEntry, ToolsetSection, known_keys
from mcp_toolset.config.sections import InputEntry

PAGE = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text()


def documented(heading: str) -> list[str]:
    """The keys in the first column of the table below a heading."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [key for cell in cells for key in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("Keys of a server", ServerEntry),
        ("Keys of the `toolset` section", ToolsetSection),
        ("Keys of `inputs`", InputEntry),
    ],
)
def test_u16_every_key_is_on_the_page(heading: str, model: Any) -> None:
    assert sorted(documented(heading)) == sorted(known_keys(model))
