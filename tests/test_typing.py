"""The types that users rely on, proved by a type checker: right uses pass and wrong ones do not."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
USES = ROOT / "tests" / "typing" / "right_and_wrong.py"
MARK = re.compile(r"#.*\bexpected-error\b")


def reported() -> dict[int, str]:
    """The errors in the uses by line, as `pyright` sees them."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--project", str(USES.parent)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    found = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    return {one["range"]["start"]["line"] + 1: one["message"] for one in found}


def test_l7_every_right_use_passes_and_every_wrong_one_is_an_error():
    lines = USES.read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if MARK.search(line)}
    found = reported()
    assert len(expected) > 30
    assert {number: found[number] for number in found.keys() - expected} == {}
    assert [lines[number - 1] for number in sorted(expected - found.keys())] == []
