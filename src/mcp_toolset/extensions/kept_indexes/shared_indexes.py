"""`SharedIndexes`: the indexes of searches that one replica has made and the others take."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from mcp_toolset.errors import StoreError

if TYPE_CHECKING:
    from mcp_toolset.context.shared import Shared

KEPT_FOR: Final = 30 * 86_400.0
"""Seconds for which replicas find an index."""

MAX_INDEX: Final = 64_000_000
"""Bytes of an index that is shared."""

_INDEX: Final = "index"
_log = logging.getLogger("mcp_toolset.catalog")


class SharedIndexes:
    """Finds and gives indexes in what replicas share."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def newest(self, edition: str) -> str:
        """The name of the newest index of an edition; empty without one."""
        return (await self._opened(edition) or b"").decode()

    async def content(self, name: str) -> bytes | None:
        """An index; `None` if it is not there."""
        return await self._opened(name)

    async def put(self, edition: str, name: str, content: bytes) -> None:
        """Give an index to the other replicas, unless they have it."""
        if len(content) > MAX_INDEX or await self.newest(edition) == name:
            return
        kept, seal = self._shared.kept(_INDEX), partial(self._shared.keys.seal, _INDEX)
        try:
            for key, data in ((name, content), (edition, name.encode())):
                sealed = await anyio.to_thread.run_sync(partial(seal, data, bound=key))
                await kept.put(key, sealed.encode(), seconds=KEPT_FOR)
        except StoreError as fault:
            _log.warning("other replicas do not get the index of the search: %s", fault)

    async def _opened(self, key: str) -> bytes | None:
        try:
            sealed = await self._shared.kept(_INDEX).get(key)
        except StoreError as fault:
            _log.warning("the index of another replica cannot be read: %s", fault)
            return None
        if sealed is None:
            return None
        opened = partial(self._shared.keys.open, _INDEX, sealed.decode(), bound=key)
        return await anyio.to_thread.run_sync(opened)
