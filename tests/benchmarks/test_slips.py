"""Sixty calls as weak models write them, and what the surface costs: the scripts and their scores."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return lambda name: runpy.run_path(str(BENCHMARKS / name), run_name="benchmark")


@pytest.mark.needs("dynamic_tools")
async def test_m3_of_sixty_slips_most_are_repaired_and_the_errors_lead_on_from_the_rest(script: Any) -> None:
    slips = script("slips.py")
    cases = slips["cases"]()
    outcomes = await slips["measured"](cases)
    assert len(cases) == 60
    scored = Counter(one.outcome for one in outcomes)
    assert (scored["repaired"], scored["answered"], scored["wrong"]) == (47, 12, 1)
    # What fits a tool's schema is never changed, so a tool that takes any key gets this one.
    assert [one.kind for one in outcomes if one.outcome == "wrong"] == ["the grant twice"]
    assert all(one.steps <= 3 for one in outcomes)


@pytest.mark.needs("dynamic_tools")
async def test_m3_what_can_be_read_in_two_ways_is_asked_about(script: Any) -> None:
    slips = script("slips.py")
    ambiguous = [one for one in slips["cases"]() if one.get("ambiguous")]
    outcomes = await slips["measured"](ambiguous)
    assert len(outcomes) == 2
    for one in outcomes:
        assert (one.outcome, one.said.count("Next: ")) == ("answered", 2)


@pytest.mark.needs("dynamic_tools")
async def test_u57_the_surface_of_77_tools_is_small(script: Any) -> None:
    tokens = script("tokens.py")
    entries = tokens["entries_of_composite"]()
    read = await tokens["surface"]([tokens["binding_of"](entry) for entry in entries])
    assert len(entries) == 77
    sizes = {name: len(text.encode()) for name, text in read.items()}
    # Four bytes are one token of o200k in such texts: 450 tokens, 400 tokens.
    assert sizes["everything listed"] <= 1_830
    assert sizes["a search of ten, the largest"] <= 1_600
    assert "null" not in "".join(read.values()) and '"available"' not in "".join(read.values())
    if (count := tokens["tokenizer"]()) is not None:
        assert count(read["everything listed"]) <= 450
        assert count(read["a search of ten, the largest"]) <= 400


@pytest.mark.needs("dynamic_tools")
async def test_m3_the_transcript_of_a_whole_task_is_what_the_surface_says(script: Any) -> None:
    file = BENCHMARKS.parent / "docs" / "transcripts" / "search-resolve-call.txt"
    text = await script("transcript.py")["text"]()
    assert text == file.read_text(), f"run python benchmarks/transcript.py > {file}"
