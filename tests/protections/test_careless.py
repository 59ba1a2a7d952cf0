"""Programs of careless or unlucky programmers: a rule applies, or the program does not run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.protections.careless import LOUD, PRELUDE, QUIET, RIGHT, WARNED

pytestmark = pytest.mark.needs("*")


def run(program: str) -> dict[str, Any]:
    """Run a program, open its `server` and run its `main`."""
    space: dict[str, Any] = {"__name__": "careless"}
    for part in (PRELUDE, program):
        exec(compile(part, "careless.py", "exec", dont_inherit=True), space)

    async def all_of_it() -> None:
        with anyio.fail_after(30):
            if "server" in space:
                async with space["server"]:
                    pass
            if "main" in space:
                await space["main"]()

    anyio.run(all_of_it)
    return space


def by_name(rows: Iterable[tuple[str, ...]]) -> Any:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row[0]) for row in rows])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@by_name(LOUD)
def test_u75_a_careless_program_raises(row: tuple[str, str, str]) -> None:
    _, program, says = row
    with pytest.raises(Exception) as caught:
        run(program)
    assert says in str(caught.value)


@by_name(WARNED)
def test_u75_a_careless_program_with_mounts_logs_a_warning(
    row: tuple[str, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    _, program, says = row
    run(program)
    assert says in caplog.text


@by_name(QUIET.items())
def test_u75_a_rule_applies_where_it_was_ignored(row: tuple[str, str]) -> None:
    assert run(row[1])["ran"] == []


@by_name(RIGHT.items())
def test_u75_a_right_program_of_these_kinds_runs(row: tuple[str, str]) -> None:
    run(row[1])


FOR_SOME = {
    "a policy": "ToolsetServer(Toolset(pay), policy=Policy(roles={'guest': Policy(deny=['pay'])}))",
    "a guard": "ToolsetServer(Toolset(pay), rules=PolicyGuard(Policy(roles={'a': Policy(deny=['pay'])})))",
    "limits": "ToolsetServer(Toolset(pay), limits={'*': Limits(calls=1, roles=['guest'])})",
    "a toolset": "ToolsetServer(Toolset(pay).carrying(PolicyGuard(Policy(roles={'a': Policy(ask=['*'])}))))",
}


@pytest.mark.parametrize("name", FOR_SOME)
def test_u73_rules_of_a_program_for_some_callers_are_a_warning_without_auth(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = run(f"made = {FOR_SOME[name]}")["made"]
    server.http_app()
    server.http_app()
    assert caplog.text.count("rules for callers by name, role or scope match nobody here: give auth=…") == 1
    caplog.clear()
    known = run(f"made = {FOR_SOME[name][:-1]}, auth=StaticTokens({{'ann': 'x' * 20}}))")["made"]
    known.http_app()
    assert not caplog.text
    known.rely_on_callers(stdio=True)
    assert "match nobody here: serve over HTTP" in caplog.text
