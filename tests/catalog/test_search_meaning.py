"""Search by meaning: the built-in table, exact cosines, and queries that no tool answers."""

import json
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import ToolDefinition, Toolset, ToolsetServer
from mcp_toolset.catalog.search.meaning import PackedVectors, built_in, pieces_of, words_of
from mcp_toolset.errors import DefinitionError
from mcp_toolset.search import CatalogEntry, MeaningScorer, SearchIndex
from mcp_toolset.tools.call import SearchHit


def tool(name: str, description: str, server: str | None = None) -> CatalogEntry:
    return CatalogEntry(ToolDefinition(name, description, {"type": "object"}), name, server)


def names(hits: Iterable[SearchHit]) -> list[str]:
    return [hit.name for hit in hits]


TOOLS = [
    tool("createRefund", "Return a charge to the card it came from.", "stripe"),
    tool("get_forecast", "The weather of the coming days.", "weather"),
    tool("translate_text", "Translate text from one language to another.", "deepl"),
    tool("send_message", "Post to a channel.", "slack"),
    tool("list_flights", "Flights between two airports on a date.", "travel"),
    tool("read_file", "Read the contents of a file.", "filesystem"),
    tool("run_query", "Run SQL on the database.", "postgres"),
    tool("resize_image", "Change the width and height of a picture.", "images"),
    tool("create_event", "Put an appointment into the calendar.", "calendar"),
    tool("find_recipes", "Recipes by ingredient.", "cooking"),
]


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    return SearchIndex(TOOLS)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("give the buyer their money back", "createRefund"),
        ("will it rain tomorrow", "get_forecast"),
        ("say this in French", "translate_text"),
        ("I want to go to Madrid by plane", "list_flights"),
        ("make the photo smaller", "resize_image"),
        ("a dinner with chicken", "find_recipes"),
    ],
)
def test_x9_a_tool_is_found_that_shares_no_word_with_the_query(
    index: SearchIndex, query: str, found: str
) -> None:
    assert names(index.search(query))[0] == found


@pytest.mark.parametrize(
    "query",
    ["asdf qwer zxcv", "xyzzy plugh", "qqqq", "purple elephants dancing", "to be or not to be", "🦄 ♥", "7"],
)
def test_x9_what_fits_nothing_finds_nothing(index: SearchIndex, query: str) -> None:
    assert index.search(query) == []


@pytest.mark.parametrize(
    "query", ["天気予報", "Погода завтра", "احجز رحلة", "ส่งข้อความ", "मौसम", "\ud800", "İ"]
)
def test_x9_other_scripts_are_no_error_and_find_no_noise(index: SearchIndex, query: str) -> None:
    assert index.search(query) == []


def test_x9_a_foreign_query_still_finds_by_the_words_it_shares(index: SearchIndex) -> None:
    assert names(index.search("SQL クエリを実行する"))[0] == "run_query"


