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


FOR_NONE = {
    "a role that no token has": (
        "policy=Policy(roles={'x': Policy(deny=['pay'])})",
        "roles['x'] applies to no",
    ),
    "a name in other letters": (
        "policy=Policy(principals={'Ann': Policy(ask=['pay'])})",
        "['Ann'] applies to no",
    ),
    "a guard": (
        "rules=PolicyGuard(Policy(scopes={'x': Policy(allow=['look'])}))",
        "scopes['x'] applies to no",
    ),
    "limits": (
        "limits={'pay': Limits(calls=9, callers=[Limits(calls=1, roles=['x'])])}",
        "for[0] applies to no",
    ),
    "limits behind wider ones": (
        "limits={'pay': Limits(callers=[Limits(calls=9, roles=['a']), Limits(calls=1, principals=['ann'])])}",
        "for[1]: its calls never applies, as limits['pay'].for[0] has one before it",
    ),
    "a rule for everybody": (
        "policy=Policy(deny=['pay'], roles={'a': Policy(allow=['*'])})",
        "policy.deny: 'pay' never applies, as rules for each of these tokens are asked before it and allow",
    ),
    "a rule behind that of a role": (
        "policy=Policy(roles={'a': Policy(allow=['*'])}, scopes={'b': Policy(deny=['pay'])})",
        "scopes['b'].deny: 'pay' never applies",
    ),
}
HOLDS = {
    "a verifier of the application": """
class Own(StaticTokens):
    async def verify(self, token): return None
policy = Policy(roles={'x': Policy(deny=['pay'])})
server = ToolsetServer(Toolset(pay), policy=policy, auth=Own({'a': 'x' * 20}))
""",
    "one of several tokens": """
auth = StaticTokens({'ann': StaticToken('x' * 20, roles=['x']), 'bob': 'y' * 20})
bob = {'bob': Policy(ask=['look'])}
policy = Policy(deny=['pay'], roles={'x': Policy(allow=['*'])}, principals=bob)
server = ToolsetServer(Toolset(pay, look), policy=policy, auth=auth)
""",
}


@pytest.mark.parametrize("name", FOR_NONE)
def test_u73_rules_of_a_program_that_no_token_reaches_are_a_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    given, says = FOR_NONE[name]
    tokens = "StaticTokens({'ann': StaticToken('x' * 20, roles=['a'], scopes=['b'])})"
    server = run(f"made = ToolsetServer(Toolset(pay, look), {given}, auth={tokens})")["made"]
    server.http_app()
    server.http_app()
    assert [says in line for line in caplog.messages] == [True]
    # The same of tokens that the application is given alone.
    caplog.clear()
    alone = run(f"made = ToolsetServer(Toolset(pay, look), {given})\ntokens = {tokens}")
    alone["made"].http_app(auth=alone["tokens"])
    assert [says in line for line in caplog.messages] == [True]


@pytest.mark.parametrize("name", HOLDS)
def test_u73_rules_of_a_program_that_some_token_reaches_are_no_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(HOLDS[name])["server"].http_app()
    assert not caplog.text


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
    tokens = "StaticTokens({'ann': StaticToken('x' * 20, roles=['guest', 'a'])})"
    known = run(f"made = {FOR_SOME[name][:-1]}, auth={tokens})")["made"]
    known.http_app()
    assert not caplog.text
    known.rely_on_callers(stdio=True)
    assert "match nobody here: serve over HTTP" in caplog.text
