"""Names of tools and one-time names in a real store."""

import pytest
from tests.shared.test_shared_state import replica

from mcp_toolset import StateStore

pytestmark = pytest.mark.anyio


async def test_r1_the_state_of_a_registry_is_saved_by_compare_and_set(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        here: StateStore = one.registry_state("tools")
        there, elsewhere = other.registry_state("tools"), other.registry_state("others")
        assert await here.load() is None
        assert await here.save("{1}", None) and not await there.save("{2}", None)
        assert await there.load() == "{1}" and await there.save("{2}", "{1}")
        assert not await here.save("{3}", "{1}") and await elsewhere.load() is None


async def test_r4_a_name_is_used_once_by_all_replicas(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        assert await one.used("state").use("a", seconds=60)
        assert not await other.used("state").use("a", seconds=60)
        assert await other.used("session").use("a", seconds=60)
        assert await other.used("state").was_used("a") and not await other.used("state").was_used("b")
        await other.used("state").free("a")
        assert await one.used("state").use("a", seconds=60)
