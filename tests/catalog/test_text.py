"""Words of names and descriptions, as a search finds them: split, stemmed, without accents and stop words."""

from __future__ import annotations

import pytest

from mcp_toolset import ToolDefinition
from mcp_toolset.search import SearchIndex


def finds(text: str, query: str, name: str = "x1") -> bool:
    """True if a query finds a tool by the words of its description, beside another tool."""
    tools = [ToolDefinition(name, text), ToolDefinition("x2", "Something else")]
    return [hit.name for hit in SearchIndex(tools, scorer=None).search(query)] == [name]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("create_issue", ["create", "issue", "createissue"]),
        ("getHTMLPage", ["gethtmlpage", "html", "page"]),
        ("list-PDFs", ["pdfs", "listpdfs"]),
        ("ec2", ["ec2", "ec"]),
        ("YouTube", ["youtube", "tube"]),
        ("数据库", ["数据", "据库"]),
        ("用API", ["用", "api"]),
    ],
)
def test_h19_identifiers_are_split_and_kept_whole(name: str, parts: list[str]) -> None:
    assert all(finds("", part, name) for part in parts)
    assert all(finds(name, part) for part in parts)


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
def test_h19_inflections_are_found_by_each_other(family: list[str]) -> None:
    assert all(finds(family[0], form) and finds(form, family[0]) for form in family)


@pytest.mark.parametrize(
    "pair", [("general", "generate"), ("custom", "customer"), ("post", "poster"), ("status", "state")]
)
def test_h19_words_of_their_own_are_not_found_by_another(pair: tuple[str, str]) -> None:
    tools = [ToolDefinition(f"x{place}", word) for place, word in enumerate(pair)]
    index = SearchIndex(tools, scorer=None)
    assert [[hit.name for hit in index.search(word)] for word in pair] == [["x0"], ["x1"]]


@pytest.mark.parametrize(
    ("text", "bare"), [("über " * 100, "uber"), ("e\u0301te\u0301" * 40, "ete" * 40), ("ﬁle " * 100, "file")]
)
def test_h19_accents_and_forms_do_not_matter_wherever_they_stand(text: str, bare: str) -> None:
    assert finds(text, bare) and finds(bare, text)


def test_h19_a_word_that_has_gone_is_no_correction_any_more() -> None:
    index = SearchIndex(
        [ToolDefinition("x1", "calendar"), ToolDefinition("x2", "calendars of mess")], scorer=None
    )
    assert index.search("calender")
    index.remove(["x1", "x2"])
    assert not index.search("calender")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("calender", ["x0"]),
        ("calnedra", ["x0"]),  # twice two letters in each other's place
        ("colandr", ["x1"]),
        ("paragrph", ["x2"]),
        ("kalender", []),  # two edits, and it begins otherwise
        ("cal", []),
    ],
)
def test_h19_an_unknown_word_stands_for_the_nearest_known_one(query: str, found: list[str]) -> None:
    words = ("calendar", "colander", "paragraph")
    index = SearchIndex((ToolDefinition(f"x{place}", word) for place, word in enumerate(words)), scorer=None)
    assert [hit.name for hit in index.search(query)] == found
