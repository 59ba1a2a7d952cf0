"""The notes as tools: what a model may do, and what each tool says about its effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, Field

from mcp_toolset import Tool, Toolset, tool

from .finding import MAX_LIMIT
from .models import MAX_ID, MAX_TAG, MAX_TAGS, MAX_TITLE, DeletedNote, Note, NotePage, SearchResult, TagList
from .query import MAX_QUERY
from .store import NoteStore

__all__ = ["NoteTools", "note_toolset"]

NoteId = Annotated[int, Field(ge=1, le=MAX_ID)]
Revision = Annotated[int, Field(ge=1)]
Title = Annotated[str, Field(min_length=1, max_length=MAX_TITLE)]
Tag = Annotated[str, Field(min_length=1, max_length=MAX_TAG)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS)]
SomeTags = Annotated[tuple[Tag, ...], Field(min_length=1, max_length=MAX_TAGS)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
Query = Annotated[str, Field(min_length=1, max_length=MAX_QUERY)]


class NoteTools:
    """The functions behind the tools; each does one thing to one store."""

    def __init__(self, store: NoteStore) -> None:
        self._store = store

    def add_note(self, title: Title, body: str = "", tags: Tags = ()) -> Note:
        """Write a new note.

        Args:
            title: One line that says what the note is about.
            body: The note itself, in Markdown.
            tags: Words to file it under; upper and lower case are the same.
        """
        return self._store.add(title, body, tags)

    def get_note(self, id: NoteId) -> Note:
        """Read a whole note, with the notes it points to and those that point to it.

        Args:
            id: The note's id, from search_notes or list_notes.
        """
        return self._store.get(id)

    def search_notes(self, query: Query, tag: Tag | None = None, limit: Limit = 10) -> SearchResult:
        """Find notes by their words, in title, body and tags, the best first.

        Word forms count as the same word, a word of three or more letters also finds longer ones that
        begin with it, and "quoted phrases" must occur as they are. Everything else is literal. When no
        note has all words, the literal text is tried, then any of the words.

        Args:
            query: Words and "quoted phrases".
            tag: Only notes with this tag.
            limit: How many notes to return at most.
        """
        return self._store.search(query, tag=tag, limit=limit)

    def list_notes(self, tag: Tag | None = None, cursor: str | None = None, limit: Limit = 20) -> NotePage:
        """List notes without their bodies, the most recently changed first.

        Args:
            tag: Only notes with this tag.
            cursor: next_cursor of the page before; leave it out for the first page.
            limit: How many notes to return at most.
        """
        return self._store.list(tag=tag, cursor=cursor, limit=limit)

    def list_tags(self) -> TagList:
        """List all tags in use with the number of notes that carry them, the most used first."""
        return self._store.tags()

    def update_note(
        self,
        id: NoteId,
        title: Title | None = None,
        body: str | None = None,
        tags: Tags | None = None,
        if_revision: Revision | None = None,
    ) -> Note:
        """Replace a note's title, body or tags; what is left out stays as it is.

        Args:
            id: The note's id.
            title: The new title.
            body: The new body, whole. To add text at the end, append_to_note is safer.
            tags: The new tags, all of them. To add or take away some, use tag_note or untag_note.
            if_revision: The revision you read. The update is refused if the note has changed since.
        """
        return self._store.update(id, title=title, body=body, tags=tags, if_revision=if_revision)

    def append_to_note(
        self, id: NoteId, text: Annotated[str, Field(min_length=1)], if_revision: Revision | None = None
    ) -> Note:
        """Add text on a new line at the end of a note.

        Args:
            id: The note's id.
            text: What to add, in Markdown.
            if_revision: The revision you read. Nothing is added if the note has changed since.
        """
        return self._store.append(id, text, if_revision=if_revision)

    def tag_note(self, id: NoteId, tags: SomeTags) -> Note:
        """Add tags to a note; it keeps those it has.

        Args:
            id: The note's id.
            tags: The tags to add.
        """
        return self._store.tag(id, tags)

    def untag_note(self, id: NoteId, tags: SomeTags) -> Note:
        """Take tags off a note; tags that it does not have are ignored.

        Args:
            id: The note's id.
            tags: The tags to take off.
        """
        return self._store.untag(id, tags)

    def link_notes(self, source: NoteId, target: NoteId) -> Note:
        """Let a note point to another; the other shows it among its backlinks.

        Args:
            source: The note that points.
            target: The note that it points to.
        """
        return self._store.link(source, target)

    def unlink_notes(self, source: NoteId, target: NoteId) -> Note:
        """Let a note no longer point to another.

        Args:
            source: The note that points.
            target: The note that it points to.
        """
        return self._store.unlink(source, target)

    def delete_note(self, id: NoteId, if_revision: Revision | None = None) -> DeletedNote:
        """Delete a note and its links for good.

        Args:
            id: The note's id.
            if_revision: The revision you read. Nothing is deleted if the note has changed since.
        """
        return self._store.delete(id, if_revision=if_revision)


def note_toolset(store: NoteStore) -> Toolset:
    """The twelve tools over one store, with their effects declared.

    Idempotent is what leaves the database the same when done twice; destructive, what takes away
    something that the note held.
    """
    notes = NoteTools(store)
    return Toolset(
        _writing("Add a note", notes.add_note),
        _reading("Read a note", notes.get_note),
        _reading("Search notes", notes.search_notes),
        _reading("List notes", notes.list_notes),
        _reading("List tags", notes.list_tags),
        _writing("Change a note", notes.update_note, destructive=True, idempotent=True),
        _writing("Append to a note", notes.append_to_note),
        _writing("Tag a note", notes.tag_note, idempotent=True),
        _writing("Untag a note", notes.untag_note, destructive=True, idempotent=True),
        _writing("Link two notes", notes.link_notes, idempotent=True),
        _writing("Unlink two notes", notes.unlink_notes, destructive=True, idempotent=True),
        _writing("Delete a note", notes.delete_note, destructive=True, idempotent=True),
        name="notes",
    )


def _reading(title: str, function: Callable[..., BaseModel]) -> Tool[..., BaseModel]:
    return tool(title=title, read_only=True, destructive=False, idempotent=True, open_world=False)(function)


def _writing(
    title: str, function: Callable[..., BaseModel], *, destructive: bool = False, idempotent: bool = False
) -> Tool[..., BaseModel]:
    return tool(
        title=title, read_only=False, destructive=destructive, idempotent=idempotent, open_world=False
    )(function)
