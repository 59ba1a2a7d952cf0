"""The server that the page for developers of FastMCP shows does what its features promise."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commandline import CommandLine, line

__all__ = ["line"]

LIBRARY = str(Path(__file__).parents[2] / "examples" / "from_fastmcp" / "library.py")


def test_e3_a_server_for_fastmcp_is_ported(line: CommandLine) -> None:
    found = line.run("call", LIBRARY, "find", "word=du", "--json")
    assert json.loads(found.stdout)["structuredContent"] == {"result": [{"id": "1", "title": "Dune"}]}
    lent = line.run("call", LIBRARY, "lend", "id=2")
    assert (lent.stdout.strip(), lent.stderr.split()) == ("lent Emma", ["info:", "lending", "2", "[1/2]"])
    assert "lend failed: no book 3" in line.run("call", LIBRARY, "lend", "id=3").stderr
    assert line.run("get", LIBRARY, "review", "title=Dune").stdout.strip() == "Write a review of Dune."
    assert line.run("get", LIBRARY, "book://1").stdout.strip() == "Dune"
    assert "no such resource" in line.run("get", LIBRARY, "book://9").stderr
