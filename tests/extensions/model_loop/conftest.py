from collections.abc import Generator

import pytest
from tests.support.warm import Warm, warm_process


@pytest.fixture(scope="package")
def clients() -> Generator[Warm]:
    """Starts programs at once that use the libraries of providers, which take seconds to import."""
    with warm_process(("anthropic", "openai", "mcp_toolset.extensions.model_loop.tool_round")) as started:
        yield started
