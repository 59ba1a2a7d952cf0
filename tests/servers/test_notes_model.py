"""The store against a dictionary that does the same: any sequence of writes, from any state."""

from __future__ import annotations

import sqlite3
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from servers.notes.notes_server.errors import NoteNotFoundError, RevisionConflictError
from servers.notes.notes_server.models import Note, clean_tags
from servers.notes.notes_server.store import NoteStore

WORDS = st.sampled_from(["apple", "Banana", "naïve", "会议", "x", "don't", '"', "AND", "-"])
BODIES = st.lists(WORDS, max_size=4).map(" ".join)
TITLES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
TAGS = st.lists(st.sampled_from(["a", "B", "#a", "two words", 'qu"ote', "ß"]), max_size=3)


@dataclass(frozen=True)
class Expected:
    title: str
    body: str
    tags: list[str]
    revision: int = 1
    order: int = 0
    links: frozenset[int] = field(default_factory=frozenset[int])


class NotesMachine(RuleBasedStateMachine):
    notes = Bundle("notes")

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ticks = 0
        self.store = NoteStore(Path(self.folder.name) / "notes.db", clock=self.clock)
        self.model: dict[int, Expected] = {}
        self.highest = 0

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def clock(self) -> datetime:
        self.ticks += 1
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.ticks)

    def changed(self, note: Note, expected: Expected) -> None:
        before = self.model[note.id]
        same = (expected.title, expected.body, expected.tags) == (before.title, before.body, before.tags)
        if not same:
            expected = replace(expected, revision=before.revision + 1, order=self.ticks)
        self.model[note.id] = expected
        self.assert_same(note, expected)

    def assert_same(self, note: Note, expected: Expected) -> None:
        assert (note.title, note.body, note.tags) == (expected.title, expected.body, expected.tags)
        assert note.revision == expected.revision
        assert {link.id for link in note.links} == expected.links
        assert {link.id for link in note.backlinks} == {
            other for other, value in self.model.items() if note.id in value.links
        }

    @rule(target=notes, title=TITLES, body=BODIES, tags=TAGS)
    def add(self, title: str, body: str, tags: list[str]) -> int:
        note = self.store.add(title, body, tags)
        assert note.id > self.highest
        self.highest = note.id
        self.model[note.id] = Expected(title, body, clean_tags(tags), order=self.ticks)
        self.assert_same(note, self.model[note.id])
        return note.id

    @rule(note=notes, title=TITLES, body=st.none() | BODIES, tags=st.none() | TAGS)
    def update(self, note: int, title: str, body: str | None, tags: list[str] | None) -> None:
        before = self.model[note]
        after = replace(
            before,
            title=title,
            body=before.body if body is None else body,
            tags=before.tags if tags is None else clean_tags(tags),
        )
        self.changed(
            self.store.update(note, title=title, body=body, tags=tags, if_revision=before.revision), after
        )

    @rule(note=notes, title=TITLES, off=st.sampled_from([-1, 1, 7]))
    def update_from_a_stale_read(self, note: int, title: str, off: int) -> None:
        with pytest.raises(RevisionConflictError):
            self.store.update(note, title=title, if_revision=self.model[note].revision + off)

    @rule(note=notes, text=BODIES.filter(bool))
    def append(self, note: int, text: str) -> None:
        before = self.model[note]
        joint = "\n" if before.body else ""
        self.changed(self.store.append(note, text), replace(before, body=before.body + joint + text))

    @rule(note=notes, tags=TAGS)
    def tag(self, note: int, tags: list[str]) -> None:
        before = self.model[note]
        self.changed(self.store.tag(note, tags), replace(before, tags=clean_tags([*before.tags, *tags])))

    @rule(note=notes, tags=TAGS)
    def untag(self, note: int, tags: list[str]) -> None:
        before = self.model[note]
        kept = [tag for tag in before.tags if tag not in clean_tags(tags)]
        self.changed(self.store.untag(note, tags), replace(before, tags=kept))

    @rule(note=notes, other=notes, on=st.booleans())
    def link(self, note: int, other: int, on: bool) -> None:
        if note == other:
            return
        before = self.model[note]
        links = before.links | {other} if on else before.links - {other}
        self.model[note] = replace(before, links=links)
        linked = self.store.link(note, other) if on else self.store.unlink(note, other)
        self.assert_same(linked, self.model[note])

    @rule(note=consumes(notes))
    def delete(self, note: int) -> None:
        self.store.delete(note)
        del self.model[note]
        self.model = {
            other: replace(value, links=value.links - {note}) for other, value in self.model.items()
        }
        with pytest.raises(NoteNotFoundError):
            self.store.get(note)

    @rule()
    def restart(self) -> None:
        self.store.close()

    @invariant()
    def lists_every_note_once_by_recency(self) -> None:
        seen: list[int] = []
        cursor: str | None = None
        while True:
            page = self.store.list(cursor=cursor, limit=2)
            seen += [note.id for note in page.notes]
            cursor = page.next_cursor
            assert len(seen) <= len(self.model)
            if cursor is None:
                break
        assert seen == sorted(self.model, key=lambda note: (self.model[note].order, note), reverse=True)

    @invariant()
    def counts_tags(self) -> None:
        counted: dict[str, int] = {}
        for value in self.model.values():
            for tag in value.tags:
                counted[tag] = counted.get(tag, 0) + 1
        assert {item.tag: item.notes for item in self.store.tags().tags} == counted

    @invariant()
    def finds_by_body_what_the_model_holds(self) -> None:
        found = self.store.search("banana", limit=100)
        holders = {
            note for note, value in self.model.items() if "banana" in f"{value.title} {value.body}".casefold()
        }
        assert {hit.id for hit in found.hits} == holders

    @invariant()
    def index_and_table_agree(self) -> None:
        with sqlite3.connect(self.store.path) as connection:
            connection.execute("INSERT INTO notes_fts (notes_fts, rank) VALUES ('integrity-check', 1)")
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()


TestNotesMachine = NotesMachine.TestCase
TestNotesMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
