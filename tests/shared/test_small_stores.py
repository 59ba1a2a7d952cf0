"""Names of tools and one-time names in a real store."""

import pytest
from tests.shared.test_shared_state import replica

from mcp_toolset.catalog.registry.state import RegistryState
from mcp_toolset.errors import StaleStateError

pytestmark = pytest.mark.anyio


async def test_r1_the_state_of_a_registry_is_saved_by_compare_and_set(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        here, there = one.registry_state("tools"), other.registry_state("tools")
        assert await here.load() is None and await there.load() is None
        await here.save(RegistryState(1))
        with pytest.raises(StaleStateError):
            await there.save(RegistryState(2))
        assert await there.load() == RegistryState(1)
        await there.save(RegistryState(2))
        with pytest.raises(StaleStateError):
            await here.save(RegistryState(3))
        assert await other.registry_state("others").load() is None


async def test_r4_a_name_is_used_once_by_all_replicas(url: str) -> None:
    async with replica(url) as one, replica(url) as other:
        assert await one.used("state").use("a", ttl=60)
        assert not await other.used("state").use("a", ttl=60)
        assert await other.used("session").use("a", ttl=60)
        assert await other.used("state").was_used("a") and not await other.used("state").was_used("b")
        await other.used("state").free("a")
        assert await one.used("state").use("a", ttl=60)
