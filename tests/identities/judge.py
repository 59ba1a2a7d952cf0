"""`Judge`: finds marks of one user in what belongs to another, and tokens where none may be."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable

_WORD = re.compile(r"[\w-]{16,}")
_TAIL = 16
"""Characters at the end of a token, a grant or a session id by which it is recognised."""


class Judge(logging.Handler):
    """Each user has a mark, a word that is found nowhere else. As a handler it judges every log line.

    Attributes:
        counts: How many things of each kind were judged.
        crossings: What was found, one text each.
    """

    def __init__(self, marks: Iterable[str]) -> None:
        super().__init__(logging.DEBUG)
        self.marks = tuple(marks)
        self.counts: Counter[str] = Counter()
        self.crossings: list[str] = []
        self._owners: dict[str, str] = {}
        self._secrets: set[str] = set()

    def own(self, owner: str, word: str) -> str:
        """From now on a grant or a session id counts as a mark of its user."""
        if self._owners.setdefault(word[-_TAIL:], owner) != owner:
            self.crossing("same", f"{owner} was given what another user has: {word}")
        return word

    def keep_secret(self, owner: str, token: str) -> str:
        """From now on a token counts as a mark of its user, and no log line may hold it."""
        self._secrets.add(token[-_TAIL:])
        return self.own(owner, token)

    def belongs(self, owner: str | None, kind: str, text: str, sent: str = "") -> None:
        """Something of a user, which may hold marks of others only if the user has sent them."""
        self.counts[kind] += 1
        for mark in self.marks:
            if mark != owner and mark in text and mark not in sent:
                self.crossing(kind, f"{mark} in what belongs to {owner}: {text[:300]}")
        for word in _WORD.findall(text):
            found = self._owners.get(word[-_TAIL:])
            if found not in (None, owner) and word not in sent:
                self.crossing(kind, f"{word} of {found} in what belongs to {owner}: {text[:300]}")

    def is_of_one(self, kind: str, text: str) -> None:
        """Something that may belong to any user, but not to two, and that holds no token."""
        self.counts[kind] += 1
        if sum(mark in text for mark in self.marks) > 1:
            self.crossing(kind, text[:300])
        self.holds_no_token(kind, text)

    def holds_no_token(self, kind: str, text: str) -> None:
        """Something that holds no token of any user."""
        if any(word[-_TAIL:] in self._secrets for word in _WORD.findall(text)):
            self.crossing(kind, f"a token: {text[:300]}")

    def crossing(self, kind: str, text: str) -> None:
        self.crossings.append(f"{kind}: {text}")

    def emit(self, record: logging.LogRecord) -> None:
        """Judge a log line, with its traceback."""
        self.is_of_one("log line", self.format(record))
