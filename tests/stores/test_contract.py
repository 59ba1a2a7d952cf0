"""What every store does, wherever it keeps its entries: one test for each promise of the contract."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from tests.support.stores import BACKENDS, Stores

from mcp_toolset.shared import Put, Store
from mcp_toolset.stores.store import ABSENT

pytestmark = pytest.mark.anyio
KEY = ("shelf", "änn")


@pytest.fixture(params=BACKENDS)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Stores]:
    """Stores in one place, as several processes have them."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(BACKENDS[request.param](tmp_path))


async def value(store: Store, shelf: str, name: str) -> bytes | None:
    [found] = await store.get((shelf, name))
    return None if found is None else found.value


async def test_what_is_written_is_found_by_others_and_later(stores: Stores) -> None:
    data = bytes(range(256))
    async with stores() as one, stores() as other:
        assert await one.get(KEY, ("other", "änn")) == [None, None]
        assert await one.write(Put(*KEY, data)) is None
        assert await value(other, *KEY) == data and await value(other, "other", "änn") is None
        await other.write(Put(*KEY, b""), synced=False)
        assert await value(one, *KEY) == b""
    async with stores() as later:
        assert await value(later, *KEY) == b""
        await later.write(Put(*KEY, None))
        assert await value(later, *KEY) is None
        await later.write(Put(*KEY, None))


async def test_an_entry_changes_if_it_is_the_one_that_is_known(stores: Stores) -> None:
    async with stores() as one, stores() as other:
        assert await one.write(first := Put(*KEY, b"1", ABSENT, tag=2**52)) is None
        standing = await other.write(Put(*KEY, b"2", ABSENT))
        assert standing is not None and standing == [(b"1", first.tag)]
        assert await other.write(second := Put(*KEY, b"2", first.tag, tag=7)) is None
        assert await one.write(Put(*KEY, b"3", first.tag)) == [(b"2", second.tag)]
        assert await one.write(Put(*KEY, None, first.tag)) == [(b"2", second.tag)]
        assert await one.write(Put(*KEY, None, second.tag)) is None
        assert await one.write(Put(*KEY, b"4", second.tag)) == [None]
        assert await one.write(Put(*KEY, None, second.tag)) == [None]


async def test_changes_of_one_step_are_made_all_or_none(stores: Stores) -> None:
    async with stores() as store:
        await store.write(kept := Put("s", "b", b"before", tag=5))
        for known in (ABSENT, kept.tag + 1):
            refused = await store.write(Put("s", "a", b"1"), Put("s", "b", b"2", known), Put("t", "c", b"3"))
            assert refused == [None, (b"before", kept.tag), None]
        assert await store.get(("s", "a"), ("t", "c")) == [None, None]
        put = (Put("s", "b", None, kept.tag), Put("s", "a", b"1", ABSENT, tag=1), Put("t", "c", b"3", tag=2))
        assert await store.write(*put) is None
        found = await store.get(("s", "a"), ("s", "b"), ("t", "c"))
        assert found == [(b"1", put[1].tag), None, (b"3", put[2].tag)]


async def test_no_two_values_have_one_tag(stores: Stores) -> None:
    async with stores() as store:
        seen = set[int]()
        for _ in range(3):
            await store.write(Put(*KEY, b"1"))
            [found] = await store.get(KEY)
            assert found is not None
            seen.add(found.tag)
            await store.write(Put(*KEY, None))
        assert len(seen | {ABSENT}) == 4


async def test_one_of_many_at_once_is_the_first(stores: Stores) -> None:
    async with stores() as one, stores() as other:
        won: list[int] = []

        async def write(store: Store, number: int) -> None:
            puts = (Put("s", "a", b"%d" % number, ABSENT), Put("s", "b", b"%d" % number, ABSENT))
            if await store.write(*(puts if number % 4 else puts[::-1])) is None:
                won.append(number)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(write, one if number % 2 else other, number)
        assert len(won) == 1
        assert [await value(one, "s", name) for name in "ab"] == [b"%d" % won[0]] * 2


