"""The programs of the page on searches in owned loops, before a scripted provider."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.extensions.model_loop.endpoint import Calls, scripted
from tests.support.warm import Warm

EXAMPLES = Path(__file__).parents[3] / "examples" / "provider_search"
FORECAST: Calls = [("c2", "get_weather", {"city": "Bern"})]


@pytest.mark.parametrize(
    ("program", "first"),
    [("own_search", [("c1", "search_tools", {"query": "weather forecast"})]), ("native_search", [])],
)
def test_m5_u59_a_program_of_the_page_runs(program: str, first: Calls, clients: Warm) -> None:
    script: list[Calls | str] = [*([first] if first else []), FORECAST, "Sunny."]
    with scripted(script) as endpoint:
        environment = {
            **os.environ,
            "ANTHROPIC_BASE_URL": endpoint.url,
            "ANTHROPIC_API_KEY": "none",
            "OPENAI_BASE_URL": f"{endpoint.url}/v1",
            "OPENAI_API_KEY": "none",
        }
        command = clients.command(str(EXAMPLES / f"{program}.py"))
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stdout) == (0, "Sunny.\n"), done.stderr
    assert len(endpoint.asked) == len(script)
    assert "sunny in Bern" in str(endpoint.asked[-1])
