"""Rates of replicas in a real store."""

from collections.abc import Iterator
from uuid import uuid4

import anyio
import pytest
from mcp_toolset.extensions.limits.shared_limits import SharedLimits
from tests.shared.test_shared_state import replica
from tests.support.valkey import ValkeyProcess, valkey_process

from mcp_toolset.middleware import LimitStore

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyProcess]:
    """One server for these tests."""
    with valkey_process() as server:
        yield server


@pytest.fixture
def url(valkey: ValkeyProcess) -> str:
    """A namespace of its own."""
    return f"{valkey.url}?namespace={uuid4().hex}"


async def test_r1_replicas_share_a_rate(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        stores: list[LimitStore] = [SharedLimits(each.store()) for each in (one, other)]
        taken = [(await store.take("ann", calls=3, per_seconds=3600, wanted=2)).tokens for store in stores]
        assert taken == [2, 1]
        refused = await stores[0].take("ann", calls=3, per_seconds=3600, wanted=1)
        assert refused.tokens == 0 and 1100 < refused.wait <= 1200
        assert (await stores[1].take("bob", calls=3, per_seconds=3600, wanted=1)).tokens == 1


async def test_r1_tokens_come_back(url: str) -> None:
    async with replica(url) as one:
        store = SharedLimits(one.store())
        assert (await store.take("ann", calls=1, per_seconds=0.05, wanted=1)).tokens == 1
        with anyio.fail_after(10):
            while not (await store.take("ann", calls=1, per_seconds=0.05, wanted=1)).tokens:
                pass
