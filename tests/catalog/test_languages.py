"""Search in Chinese, Japanese and Korean: what the English table cannot read is ranked by words."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.catalog.test_deferred import Desk, deferred

from mcp_toolset import ToolDefinition
from mcp_toolset.search import CatalogEntry, SearchIndex

WRITTEN: dict[str, Any] = json.loads(Path(__file__).with_name("languages.json").read_text("utf-8"))
LANGUAGES = {"Chinese": 1, "Japanese": 2, "Korean": 3}


def index_of(language: int, scorer: Any) -> SearchIndex:
    tools = (ToolDefinition(tool[0], tool[language], {"type": "object"}) for tool in WRITTEN["tools"])
    return SearchIndex(tools, scorer=scorer)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_m9_a_catalog_in_another_script_is_searched_by_words(language: int) -> None:
    index = index_of(language, "built-in")
    asked = [(row[0], row[language]) for row in WRITTEN["queries"]]
    found = [wanted in [hit.name for hit in index.search(query, limit=5)] for wanted, query in asked]
    assert len(found) == 30
    assert sum(found) >= 29


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_m9_the_table_changes_nothing_about_what_it_cannot_read(language: int) -> None:
    table, alone = index_of(language, "built-in"), index_of(language, None)
    for row in WRITTEN["queries"]:
        query = row[language]
        if query.isascii() or "QR" in query:
            continue
        assert table.search(query) == alone.search(query)


@pytest.mark.parametrize("query", ["天气", "天気", "날씨 예보를", "API 天气预报"])
def test_m9_an_english_catalog_beside_it_silences_nothing(query: str) -> None:
    english = [
        CatalogEntry(ToolDefinition(f"tool_{number}", "Read the records of a shop."), f"tool_{number}")
        for number in range(30)
    ]
    index = index_of(1 if "气" in query else 2 if "気" in query else 3, "built-in")
    index.add(english)
    assert index.search(query)[0].name == "get_weather"


@pytest.mark.parametrize("particle", ["", "을", "이", "에서", "으로"])
def test_m9_a_korean_word_of_one_syllable_is_found_with_any_particle(particle: str) -> None:
    index = SearchIndex(
        [ToolDefinition("lend", "책을 빌립니다"), ToolDefinition("other", "노래를 재생합니다")]
    )
    assert [hit.name for hit in index.search(f"책{particle}")] == ["lend"]


def test_m9_a_korean_noun_that_ends_like_a_particle_stays_whole() -> None:
    index = SearchIndex([ToolDefinition("map", "지도를"), ToolDefinition("world", "세계지도")], scorer=None)
    assert {hit.name for hit in index.search("지도")} == {"map", "world"}
    assert [hit.name for hit in index.search("세계")] == ["world"]


def searching(*texts: str) -> str:
    """The description of `search_tools` over tools with these descriptions."""
    tools = (deferred(f"tool_{place}", text=text) for place, text in enumerate(texts))
    return Desk(*tools).catalog.previewing(None).definition.description or ""


def test_m9_a_catalog_in_english_says_that_it_is_searched_in_english() -> None:
    english = ("Read the contents of a file.", "Send an email to a contact.", "Flights")
    assert ", in English." in searching(*english)
    for language in LANGUAGES.values():
        own = [tool[language] for tool in WRITTEN["tools"]]
        assert "English" not in searching(*own, *english)
    german = ("Liest den Inhalt einer Datei.", "Sendet eine Nachricht an den Chef.")
    assert "English" not in searching(*german)
    assert "English" not in searching()
