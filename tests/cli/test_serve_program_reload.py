"""`serve FILE.py --reload`: a program is loaded again when a file of it changes; clients stay connected."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.commandline import CommandLine, command, environment, line
from tests.faults.harness import until
from tests.support.configured import BOUND, Told, text_of, visitor

from mcp_toolset.cli.mount import MountOptions
from mcp_toolset.cli.reloading import ProgramReload, front
from mcp_toolset.cli.target import ProgramFile
from mcp_toolset.errors import CallError

__all__ = ["line"]

pytestmark = pytest.mark.anyio

HELPER = "def plus(a: int, b: int) -> int:\n    return a + b\n"
APP = '''
from helper import plus
from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool

@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return plus(a, b)

@tool
def late() -> str:
    """Import a module that nothing else imports."""
    import later
    return later.WORD

@tool
async def hold(gate: str, context: ToolContext) -> str:
    """Wait until a file is there."""
    import anyio
    await context.progress(1, 2, "begun")
    while not await anyio.Path(gate).exists():
        await anyio.sleep(0.01)
    return "let go"
'''
SUB = '''
@tool
def sub(a: int, b: int) -> int:
    """Subtract."""
    return a - b
'''


def write(file: Path, text: str) -> None:
    """Replace a file in one step, as most editors do."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(file)


class Session:
    """A client of a program that is followed, and what the developer is told."""

    def __init__(self, line: CommandLine, client: Client, heard: Told, told: list[str]) -> None:
        self.app, self.helper = line.folder / "app.py", line.folder / "helper.py"
        self.client = client
        self.heard = heard
        self.told = told

    async def listed(self) -> dict[str, str | None]:
        return {one.name: one.description for one in (await self.client.list_tools()).tools}

    async def call(self, name: str, **arguments: Any) -> str:
        return text_of(await self.client.call_tool(name, arguments))

    async def becomes(self, said: str) -> None:
        """The next thing that the developer is told ends so."""
        count = len(self.told) + 1
        await until(lambda: len(self.told) >= count, within=BOUND)
        assert said in self.told[count - 1]


@asynccontextmanager
async def followed(
    line: CommandLine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, era: str
) -> AsyncGenerator[Session]:
    """A program that is followed fast, its children forks of a warm process."""
    monkeypatch.chdir(line.folder)
    for name, value in environment(line.folder).items():
        monkeypatch.setenv(name, value)
    target, told = ProgramFile("app.py"), list[str]()
    server = front(target, MountOptions())
    reload = ProgramReload(server, target, every=0.02, tell=told.append, command=line.command())
    with anyio.fail_after(4 * BOUND):
        async with server, reload.running(), visitor(server.lowlevel, era) as (client, heard):
            yield Session(line, client, heard, told)


@pytest.fixture
def program(line: CommandLine) -> CommandLine:
    line.write("app.py", APP)
    line.write("helper.py", HELPER)
    return line


@asynccontextmanager
async def served(line: CommandLine, transport: str) -> AsyncGenerator[tuple[Any, Path]]:
    """What a client connects to, and the file that gets the stderr of the command."""
    port = () if transport == "stdio" else ("--port", "0")
    name, *rest = command("serve", "app.py", "--reload", "--transport", transport, *port)
    known = environment(line.folder)
    with (line.folder / "stderr").open("w+") as errors:
        if transport == "stdio":
            parameters = StdioServerParameters(command=name, args=rest, cwd=line.folder, env=known)
            yield stdio_client(parameters, errlog=errors), line.folder / "stderr"
            return
        process = await anyio.open_process([name, *rest], cwd=line.folder, env=known, stderr=errors)
        async with process:
            said = line.folder / "stderr"
            await until(lambda: "http://" in said.read_text(), within=BOUND)
            yield said.read_text().split()[-1], said
            process.terminate()


