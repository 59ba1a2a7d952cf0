"""What can go wrong with notes: each message says what happened and how to mend it.

All but `DatabaseUnusableError` are meant for the model that called a tool, so they name no path.
"""

from __future__ import annotations

from mcp_toolset.errors import ToolExecutionError

__all__ = [
    "DatabaseBusyError",
    "DatabaseUnusableError",
    "InvalidNoteError",
    "NoteNotFoundError",
    "NotesError",
    "RevisionConflictError",
]


class NotesError(ToolExecutionError):
    """Root of this server's errors."""


class InvalidNoteError(NotesError):
    """A title, body, tag, cursor, query or limit that cannot be used; nothing was changed."""


class NoteNotFoundError(NotesError, LookupError):
    """No note has this id; `near` are existing ids on both sides of it."""

    def __init__(self, note_id: int, near: tuple[int, ...]) -> None:
        """Name the neighbours, or say that there are no notes at all."""
        if near:
            ids = ", ".join(map(str, near))
            mend = f"The nearest ids are {ids}. Find notes with search_notes or list_notes."
        else:
            mend = "There are no notes yet: add_note makes the first."
        super().__init__(f"There is no note {note_id}. {mend}")
        self.note_id = note_id
        self.near = near


class RevisionConflictError(NotesError):
    """The note is not at the revision that the caller had read; nothing was changed."""

    def __init__(self, note_id: int, expected: int, actual: int) -> None:
        """Say both revisions, so that a caller can tell a stale read from a typing error."""
        super().__init__(
            f"Note {note_id} is at revision {actual}, not {expected}; nothing was changed. "
            f"Read it again with get_note, merge your change, and repeat with if_revision={actual}."
        )
        self.note_id = note_id
        self.expected = expected
        self.actual = actual


class DatabaseBusyError(NotesError):
    """Somebody else held the database for longer than the busy timeout; nothing was changed."""

    def __init__(self, seconds: float) -> None:
        """Say how long was waited."""
        super().__init__(f"The notes database was busy for {seconds:g} s; nothing was changed. Try again.")


class DatabaseUnusableError(NotesError):
    """The file cannot be served: corrupt, foreign, from a newer version, or out of reach.

    Raised when the file is opened, before anything in it is changed. The message is one line.
    """