async def test_the_names_of_a_shelf_are_in_the_order_that_was_said(stores: Stores) -> None:
    async with stores() as store:
        assert await store.names("s") == []
        await store.write(Put("s", "", b""))
        for name, at in (("b", 2), ("c", 1_700_000_000_000_001), ("a", 1_700_000_000_000_000), ("d", None)):
            await store.write(put := Put("s", name, b"", at=at))
        assert put.at is None
        assert await store.names("s") == ["c", "a", "b"] and await store.names("") == []
        [found] = await store.get(("s", "a"))
        assert found is not None
        await store.write(Put("s", "b", b"again"), Put("s", "a", b"again", found.tag))
        assert await store.names("s") == ["c", "a", "b"]
        await store.write(Put("s", "b", b"last", at=1_700_000_000_000_002), Put("s", "c", None))
        assert await store.names("s") == ["b", "a"]
        await store.write(Put("s", "d", b"", at=3), Put("t", "e", b"", at=4))
        assert await store.names("s") == ["b", "a", "d"]


async def test_a_shelf_keeps_the_last_entries(stores: Stores) -> None:
    async with stores() as store:
        for number in range(6):
            await store.write(
                Put("s", str(number), b"", at=number, max_entries=3), Put("t", str(number), b"", at=0)
            )
        assert await store.names("s") == ["5", "4", "3"]
        assert await value(store, "s", "2") is None and len(await store.names("t")) == 6


async def test_an_entry_ends_with_its_time(stores: Stores) -> None:
    began = time.time()
    clock = [began]

    async def pass_by() -> None:
        """Wait as servers count; others are told another time."""
        await anyio.sleep(0.06)
        clock[0] += 0.06

    async with stores(clock=lambda: clock[0]) as store:
        await store.write(Put("s", "a", b"1", at=1, ttl=0.05), Put("s", "b", b"1", at=2, ttl=60))
        await store.write(kept := Put("s", "c", b"1", ABSENT, at=3, ttl=0.05, tag=9))
        await store.write(Put("s", "c", b"2", kept.tag, ttl=60), Put("s", "d", b"1", ABSENT, ttl=0.05))
        await pass_by()
        assert await value(store, "s", "a") is None and await store.names("s") == ["c", "b"]
        assert await value(store, "s", "c") == b"2"
        assert await store.write(Put("s", "a", b"2", ABSENT, ttl=60)) is None, "it counts as absent"
        assert await store.write(Put("s", "d", b"2")) is None, "nothing of what has ended is left"
        assert await store.names("s") == ["c", "b"]
        await pass_by()
        assert [await value(store, "s", name) for name in "abcd"] == [b"2", b"1", b"2", b"2"]


async def test_an_entry_is_taken_once(stores: Stores) -> None:
    async with stores() as one, stores() as other:
        assert await one.take("s", "a") is None
        await one.write(Put("s", "a", b"state"))
        taken: list[bytes | None] = []

        async def take(store: Store) -> None:
            taken.append(await store.take("s", "a"))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for store in (one, other) * 3:
                    group.start_soon(take, store)
        assert sorted(taken, key=bool) == [None] * 5 + [b"state"]


async def test_tokens_and_counts_are_never_given_twice(stores: Stores) -> None:
    async with stores() as one, stores() as other:
        given: list[int] = []

        async def take(store: Store) -> None:
            taken, wait = await store.tokens("s", "b", calls=5, per_seconds=10_000, wanted=2)
            assert 0 < wait <= 2000 if not taken else wait == 0
            given.append(taken)
            given.append(100 * await store.count("s", "c", max_count=3, ttl=60))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for store in (one, other) * 3:
                    group.start_soon(take, store)
        assert sum(given) == 5 + 300


async def test_it_is_told_which_users_live(stores: Stores, request: pytest.FixtureRequest) -> None:
    async with stores() as other:
        async with stores() as one:
            if not one.own:
                pytest.skip("nobody owns entries of this one")
            assert await other.lives(one.own) and await one.lives(one.own)
            gone = one.own
        if one is not other:
            assert not await other.lives(gone)
        assert not await other.lives("7")