def test_x9_the_table_is_not_read_before_there_is_a_tool_and_no_search_imports_numpy() -> None:
    script = (
        "import json, sys, mcp_toolset, mcp_toolset.cli.main\n"
        "from mcp_toolset.catalog.search.index import SearchIndex\n"
        "from mcp_toolset.catalog.search.meaning import built_in\n"
        "empty = SearchIndex(); empty.search('anything')\n"
        "before = built_in.cache_info().currsize\n"
        "from mcp_toolset import ToolDefinition\n"
        "empty.add([ToolDefinition('read_file', 'Read a file.')])\n"
        "assert empty.search('read a file'), 'found'\n"
        "print(json.dumps([before, built_in.cache_info().currsize, 'numpy' in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == [0, 1, False]


def test_x9_the_table_comes_with_its_card_and_licences() -> None:
    folder = files("mcp_toolset.catalog.search") / "word_vectors"
    card = json.loads((folder / "table.json").read_text("utf-8"))
    assert card["teacher"]["licence"] == "Apache-2.0"
    assert card["dimensions"] == 128
    assert {"catalog", "seed", "licences"} <= card["data"].keys()
    assert "Apache License" in (folder / "LICENSE-all-MiniLM-L6-v2").read_text("utf-8")
    assert "all-MiniLM-L6-v2" in (folder / "NOTICE").read_text("utf-8")


def test_x9_words_split_as_names_are_written() -> None:
    assert words_of("getHTMLPage_v2 Café") == ["get", "html", "page", "v", "2", "cafe"]
    vocabulary = {"trans": 0, "##late": 1, "##r": 2, "t": 3}
    assert pieces_of("translater", vocabulary) == [0, 1, 2]
    assert pieces_of("!?", vocabulary) == []


def test_x9_the_order_of_words_and_a_repetition_of_the_text_do_not_matter() -> None:
    table = built_in()
    assert table.encode("read a file") == table.encode("file a read")
    one, thrice = table.encode("read a file"), table.encode("read a file " * 3)
    assert one is not None and thrice is not None
    assert [3 * number for number in one] == thrice
    assert table.encode("!?") is None


@pytest.mark.parametrize("unit", ["a", "A", "aB", "ａ", "a1", "_", "\u0301", "中"])
def test_f36_a_huge_text_is_read_in_part(unit: str) -> None:
    assert built_in().encode(unit * 1_000_000) == built_in().encode(unit * 4_000)


# PackedVectors: all at once gives what one by one gives


numbers = st.floats(-1, 1, width=32)
vectors = st.lists(numbers, min_size=6, max_size=6).filter(lambda v: sum(x * x for x in v) > 0.01)


def unit(vector: list[float]) -> list[float]:
    length = sum(x * x for x in vector) ** 0.5
    return [x / length for x in vector]


@given(st.lists(vectors, max_size=40), vectors, st.integers(1, 12))
def test_x9_long_integers_compare_as_exactly_as_one_by_one(
    held: list[list[float]], asked: list[float], count: int
) -> None:
    packed = PackedVectors(6)
    for place, vector in enumerate(held):
        packed.put(f"t{place:02}", unit(vector))
    cosines = packed.cosines(unit(asked))
    alone: dict[str, float] = {}
    for place, vector in enumerate(held):
        single = PackedVectors(6)
        single.put("it", unit(vector))
        alone[f"t{place:02}"] = single.cosines(unit(asked)).of(["it"])["it"]
    assert cosines.of(alone) == alone
    ranked = sorted(alone, key=lambda name: (-alone[name], name))
    assert list(cosines.best(count)) == [name for name in ranked if alone[name] > 0][:count]
    assert cosines.best(count, alone.keys()) == cosines.best(count)
    assert cosines.of(["nothing"]) == {}


@given(vectors, vectors)
def test_x9_whole_numbers_come_close_to_the_cosine(one: list[float], other: list[float]) -> None:
    one, other = [x * 0.4 + 1 for x in one], [x * 0.4 - 0.2 for x in other]
    packed = PackedVectors(6)
    packed.put("it", unit(one))
    exact = sum(x * y for x, y in zip(unit(one), unit(other), strict=True))
    assert packed.cosines(unit(other)).of(["it"])["it"] == pytest.approx(exact, abs=0.06)


SUBJECTS = ["refund", "weather", "a file", "flights to Rome", "天気", "", "x7", "photo of a cat"]
changes = st.lists(
    st.tuples(st.sampled_from(SUBJECTS), st.integers(0, 160), st.sampled_from([None, "one", "two"])),
    min_size=1,
    max_size=4,
)


@given(
    changes,
    changes,
    st.sampled_from([*SUBJECTS, "money back for a flight", "file file weather"]),
    st.integers(1, 100),
)
def test_h19_ties_holes_and_servers_rank_as_in_an_index_that_was_built_at_once(
    came: list[tuple[str, int, str | None]], went: list[tuple[str, int, str | None]], query: str, limit: int
) -> None:
    grown, held = SearchIndex(), dict[str, CatalogEntry]()
    for subject, number, server in came:
        more = [tool(f"{subject} {n} {server}", subject, server) for n in range(number)]
        held |= {entry.public_name: entry for entry in more}
        grown.add(more)
    for subject, number, server in went:
        less = [f"{subject} {n} {server}" for n in range(0, number, 3)]
        held = {name: entry for name, entry in held.items() if name not in less}
        grown.remove(less)
    last = [tool(f"again {n}", "weather and files", "one") for n in range(7)]
    grown.add(last)
    built = SearchIndex([*reversed(last), *held.values()])
    for server in (None, "one", "nowhere"):
        found = grown.search(query, limit=limit, server=server, exclude=["again 3"])
        assert found == built.search(query, limit=limit, server=server, exclude=["again 3"])


class Shared:
    """It has all that a scorer has but one method."""

    enough, share = 0.5, 0.5

    def add(self, entries: Iterable[CatalogEntry]) -> None: ...

    def remove(self, public_names: Iterable[str]) -> None: ...


@pytest.mark.needs("sentence_models")
@pytest.mark.parametrize("scorer", ["builtin", "BM25", "", True, MeaningScorer, Shared()])
@pytest.mark.parametrize("made", [SearchIndex, partial(ToolsetServer, Toolset())])
def test_a_scorer_that_does_not_exist_is_refused_with_those_that_do(made: Any, scorer: Any) -> None:
    with pytest.raises(DefinitionError, match=r"is no ranking: give 'built-in' .*, None .*EmbeddingScorer"):
        made(scorer=scorer)
