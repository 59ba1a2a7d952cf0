"""The README's first command: every step holds, and a step that does not hold ends it with 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.warm import Warm

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, str(ROOT / "examples" / "demo" / "demo.py")]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def run(command: list[str], path: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": "/nonexistent", "COLUMNS": "120"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_every_step_of_the_demo_holds() -> None:
    done = run(DEMO, PATH)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every step held." in done.stdout
    assert "changes nothing" in done.stdout and "no live grant" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_step_that_does_not_hold_fails_the_demo(warm: Warm) -> None:
    done = run(warm.command(*DEMO[1:]), "/nonexistent")  # without the git command, its server cannot start
    assert done.returncode == 1
    assert "The demo failed:" in done.stdout and "git is offline" in done.stdout
