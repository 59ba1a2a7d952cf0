"""An index that is opened from a file answers like one that was built in memory from the same tools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolset import ToolDefinition, ToolsetError
from mcp_toolset.catalog.search import index_file, meaning
from mcp_toolset.errors import DefinitionError, InvalidStateError
from mcp_toolset.search import CatalogEntry, SearchIndex
from mcp_toolset.tools import hidden_characters, hidden_text

_VERBS = "send read delete list create search update translate summarize".split()
_THINGS = ("message", "file", "issue", "天気 予報", "invoice", "kalender", "webpage")
_QUERIES = (
    "send a mesage to someone",
    "delete_file_3",
    "crea",
    "天気 予報",
    "remove old pages and then pay the invoice, also translate an issue",
    "list",
    "best pizza near me",
)


def _entry(number: int, edition: int = 0) -> CatalogEntry:
    of = Random(f"{number} {edition}")
    verb, thing = of.choice(_VERBS), of.choice(_THINGS)
    name = f"{verb}_{thing.split()[0]}_{number}" if number % 3 else f"工具{number}"
    properties = {f"{of.choice(_THINGS)}_id": {"type": "string", "description": f"word{of.randrange(30)}"}}
    definition = ToolDefinition(
        name if number % 5 else name.upper(),
        f"{verb} a {thing}, or {of.choice(_VERBS)} the {of.choice(_THINGS)}." if number % 7 else None,
        {"type": "object", "properties": properties},
        title="Ein Titel\ud800" if number == 4 else None,
    )
    server = ("mail", None, "Tasks", "")[number % 4]
    return CatalogEntry(definition, f"{name}\n" if number == 6 else name, server, ("urgent",) * (number % 2))


def _answers(index: SearchIndex, queries: Sequence[str] = _QUERIES) -> list[Any]:
    hidden = {_entry(number).public_name for number in (1, 2, 8)}
    every: list[Any] = [index.search(query, limit=40) for query in queries]
    every += [index.search(query, server="tasks") for query in queries]
    every += [index.search(query, hidden=hidden, exclude=[_entry(5).id]) for query in queries]
    return [*every, index.servers(), len(index)]


_KINDS = st.sampled_from("add add remove replace reopen".split())
_STEPS = st.lists(st.tuples(_KINDS, st.integers(0, 39), st.integers(0, 3)), max_size=14)


@settings(max_examples=25, deadline=None)
@given(_STEPS, st.booleans())
def test_m2_an_opened_index_that_changes_answers_like_one_built_in_memory(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[tuple[str, int, int]], words: bool
) -> None:
    scorer = None if words else "built-in"
    path = tmp_path_factory.mktemp("index") / "tools.index"
    held = {entry.public_name: entry for entry in map(_entry, range(30))}
    SearchIndex(held.values(), scorer=scorer).save(path)
    index = SearchIndex.open(path, scorer=scorer)
    for what, number, edition in steps:
        entry = _entry(number, edition)
        if what == "add":
            new = held.get(entry.public_name) != entry
            held[entry.public_name] = entry
            assert index.add([entry]) == ({entry.public_name} if new else set())
        elif what == "remove":
            gone = held.pop(entry.public_name, None)
            assert index.remove([entry.public_name]) == (set() if gone is None else {entry.public_name})
        elif what == "replace":
            theirs = [_entry(4 * each, edition) for each in range(number // 4)]
            held = {name: one for name, one in held.items() if one.server != "mail"}
            held |= {one.public_name: one for one in theirs}
            index.replace("mail", theirs)
        else:
            index.save(path)
            index = SearchIndex.open(path, scorer=scorer)
    assert _answers(index) == _answers(SearchIndex(held.values(), scorer=scorer))


def test_m2_more_changes_than_the_vectors_hold_apart_lie_over_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meaning, "_RECENT", 6)
    held = {entry.public_name: entry for entry in map(_entry, range(40))}
    SearchIndex(held.values()).save(tmp_path / "tools.index")
    index = SearchIndex.open(tmp_path / "tools.index")
    for number in range(20):
        entry = _entry(number, 7)
        held[entry.public_name] = entry
        index.add([entry])
        index.remove([_entry(number + 20).public_name])
        held.pop(_entry(number + 20).public_name, None)
        if number % 5 == 0:
            assert _answers(index) == _answers(SearchIndex(held.values()))
    assert index.add(held.values()) == set()


def _calls(work: Callable[[], object]) -> int:
    """The number of functions written in Python that are called."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_m2_opening_and_one_change_cost_the_same_at_any_size(tmp_path: Path) -> None:
    opened, changed, removed = [], [], []
    for size in (100, 2_000):
        path = tmp_path / f"{size}.index"
        tools = [ToolDefinition(f"tool_{at}", f"Send the letter {at}.") for at in range(size)]
        SearchIndex(tools).save(path)
        SearchIndex.open(path).search("send a letter")
        opened.append(_calls(partial(SearchIndex.open, path)))
        index = SearchIndex.open(path)
        new = [ToolDefinition("tool_7", "Water the garden of the house.")]
        changed.append(_calls(partial(index.add, new)))
        removed.append(_calls(partial(index.remove, ["tool_8"])))
        assert index.search("water the garden")[0].name == "tool_7"
    assert opened[1] <= opened[0] + 5
    assert changed[1] <= changed[0] + 20
    assert removed[1] <= removed[0] + 20


def test_m2_a_damaged_file_is_refused_whole(tmp_path: Path) -> None:
    path = tmp_path / "tools.index"
    SearchIndex(map(_entry, range(12))).save(path)
    content = path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0 or sys.platform == "win32"
    chance = Random(2)
    for _ in range(60):
        at = chance.randrange(len(content))
        damaged = bytearray(content)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(chance.choice((damaged, content[:at])))
        with pytest.raises(InvalidStateError, match=r"tools\.index: .*index the tools again"):
            SearchIndex.open(path)
    path.write_bytes(content)
    assert len(SearchIndex.open(path)) == 12


def test_m2_a_file_of_another_version_or_of_words_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tools.index"
    SearchIndex([_entry(1)], scorer=None).save(path)
    with pytest.raises(InvalidStateError, match="without vectors; open it with scorer=None"):
        SearchIndex.open(path)
    monkeypatch.setattr(index_file, "made_by", lambda: "another")
    with pytest.raises(InvalidStateError, match="another version of mcp-toolset"):
        SearchIndex.open(path, scorer=None)


@pytest.mark.parametrize("module", [hidden_text, hidden_characters], ids=lambda one: one.__name__)
def test_m2_a_file_of_other_tables_of_texts_is_refused(
    tmp_path: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "tools.index", tmp_path / "other.py"
    SearchIndex([_entry(1)]).save(path)
    other.write_text("another table")
    monkeypatch.setattr(module, "__file__", str(other))
    index_file.made_by.cache_clear()
    try:
        with pytest.raises(InvalidStateError, match="another version of mcp-toolset"):
            SearchIndex.open(path)
    finally:
        index_file.made_by.cache_clear()


@pytest.mark.needs("sentence_models")
def test_m2_an_index_with_a_model_is_not_saved(tmp_path: Path) -> None:
    from mcp_toolset.search import EmbeddingScorer

    class Model:
        name = "constant"

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[1.0, 0.0] for _ in texts]

    index = SearchIndex([_entry(1)], scorer=EmbeddingScorer(Model()))
    with pytest.raises(DefinitionError, match="only an index with the built-in table"):
        index.save(tmp_path / "tools.index")
    assert issubclass(DefinitionError, ToolsetError)
