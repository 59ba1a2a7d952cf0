"""The journals that the tests of their protocol run over: one over each store that knows who lives."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.stores import BACKENDS, POSTGRES, Backend

from mcp_toolset.extensions.journal.journal_store import JournalStore

__all__ = ["POSTGRES", "STORES", "Journals"]

Journals = Callable[..., JournalStore]
"""Makes journals in one place, to be entered: each stands for a process."""


@asynccontextmanager
async def _over(backend: Backend, folder: Path) -> AsyncGenerator[Journals]:
    async with backend(folder) as stores:

        def made(*, clock: Callable[[], float] = time.time, **options: Any) -> JournalStore:
            return JournalStore(stores(), clock=clock, **options)

        yield made


STORES: Mapping[str, Callable[[Path], AbstractAsyncContextManager[Journals]]] = {
    name: partial(_over, backend)
    for name, backend in BACKENDS.items()
    if name not in ("memory", "direct", "example")
}
