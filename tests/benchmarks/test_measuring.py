"""The parts of benchmarks: their options, their figures, and the order of what they measure."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measuring import Sample, figures, interleaved
from tests.support.rows import rows

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    with monkeypatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="benchmark")


@pytest.mark.needs("*")
@rows(
    "name",
    "audit authenticated costs growth hub_start index_file local_tool pauses soak start telemetry".split(),
)
def test_what_a_benchmark_imports_is_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(loaded(name, monkeypatch)["main"])


REFUSED = {
    "calls": [("--peers", "nobody"), ("--scenario", "mars"), ("--mode", "later"), ("--conc", "0")],
    "definitions": [("--rounds", "0"), ("--tools", "0")],
    "dispatch": [("--rounds", "0"), ("--tools", "0"), ("--depth", "0"), ("--budget", "0")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_option_is_a_usage_error(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = loaded(name, monkeypatch)["main"]
    for option, value in REFUSED[name]:
        with pytest.raises(SystemExit) as left:
            main([option, value])
        assert left.value.code == 2
        assert option in capsys.readouterr().err


def test_ratios_are_taken_within_a_round() -> None:
    own = [
        Sample((0.002, 0.004, 0.009), 1.0, 0.002),
        Sample((0.010,), 1.0, 0.004),
        Sample((0.03,), 1.0, 0.009),
    ]
    base = [
        Sample((0.001, 0.002, 0.003), 1.0, 0.001),
        Sample((0.010,), 1.0, 0.001),
        Sample((0.01,), 1.0, 0.003),
    ]
    taken = figures(own, base)
    assert (taken.x_p50, taken.x_p50_lo, taken.x_p50_hi) == pytest.approx((2, 1, 3))
    assert (taken.x_cpu, taken.x_cpu_lo, taken.x_cpu_hi) == pytest.approx((3, 2, 4))
    assert math.isclose(taken.p50_ms, 10) and math.isclose(taken.p99_ms, 30)
    assert taken.calls == 5


@pytest.mark.anyio
async def test_rounds_interleave_and_every_other_one_runs_backwards() -> None:
    order: list[str] = []

    def peer(name: str) -> Any:
        async def call() -> None:
            order.append(name)

        return call

    samples = await interleaved({"a": peer("a"), "b": peer("b")}, at_once=1, rounds=3, seconds=1e-9)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 3, "b": 3}
