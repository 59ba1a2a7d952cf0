"""The programs of docs/search.md."""

import runpy
from collections.abc import Sequence
from pathlib import Path

import pytest

from mcp_toolset import ToolDefinition

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


def test_x9_the_index_by_itself_finds_by_meaning_and_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "found.py"))
    assert capsys.readouterr().out.splitlines() == [
        "give the buyer their money back -> ['create_refund']",
        "will it rain tomorrow -> ['get_forecast']",
        "get_forecast -> ['get_forecast']",
        "xyzzy -> []",
    ]


class Length:
    name = "length-1"

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[1.0, float(len(text))] for text in texts]


@pytest.mark.needs("sentence_models")
def test_h19_a_model_of_the_hosts_own_is_joined_in(tmp_path: Path) -> None:
    index_with = runpy.run_path(str(EXAMPLES / "with_a_model.py"))["index_with"]
    index = index_with(Length(), [ToolDefinition("a_tool", "Does it.")], tmp_path / "vectors.db")
    assert [hit.name for hit in index.search("a_tool")] == ["a_tool"]
    assert (tmp_path / "vectors.db").exists()


def test_m2_the_index_of_the_last_run_is_opened(tmp_path: Path) -> None:
    opened = runpy.run_path(str(EXAMPLES / "from_a_file.py"))["opened"]
    asked: list[str] = []

    def tools() -> Sequence[ToolDefinition]:
        asked.append("tools")
        return [ToolDefinition("a_tool", "Does it.")]

    for _ in range(2):
        index = opened(tmp_path / "tools.index", tools)
        assert [hit.name for hit in index.search("a_tool")] == ["a_tool"]
    assert asked == ["tools"]
