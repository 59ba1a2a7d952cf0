"""Each note as an MCP resource `note:///ID`, in Markdown with a YAML head.

The list holds the most recently changed notes, up to `MAX_LISTED`; the template reaches all.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Sequence

import anyio.from_thread
import anyio.to_thread
import mcp_types

from .errors import NotesError
from .finding import MAX_LIMIT
from .models import Note, NoteSummary, note_uri
from .rows import stamp
from .store import NoteStore

__all__ = ["MAX_LISTED", "NoteResources", "to_markdown"]

MAX_LISTED = MAX_LIMIT
"""Notes in the list of resources."""
_log = logging.getLogger(__name__)
_MARKDOWN = "text/markdown"
_NOTE_URI = re.compile(r"note:///([1-9][0-9]{0,15})")


class NoteResources:
    """A `ResourceProvider` over one store."""

    def __init__(self, store: NoteStore) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._known: frozenset[tuple[int, str]] | None = None
        self._callbacks: tuple[Callable[[], None], ...] = ()
        store.on_change(self._compare)

    async def list_resources(self) -> Sequence[mcp_types.Resource]:
        """The most recently changed notes."""
        notes, _ = await anyio.to_thread.run_sync(self._observe)
        return [_resource(note) for note in notes]

    async def list_resource_templates(self) -> Sequence[mcp_types.ResourceTemplate]:
        """One template, for every note by its id."""
        return [
            mcp_types.ResourceTemplate(
                name="note",
                title="A note",
                uri_template="note:///{id}",
                description="A note by its id, which search_notes and list_notes return.",
                mime_type=_MARKDOWN,
            )
        ]

    async def read_resource(self, uri: str) -> Sequence[mcp_types.TextResourceContents]:
        """The note at `uri`; raises `LookupError` if the address or the note does not exist."""
        match = _NOTE_URI.fullmatch(uri)
        if match is None:
            raise LookupError(f"{uri!r} is not a note's address: it has the form note:///ID, as note:///7.")
        note = await anyio.to_thread.run_sync(self._store.get, int(match[1]))
        return [mcp_types.TextResourceContents(uri=uri, mime_type=_MARKDOWN, text=to_markdown(note))]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, in the event loop, when a note joins or leaves the list or is renamed.

        It is called only for what differs from the list as it was last read or announced.
        """
        self._callbacks = (*self._callbacks, callback)

        def end() -> None:
            self._callbacks = tuple(other for other in self._callbacks if other is not callback)

        return end

    def _compare(self) -> None:
        if self._known is None:
            return
        try:
            _, differs = self._observe()
            if differs:
                for callback in self._callbacks:
                    anyio.from_thread.run_sync(callback)
        # The write is done by now, and its caller must not hear that it failed: a busy database is
        # compared after the next write, and where no loop runs there is nobody to tell.
        except (NotesError, RuntimeError) as error:
            _log.debug("a change of the list of notes was not announced: %s", error)

    def _observe(self) -> tuple[list[NoteSummary], bool]:
        with self._guard:
            notes = self._store.list(limit=MAX_LISTED).notes
            before, self._known = self._known, frozenset((note.id, note.title) for note in notes)
            return notes, before != self._known


def _resource(note: NoteSummary) -> mcp_types.Resource:
    return mcp_types.Resource(
        name=f"note-{note.id}",
        title=note.title,
        uri=note.uri,
        description=", ".join(f"#{tag}" for tag in note.tags) or None,
        mime_type=_MARKDOWN,
        annotations=mcp_types.Annotations(last_modified=stamp(note.updated_at)),
    )


def to_markdown(note: Note) -> str:
    """The note with a head that holds what the body does not say."""
    head = {
        "id": note.id,
        "title": note.title,
        "tags": note.tags,
        "revision": note.revision,
        "created": stamp(note.created_at),
        "updated": stamp(note.updated_at),
        "links": [note_uri(link.id) for link in note.links],
        "backlinks": [note_uri(link.id) for link in note.backlinks],
    }
    # JSON is YAML: a title with a colon or a quote cannot break out of the head.
    lines = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items())
    return f"---\n{lines}\n---\n\n# {note.title}\n\n{note.body}"
