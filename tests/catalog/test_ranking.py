"""Long queries, queries for several tools, and queries that little fits."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pytest

from mcp_toolset import ToolDefinition
from mcp_toolset.catalog.search.lexical import LexicalScorer
from mcp_toolset.catalog.search.text import clauses_of
from mcp_toolset.search import CatalogEntry, SearchIndex

SAID = {
    "google-search": "Search the web with Google and return the results.",
    "read_file": "Read the contents of a file.",
    "create_issue": "Open an issue in a repository.",
    "send_email": "Send an email to a contact.",
    "get_forecast": "The weather of the coming days in a city.",
    "book_hotel": "Reserve a hotel room for some nights.",
    "list_flights": "Flights between two airports on a date.",
    "find_recipes": "Recipes by ingredient.",
    "get_study_room": "Details of a study room in a library, by its id.",
    "get_library_lighting": "The configuration of the lighting of a library.",
    "get_pharmacy_policy": "The policy of a pharmacy, by its name and location.",
    "resize_image": "Change the width and height of a picture.",
}


def entries(said: dict[str, str]) -> list[CatalogEntry]:
    return [CatalogEntry(ToolDefinition(name, text), name) for name, text in said.items()]


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    return SearchIndex(entries(SAID))


def names(index: SearchIndex, query: str, limit: int = 10) -> list[str]:
    return [hit.name for hit in index.search(query, limit=limit)]


@pytest.mark.parametrize(
    ("query", "clauses"),
    [
        ("read a file", []),
        ("copper, tin and zinc prices", []),
        (
            "Book a cheap hotel room in Rome. Then list tomorrow's flights, and send Anna an email on both.",
            ["Book a cheap hotel room in Rome", "list tomorrow's flights", "send Anna an email on both"],
        ),
        ("查询明天的天气预报，然后预订酒店房间。", ["查询明天的天气预报", "然后预订酒店房间"]),
    ],
)
def test_x9_a_query_is_split_where_a_clause_ends(query: str, clauses: list[str]) -> None:
    assert [clause.removeprefix("Then ") for clause in clauses_of(query)] == clauses


def test_f36_a_query_of_many_clauses_is_split_in_part() -> None:
    assert len(clauses_of("resize another large picture. " * 200)) == 8
    assert len(clauses_of("a, " * 100_000)) <= 8


def test_x9_each_tool_of_a_long_query_is_among_the_first(index: SearchIndex) -> None:
    query = (
        "I need details of the study room with the id 17 in the city library. Please find the configuration "
        "of its lighting. After that, retrieve the policy of the Walgreens pharmacy in New York, by name."
    )
    assert set(names(index, query, 3)) == {"get_study_room", "get_library_lighting", "get_pharmacy_policy"}


def test_x9_both_tools_of_a_double_query_are_found(index: SearchIndex) -> None:
    query = (
        "How will the weather be in the city over the coming days, "
        "and can you mail a contact the id of a study room?"
    )
    assert {"get_forecast", "send_email", "get_study_room"} == set(names(index, query, 3))


def test_x9_rare_words_tell_and_common_ones_do_not() -> None:
    words = LexicalScorer()
    words.add(
        entries({f"{name}_report": f"A report about {name}." for name in ("copper", "tin", "zinc", "lead")})
    )
    assert words.read("copper tin zinc").telling == pytest.approx(3)
    assert words.read("report").telling < 0.2
    assert words.read("unknown").telling == 0


@pytest.mark.parametrize(
    "query", ["best restaurants in Miami", "good ramen near me", "who won the world cup in 1998"]
)
def test_x9_what_no_tool_answers_may_be_on_the_web(index: SearchIndex, query: str) -> None:
    assert "google-search" in names(index, query)
    without = SearchIndex(entries({name: text for name, text in SAID.items() if name != "google-search"}))
    assert "google-search" not in names(without, query)


@pytest.mark.parametrize("query", ["asdf qwer zxcv", "xyzzy plugh", "7", "🦄"])
def test_x9_what_says_nothing_is_no_search_of_the_web(index: SearchIndex, query: str) -> None:
    assert names(index, query) == []


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("plan a wedding", False),
        ("learn to play the guitar", False),
        ("weather in Oslo", True),
        ("book a table for dinner", True),
        ("book_hotel", True),
    ],
)
def test_x9_hits_say_whether_they_fit(index: SearchIndex, query: str, fits: bool) -> None:
    hits = index.search(query)
    assert hits and all(hit.fits is fits for hit in hits)


def test_x9_of_tools_that_do_not_fit_few_are_shown() -> None:
    rooms = {f"book_hotel_{number}": "Reserve a hotel room for some nights." for number in range(9)}
    index = SearchIndex(entries(rooms))
    assert len(index.search("plan a wedding")) == 5 and len(index.search("plan a wedding", limit=2)) == 2
    assert len(index.search("plan a wedding", exclude=["book_hotel_0"])) == 5
    assert len(index.search("reserve a hotel room")) == 9


@dataclass
class Told:
    """A scorer for which a query means `tool`."""

    tool: str
    share: float
    enough: float = 0.3

    def add(self, entries: Iterable[CatalogEntry]) -> None: ...

    def remove(self, public_names: Iterable[str]) -> None: ...

    def best(
        self, query: str, count: int, among: AbstractSet[str] | None = None, also: Iterable[str] = ()
    ) -> dict[str, float]:
        return {self.tool: 0.6}


@pytest.mark.parametrize(
    ("share", "wanted"), [(0.6, "book_hotel"), (0.95, "list_flights"), (1.0, "list_flights")]
)
def test_x9_the_larger_its_share_the_longer_a_query_is_ranked_by_meaning(share: float, wanted: str) -> None:
    index = SearchIndex(entries(SAID), scorer=Told("list_flights", share))
    assert names(index, "room hotel")[0] == "list_flights"
    assert names(index, "reserve room hotel nights reserved some cheap rooms now")[0] == wanted


def test_x9_a_tool_of_the_web_is_no_answer_to_what_fits_a_tool(index: SearchIndex) -> None:
    assert names(index, "weather in the coming days")[0] == "get_forecast"
    assert "google-search" not in names(index, "weather in the coming days")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("weather in Oslo", "get_forecast"),
        ("cheap hotel in Rome for three nights", "book_hotel"),
        ("make the picture smaller", "resize_image"),
        ("something with chicken for dinner", "find_recipes"),
    ],
)
def test_x9_unrelated_tools_take_away_no_hit(index: SearchIndex, query: str, wanted: str) -> None:
    assert names(index, query)[0] == wanted
    grown = SearchIndex(entries(SAID))
    for number in range(40):
        grown.add(entries({f"rotate_cipher_{number}": "Rotate the key of a cipher in the vault."}))
        assert names(grown, query)[0] == wanted