@pytest.mark.long
@pytest.mark.parametrize(("transport", "era"), [("stdio", "legacy"), ("http", "modern")])
async def test_e6_a_client_stays_connected_while_its_program_is_edited(
    program: CommandLine, transport: str, era: str
) -> None:
    app = program.folder / "app.py"
    with anyio.fail_after(4 * BOUND):
        async with served(program, transport) as (target, errors), visitor(target, era) as (client, heard):

            async def listed() -> dict[str, str | None]:
                return {one.name: one.description for one in (await client.list_tools()).tools}

            async def told() -> None:
                """The client is told of a change, once."""
                await until(lambda: "tools" in heard, within=BOUND)
                heard.clear()

            assert (await listed())["add"] == "Add two numbers."
            write(app, APP.replace("Add two", "Sum two") + SUB)
            await told()
            assert (await listed())["add"] == "Sum two numbers." and "sub" in await listed()
            write(app, APP + "def (:\n")
            await until(lambda: "SyntaxError" in errors.read_text(), within=BOUND)
            assert text_of(await client.call_tool("sub", {"a": 3, "b": 1})) == "2"
            write(app, APP)
            await told()
            assert "sub" not in await listed()
        lines = errors.read_text().splitlines()
    (fault,) = [each for each in lines if "SyntaxError" in each]
    assert f"app.py: line {APP.count(chr(10)) + 1}: SyntaxError: " in fault
    assert "correct the file there; what is served stays as it was" in fault
    assert [one for one in lines if "app.py was loaded again: added sub; changed add" in one]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_e6_helpers_and_modules_that_are_imported_later_count(
    program: CommandLine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    program.write("later.py", "WORD = 'one'\n")
    async with followed(program, caplog, monkeypatch, era) as session:
        assert await session.call("add", a=1, b=2) == "3"
        write(session.helper, HELPER.replace("a + b", "a + b + 100"))
        await session.becomes("app.py was loaded again: its list of tools is the same")
        assert await session.call("add", a=1, b=2) == "103"
        assert await session.call("late") == "one"
        with anyio.fail_after(BOUND):
            # The child reports the module a little later; only then is its file followed.
            while not session.told[1:]:
                write(program.folder / "later.py", "WORD = 'another'\n")
                await anyio.sleep(0.5)
        assert await session.call("late") == "another"
        assert not session.heard, "no list has changed"


async def test_e6_each_fault_is_told_once_with_its_file_and_line_until_it_is_mended(
    program: CommandLine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faults() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]

    helper = str(program.folder / "helper.py")
    async with followed(program, caplog, monkeypatch, "modern") as session:
        for count, (text, said) in enumerate(
            (
                ("def plus(:\n", f"{helper}: line 1: SyntaxError"),
                (HELPER + "\nundefined\n", f"{helper}: line 4: NameError: name 'undefined' is not defined"),
                ("import nothing_like_this\n", "ModuleNotFoundError: No module named 'nothing_like_this'"),
            ),
            1,
        ):
            write(session.helper, text)
            await until(lambda count=count: len(faults()) == count, within=BOUND)
            assert said in faults()[-1] and faults()[-1].endswith("; what is served stays as it was")
            assert await session.call("add", a=1, b=2) == "3"
        # The module that was missing is made, and no file that was read before has changed.
        write(program.folder / "nothing_like_this.py", "")
        await until(lambda: len(faults()) == 4, within=BOUND)
        assert "cannot import name 'plus'" in faults()[-1]
        write(session.helper, "from mcp_toolset import ToolsetError\nraise ToolsetError('no plus today')\n")
        await until(lambda: len(faults()) == 5, within=BOUND)
        assert f"{helper}: line 2: no plus today" in faults()[-1]
        write(session.helper, HELPER)
        await session.becomes("its list of tools is the same")
        assert len(faults()) == 5


async def test_e6_a_program_that_is_wrong_at_first_is_served_once_it_is_mended(
    program: CommandLine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write("app.py", "def (:\n")
    async with followed(program, caplog, monkeypatch, "legacy") as session:
        assert "app.py: line 1: SyntaxError" in caplog.text and await session.listed() == {}
        write(session.app, APP)
        await until(lambda: session.heard, within=BOUND)
        assert "add" in await session.listed()


async def test_e6_a_call_in_flight_ends_at_the_child_that_it_began_at(
    program: CommandLine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun, texts = program.folder / "gate", anyio.Event(), list[str]()

    async def reported(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with (
        followed(program, caplog, monkeypatch, "modern") as session,
        anyio.create_task_group() as group,
    ):

        async def hold() -> None:
            result = await session.client.call_tool("hold", {"gate": str(gate)}, progress_callback=reported)
            texts.append(text_of(result))

        group.start_soon(hold)
        await begun.wait()
        write(session.app, APP.replace("let go", "another text"))
        await session.becomes("was loaded again")
        write(session.app, APP.replace("let go", "a third text") + SUB)
        await session.becomes("added sub")
        assert not texts
        gate.touch()
        with anyio.fail_after(BOUND):
            while not texts:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert texts == ["let go"] and await session.call("hold", gate=str(gate)) == "a third text"


async def test_e6_clients_see_the_name_and_the_instructions_of_the_program(
    program: CommandLine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (
        'server = ToolsetServer(Toolset(add), name="sums", version="7", instructions="Only whole numbers.")\n'
    )
    program.write("app.py", APP + made)
    monkeypatch.setenv("OF_THE_USER", "a-value-of-the-environment")
    program.write("helper.py", "import os\ndef plus(a, b): raise ValueError(os.environ['OF_THE_USER'])\n")
    async with followed(program, caplog, monkeypatch, "legacy") as session:
        info = session.client.server_info
        assert info is not None and (info.name, info.version) == ("sums", "7")
        assert session.client.instructions == "Only whole numbers."
        assert "a-value-of-the-environment" in await session.call("add", a=1, b=2)


@pytest.mark.needs("inbound_auth")
async def test_e6_a_program_that_decides_by_caller_is_not_served_to_several(
    program: CommandLine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = "from mcp_toolset.auth import StaticTokens\n"
    made = 'server = ToolsetServer(Toolset(add), auth=StaticTokens({"a": "t" * 40}))\n'
    program.write("app.py", imported + APP + made)
    monkeypatch.chdir(program.folder)
    server = front(ProgramFile("app.py"), MountOptions())
    reload = ProgramReload(server, ProgramFile("app.py"), shared=True, every=0.02, command=program.command())
    with anyio.fail_after(2 * BOUND):
        async with server, reload.running():
            assert "it decides by caller (auth, policy or access)" in caplog.text and server.tools() == []
            write(program.folder / "app.py", APP)
            await until(lambda: server.tools(), within=BOUND)
            with pytest.raises(CallError):
                await server.call_tool("sub", {})


@pytest.mark.needs("audit")
async def test_u73_a_program_that_keeps_an_audit_log_is_not_served_without_it(
    program: CommandLine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write("app.py", APP + 'server = ToolsetServer(Toolset(add), audit="calls.jsonl")\n')
    monkeypatch.chdir(program.folder)
    server = front(ProgramFile("app.py"), MountOptions())
    reload = ProgramReload(server, ProgramFile("app.py"), every=0.02, command=program.command())
    with anyio.fail_after(2 * BOUND):
        async with server, reload.running():
            assert "the program gives audit=…, which --reload would leave out" in caplog.text
            assert server.tools() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mcp.json", "--no-watch"), "--reload and --no-watch exclude each other"),
        (("https://example.test/mcp",), "--reload is for Python programs and configurations"),
        (("--", "python", "app.py"), "--reload is for Python programs and configurations"),
        (("app.py", "--header", "a: b"), "--reload and --header exclude each other"),
        (("app.py", "--shared", "redis://localhost"), "--reload and --shared exclude each other"),
    ],
)
def test_e6_reload_is_refused_where_it_means_nothing(
    program: CommandLine, arguments: tuple[str, ...], said: str
) -> None:
    program.write("mcp.json", "{}")
    done = program.here("serve", "--reload", *arguments)
    assert done.returncode == 2 and said in done.stderr
