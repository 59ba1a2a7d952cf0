"""What the tests of benchmarks share."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

Refused = Callable[..., str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a benchmark with options that it refuses, here, as it measures nothing; yields what it says."""

    def run(script: Path, *options: str) -> str:
        monkeypatch.syspath_prepend(script.parent)
        with pytest.raises(SystemExit) as left:
            runpy.run_path(str(script), run_name="benchmark")["main"](options)
        assert left.value.code == 2
        return capsys.readouterr().err

    return run
