"""`mcp-toolset journal`: recorded calls are shown, and settled by a person, beside a server that runs."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.cli.commandline import CommandLine
from tests.support.journaled import UUID_KEY, Caller
from tests.support.warm import Warm

from mcp_toolset import Toolset, ToolsetServer, tool

PAY = '''
from pathlib import Path
from mcp_toolset import Toolset, ToolsetServer, tool

HERE = Path(__file__).parent

@tool(destructive=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    with (HERE / "effects").open("a") as effects:
        effects.write("x")
    return f"paid {amount}, receipt {(HERE / 'effects').stat().st_size}"

server = ToolsetServer(Toolset(pay), journal=HERE / "calls.sqlite3")
'''


@pytest.fixture
def cli(tmp_path: Path, warm: Warm) -> CommandLine:
    return CommandLine(tmp_path, warm)


@pytest.mark.anyio
@pytest.mark.parametrize("settled", [["--done", "invoice 17"], ["--never"]])
async def test_j1_a_person_settles_a_call_whose_outcome_is_not_known(
    cli: CommandLine, settled: list[str]
) -> None:
    path = cli.folder / "state" / "j.sqlite3"
    env = {"MCP_TOOLSET_JOURNAL": str(path)}
    entered, effects = anyio.Event(), list[int]()

    @tool(destructive=True)
    async def charge(amount: int, token: str) -> str:
        """Charge an amount; the first call has no end."""
        effects.append(amount)
        if len(effects) == 1:
            entered.set()
            await anyio.sleep_forever()
        return f"charged {amount}"

    async with ToolsetServer(Toolset(charge), journal=path) as server:
        arguments = {"amount": 5, "token": "hunter2"}
        call = partial(server.call_tool, "charge", arguments, context=Caller(UUID_KEY))
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            with anyio.fail_after(30):
                await entered.wait()
            running = json.loads(cli.forked("journal", "--json", env=env).stdout)
            refused = cli.forked("journal", "settle", running[0]["id"], *settled, env=env)
            group.cancel_scope.cancel()
        assert (running[0]["state"], refused.returncode) == ("running", 1) and " runs; " in refused.stderr
        shown = cli.forked("journal", "list", "--unknown", env=env).stdout
        assert shown.splitlines()[0].split() == "ID STATE BEGAN CALLER TOOL ARGUMENTS".split()
        assert (
            "unknown" in shown
            and "hunter2" not in shown
            and '{"amount": 5, "token": "*** (7 characters, sha256 ' in shown
        )
        assert "sent  " in cli.forked("journal", "show", running[0]["id"][:6], env=env).stdout
        told = cli.forked("journal", "settle", running[0]["id"], *settled, env=env)
        assert told.returncode == 0 and told.stdout.startswith(f"{running[0]['id']} charge: ")
        result = await call()
    if "--never" in settled:
        assert (effects, result.text) == ([5, 5], "charged 5")
    else:
        assert effects == [5] and "invoice 17" in result.text


def test_j1_without_a_journal_nothing_is_listed_and_an_unknown_id_is_told(cli: CommandLine) -> None:
    path = cli.folder / "j.sqlite3"
    env = {"MCP_TOOLSET_JOURNAL": str(path)}
    assert cli.run("journal", env=env).stdout == "no such call is recorded\n"
    assert json.loads(cli.run("journal", "list", "--json", env=env).stdout) == []
    told = cli.run("journal", "show", "00ff", env=env)
    assert told.returncode == 1 and "no call 00ff is recorded" in told.stderr
    assert not path.exists()
    told = cli.run("journal", "--file", str(path))
    assert told.returncode == 1 and f"{path} does not exist" in told.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["list", "x"],
        ["show"],
        ["settle", "x"],
        ["settle", "x", "--never", "--done", "y"],
        ["show", "x", "--never"],
    ],
)
def test_j1_a_command_line_that_settles_nothing_is_a_mistake(cli: CommandLine, words: list[str]) -> None:
    assert cli.run("journal", *words).returncode == 2


def test_j1_a_file_of_another_program_is_told_and_left_alone(cli: CommandLine) -> None:
    other = cli.folder / "other"
    with sqlite3.connect(other) as file:
        file.execute("CREATE TABLE mine (a)")
    file.close()
    told = cli.run("journal", "--file", str(other))
    assert told.returncode == 1 and "database of another program" in told.stderr


def test_j1_the_command_line_repeats_a_call_by_its_key(cli: CommandLine) -> None:
    program = cli.write("pay.py", PAY)
    call = ["call", str(program), "pay", "amount=5", "--key", "order-17"]
    done = [cli.forked(*call) for _ in range(2)]
    assert [(one.stdout, one.stderr) for one in done] == [("paid 5, receipt 1\n", "")] * 2
    other = cli.forked("call", str(program), "pay", "amount=6", "--key", "order-17")
    assert other.returncode == 1 and "stands for another call" in other.stderr
    assert cli.forked("call", str(program), "pay", "amount=5").stdout == "paid 5, receipt 2\n"


def test_u73_a_key_of_a_call_that_nothing_records_is_told(cli: CommandLine) -> None:
    program = "from mcp_toolset import tool\n@tool\ndef pay() -> str:\n    'Pay.'\n    return 'paid'\n"
    servers = {"mcpServers": {"a": cli.entry("serve", str(cli.write("plain.py", program)))}}
    cli.write("mcp.json", json.dumps(servers))
    cli.write("off.json", json.dumps({**servers, "toolset": {"journal": {"tools": {"*": "off"}}}}))
    says = "nothing here records calls of "
    for target, name in (("plain.py", "pay"), ("mcp.json", "a_pay"), ("off.json", "a_pay")):
        done = cli.run("call", target, name, "--key", "order-17")
        assert done.returncode == 0 and says + name in done.stderr, done.stderr
        assert says not in cli.run("call", target, name).stderr
    cli.write("mcp.json", json.dumps({**servers, "toolset": {"journal": {"path": "j.sqlite3"}}}))
    assert cli.run("call", "mcp.json", "a_pay", "--key", "order-17").stderr == ""
