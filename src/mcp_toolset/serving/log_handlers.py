"""`Handlers`: how a log gets the records of this process, and other handlers no more of them than before.

Lowering the level of a logger concerns all handlers above it. So this package's logger gets one handler,
which keeps each record, and hands on those that would have been told without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from mcp_toolset.tools.source import STDERR_LOGGER

__all__ = ["Handlers"]

_OURS: Final = "mcp_toolset"
_DECISIONS: Final = "mcp_toolset.hooks"

Keep = Callable[[logging.LogRecord], None]


class Handlers:
    """The handlers of one log, and the levels that were changed for it."""

    def __init__(self, keep: Keep) -> None:
        """Nothing is changed yet; `keep` takes records."""
        self._package, self._root = logging.getLogger(_OURS), logging.getLogger()
        self._before: dict[str, int] = {}
        self._former = self._package.handlers[:], self._package.propagate
        self._others = _Others(keep)
        self._kept = _Kept(keep, self._before, *self._former)

    def begin(self, level: int) -> None:
        self._root.addHandler(self._others)
        self._package.handlers, self._package.propagate = [self._kept], False
        self.lower(level)

    def lower(self, level: int) -> None:
        self._restore()
        decisions = logging.getLogger(_DECISIONS)
        is_told = decisions.isEnabledFor(logging.INFO)
        self._set(_OURS, min(level, self._package.getEffectiveLevel()))
        if level <= logging.INFO:
            # What servers write to stderr is kept as information.
            self._set(STDERR_LOGGER, logging.DEBUG)
        if level > logging.DEBUG and not is_told:
            # There is a record for each hook and call, which would cost every call.
            self._set(_DECISIONS, logging.WARNING)

    def end(self) -> None:
        self._restore()
        self._root.removeHandler(self._others)
        if self._kept in self._package.handlers:
            # Among them may be one that a program has added meanwhile.
            later = [one for one in self._package.handlers if one is not self._kept]
            self._package.handlers = [*self._former[0], *later]
            self._package.propagate = self._former[1]

    def tell_others(self, message: str) -> None:
        """Give a warning to the handlers that are not of this log."""
        record = logging.LogRecord(_OURS, logging.WARNING, __file__, 0, message, (), None)
        self._kept.hand_on(record)

    def _set(self, name: str, level: int) -> None:
        logger = logging.getLogger(name)
        self._before[name] = logger.level
        logger.setLevel(level)

    def _restore(self) -> None:
        for name, level in self._before.items():
            logging.getLogger(name).setLevel(level)
        self._before.clear()


class _Kept(logging.Handler):
    """At the logger of this package."""

    def __init__(
        self, keep: Keep, before: Mapping[str, int], handlers: list[logging.Handler], propagates: bool
    ) -> None:
        super().__init__()
        self._keep = keep
        self._before = before
        self._handlers = handlers
        self._propagates = propagates

    def emit(self, record: logging.LogRecord) -> None:
        self._keep(record)
        if record.levelno >= self._asked(record.name):
            self.hand_on(record)

    def hand_on(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            if record.levelno >= handler.level:
                handler.handle(record)
        if self._propagates:
            logging.getLogger().callHandlers(record)

    def _asked(self, name: str) -> int:
        """The level of a logger without the changes that were made for the log."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if level := self._before.get(logger.name, logger.level):
                return level
            logger = logger.parent
        return 0


class _Others(logging.Handler):
    """At the root: keeps the records of other packages."""

    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] != _OURS:
            self._keep(record)
        last = logging.lastResort
        # Python shows warnings if there is no handler, and this one is not meant to be seen.
        if last is not None and logging.getLogger().handlers == [self] and record.levelno >= last.level:
            last.handle(record)
