import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.catalog.search.lexical import Vocabulary, distance
from mcp_toolset.catalog.search.text import Tokenizer, folded, plain, runs, stem, words


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("create_issue", ["create", "issue", "createissue"]),
        ("getHTMLPage", ["gethtmlpage", "get", "html", "page"]),
        ("list-PDFs", ["list", "pdfs", "listpdfs"]),
        ("ec2", ["ec2", "ec"]),
        ("YouTube", ["youtube", "you", "tube"]),
        ("数据库", ["数据", "据库"]),
        ("用API", ["用", "api"]),
        ("weather", ["weather"]),
    ],
)
def test_h19_identifiers_are_split_and_kept_whole(name: str, parts: list[str]) -> None:
    assert list(words(name)) == parts


@pytest.mark.parametrize(
    "family",
    [
        ["create", "creates", "created", "creating", "creation", "creator"],
        ["translate", "translation", "translator", "translating"],
        ["repository", "repositories"],
        ["file", "files"],
        ["search", "searches", "searched", "searching"],
        ["plan", "plans", "planned", "planning"],
        ["deploy", "deployment", "deployed"],
        ["convert", "converted", "converting"],
    ],
)
def test_h19_inflections_share_a_stem(family: list[str]) -> None:
    assert len(set(map(stem, family))) == 1


@pytest.mark.parametrize(
    "pair", [("general", "generate"), ("custom", "customer"), ("post", "poster"), ("status", "state")]
)
def test_h19_words_of_their_own_keep_their_own_stem(pair: tuple[str, str]) -> None:
    assert stem(pair[0]) != stem(pair[1])


def test_h19_stop_words_are_no_terms() -> None:
    assert Tokenizer().terms("What is the weather in the city?") == ["weather", "citi"]


@pytest.mark.parametrize("text", ["über " * 100, "e\u0301" * 200, "한국어 " * 90, "ﬁle " * 100])
def test_h19_accents_and_forms_do_not_matter_wherever_they_stand(text: str) -> None:
    bare = "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))
    assert plain(text) == unicodedata.normalize("NFC", bare)


@given(st.text(st.characters()))
def test_f36_any_text_has_words_and_few_of_them(text: str) -> None:
    found = [word for run in runs(text) for word in words(run)]
    assert all(found)
    assert len(Tokenizer().terms(text)) <= len(found)
    assert folded(text) == folded(text.strip())


letters = st.text("abc", max_size=7)


@given(letters, letters, letters)
def test_h19_distance_is_symmetric_and_zero_only_for_the_same_word(one: str, two: str, three: str) -> None:
    assert distance(one, two) == distance(two, one)
    assert (distance(one, two) == 0) == (one == two)
    assert abs(len(one) - len(two)) <= distance(one, two) <= max(len(one), len(two))
    assert distance(one + three, two + three) <= distance(one, two)


def test_h19_the_nearest_known_words_are_offered_and_forgotten() -> None:
    known = {"calendar", "calendars", "colander", "message", "mess"}
    vocabulary = Vocabulary(known)
    assert vocabulary.nearest("calender") == ["calendar"]
    assert vocabulary.nearest("messa") == ["mess"]
    assert vocabulary.nearest("messag") == ["message"]
    assert vocabulary.nearest("kalender") == []
    assert vocabulary.nearest("cal") == []
    known.remove("calendar")
    vocabulary.forget_order()
    assert vocabulary.nearest("calender") == ["calendars"]
