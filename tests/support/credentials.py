"""A store of credentials in memory, as a program may have one of its own."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio


class MemoryCredentialStore:
    """Keeps credentials until it is gone."""

    def __init__(self) -> None:
        self._kept: dict[Any, Mapping[str, Any]] = {}
        self._locks = defaultdict[Any, anyio.Lock](anyio.Lock)

    async def load(self, key: Any) -> Mapping[str, Any] | None:
        return copy.deepcopy(self._kept.get(key))

    async def save(self, key: Any, data: Mapping[str, Any]) -> None:
        self._kept[key] = copy.deepcopy(dict(data))

    async def remove(self, key: Any) -> None:
        self._kept.pop(key, None)

    async def list(self) -> tuple[Any, ...]:
        return tuple(sorted(self._kept))

    @asynccontextmanager
    async def locked(self, key: Any, timeout: float = 60) -> AsyncGenerator[None]:
        with anyio.fail_after(timeout):
            async with self._locks[key]:
                yield
