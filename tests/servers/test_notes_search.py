"""Searching notes: ranking, word forms, literal text, and queries that nobody meant well (F36)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers.notes.notes_server.errors import InvalidNoteError
from servers.notes.notes_server.models import clean_tag
from servers.notes.notes_server.query import MAX_QUERY, MAX_TERMS, terms
from servers.notes.notes_server.store import NoteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[NoteStore]:
    with NoteStore(tmp_path / "deep" / "er" / "notes.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NoteStore]:
    with NoteStore(tmp_path_factory.mktemp("library") / "notes.db") as opened:
        opened.add("Sourdough", "Feed the starter at night. Bake at 250 °C.", ["baking"])
        opened.add("Bread hydration", "Seventy percent water. The starter counts.", ["baking", "maths"])
        opened.add("C++ templates", "SFINAE; prefer concepts -> readable errors.", ["code"])
        opened.add("会议记录", "明天上午讨论预算问题。", ["工作"])
        yield opened


def test_search_ranks_a_title_above_tags_above_a_body(store: NoteStore) -> None:
    filler = " and some other words to even out the length"
    store.add(f"Plain one{filler}", f"maple{filler}")
    store.add(f"Tagged one{filler}", f"oak{filler}", ["maple"])
    store.add(f"Maple one{filler}", f"oak{filler}")
    found = store.search("maple")
    assert found.matched == "all_words"
    assert [hit.title.split()[0] for hit in found.hits] == ["Maple", "Tagged", "Plain"]


def test_search_finds_word_forms_and_beginnings(library: NoteStore) -> None:
    assert [hit.title for hit in library.search("template").hits] == ["C++ templates"]
    assert [hit.title for hit in library.search("hydr").hits] == ["Bread hydration"]


def test_search_shows_the_place_that_fits(library: NoteStore) -> None:
    (hit,) = library.search("SFINAE").hits
    assert hit.snippet.startswith("**SFINAE**")


def test_quoted_phrases_must_occur_as_they_are(library: NoteStore) -> None:
    assert [hit.title for hit in library.search('"the starter counts"').hits] == ["Bread hydration"]
    assert library.search('"starter the counts"').hits == []


@pytest.mark.parametrize("query", ["C++ ->", "->", "预算"])
def test_f36_what_has_no_words_is_found_literally(library: NoteStore, query: str) -> None:
    text = query.split()[-1]
    found = library.search(text)
    assert found.matched == "exact_text"
    assert len(found.hits) == 1
    assert f"**{text}**" in found.hits[0].snippet


def test_search_falls_back_to_any_word(library: NoteStore) -> None:
    found = library.search("sourdough zeppelin")
    assert (found.matched, [hit.title for hit in found.hits]) == ("any_word", ["Sourdough"])


def test_search_by_tag_and_limit(library: NoteStore) -> None:
    assert [hit.title for hit in library.search("starter", tag="#Maths").hits] == ["Bread hydration"]
    limited = library.search("starter", limit=1)
    assert (len(limited.hits), limited.more) == (1, True)


HOSTILE = [
    'title:"',
    '"',
    '""',
    '"""',
    "NEAR(",
    "a AND",
    "NOT",
    "OR OR",
    "*",
    "^a",
    "{title body}: a",
    "-title: a",
    "a + b",
    "a\0b",
    "\ud800 a",
    "(" * 500,
    "a " * 499,
    "'; DROP TABLE notes; --",
    ".*(a+)+$",
    "%_%",
    "\U0001e900",
    "\ue000",
    "\u0301",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_f36_hostile_queries_are_literal(library: NoteStore, query: str) -> None:
    assert len(library.search(query).hits) <= 10


@settings(max_examples=300, deadline=None)
@given(query=st.text(st.characters() | st.sampled_from('"*^(){}:+-\0 aABNOTDR'), max_size=60))
def test_f36_no_text_is_a_syntax_error(library: NoteStore, query: str) -> None:
    try:
        library.search(query)
    except InvalidNoteError as error:
        assert "empty" in str(error)
        assert not query.replace("\0", " ").strip()


def test_f36_only_so_many_terms_count() -> None:
    assert len(terms(" ".join(f"w{number}" for number in range(200)))) == MAX_TERMS


def test_f36_a_long_query_is_refused(library: NoteStore) -> None:
    with pytest.raises(InvalidNoteError, match="shorten it"):
        library.search("a" * (MAX_QUERY + 1))


@given(tag=st.text(max_size=30))
def test_a_tag_has_one_spelling(tag: str) -> None:
    try:
        spelled = clean_tag(tag)
    except InvalidNoteError:
        return
    assert clean_tag(spelled) == spelled == clean_tag(f"# {tag} ")
