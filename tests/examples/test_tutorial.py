"""Each step of the tutorial does what the page says."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.cli.commandline import CommandLine, line

pytestmark = pytest.mark.needs("*")


__all__ = ["line"]

SCRIPTS = Path(sys.executable).parent
STEPS = Path(__file__).parents[2] / "examples" / "tutorial"


PROGRAMS = {"PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def typed(line: CommandLine):
    """Types a command in a folder that holds the files of the tutorial."""
    for file in STEPS.glob("[!_]*.*"):
        shutil.copy(file, line.folder)

    def run(text: str) -> CompletedProcess[str]:
        return line.run(*shlex.split(text), env=PROGRAMS)

    return run


def test_e3_the_tools_of_the_first_step_are_listed_and_called(typed) -> None:
    assert "find_orders" in typed("list shop.py").stdout
    assert typed("call shop.py find_orders state=paid").stdout.strip() == '["A1","B7"]'
    refused = typed("call shop.py cancel_order order=A2")
    said = "mcp-toolset: cancel_order failed: order A2 cannot be cancelled: it is shipped\n"
    assert (refused.returncode, refused.stderr) == (1, said)


def test_e3_a_server_is_mounted_beside_them(typed) -> None:
    listed = typed("list office.py --strict").stdout
    assert "clock_get_current_time" in listed and "cancel_order" in listed
    assert "Europe/Berlin" in typed("call office.py clock_get_current_time timezone=Europe/Berlin").stdout


def test_e3_the_hook_refuses_and_the_rest_runs(typed) -> None:
    refused = typed("call guarded.py cancel_order order=B7")
    said = "mcp-toolset: cancel_order: Rejected: orders of customer B are cancelled by phone\n"
    assert (refused.returncode, refused.stderr) == (1, said)
    assert typed("call guarded.py cancel_order order=A1").stdout == "A1 is cancelled\n"


def test_e3_the_test_of_the_page_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(STEPS)
    for name in ("shop", "guarded"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    try:
        runpy.run_path(str(STEPS / "test_shop.py"))["test_orders_of_b_stay"]()
    finally:
        for name in ("shop", "guarded"):
            sys.modules.pop(name, None)


def test_e3_the_configuration_has_no_mistake_and_asks_about_cancelling(typed) -> None:
    assert typed("check mcp.json").returncode == 0
    told = typed("explain mcp.json shop_cancel_order").stdout
    assert "ask" in told and "toolset.permissions.ask: destructive:*" in told


def test_e3_the_last_step_is_served_over_http_and_called_from_the_shell(typed, line: CommandLine) -> None:
    with line.fork("serve", "mcp.json", "--transport", "http", "--port", "0", env=PROGRAMS) as process:
        try:
            assert process.stderr is not None
            address = re.search(r"http://\S+", process.stderr.readline())
            assert address
            assert "4 tools" in typed(f"list {address[0]}").stdout
            asked = f'call {address[0]} search_tools query="orders that are paid" resolve=1'
            found = json.loads(typed(asked).stdout)
        finally:
            process.terminate()
            process.wait(20)
    assert found["resolved"][0]["id"] == "shop_find_orders"
    assert found["resolved"][0]["status"] == "granted"
