"""The extension of another distribution: as an object, a keyword, a key of a file, and a command.

What is installed is `examples/extension`, with the entry points of its `pyproject.toml`; each test runs it in
processes of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.commandline import PATIENCE, SOURCE, environment
from tests.support.asking import ERAS
from tests.support.warm import Warm

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "extension"

SERVER = '''
from mcp_toolset import serve, tool

@tool(read_only=True)
def account() -> dict[str, str]:
    """Show an account."""
    return {"ours": "sk-4f2a9c10b7d1", "theirs": "ghp_4f2a9c10b7d1"}

serve(account, stats=False)
'''


def installed(folder: Path, points: Mapping[str, Mapping[str, str]], *modules: Path) -> Path:
    """A folder of Python that has a distribution."""
    info = folder / "mcp_toolset_redact-1.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mcp-toolset-redact\nVersion: 1.0.0\n")
    lines = [
        line
        for group, members in points.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in members.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module in modules:
        shutil.copy(module, folder)
    return folder


class Place:
    """A folder of a person in whose environment the distribution is installed."""

    def __init__(self, folder: Path, packages: Path | None, warm: Warm) -> None:
        self.folder, self.warm = folder, warm
        paths = [SOURCE, *(() if packages is None else (packages,))]
        self.env = environment(folder, {"PYTHONPATH": ":".join(map(str, paths))})

    def write(self, name: str, text: object) -> Path:
        path = self.folder / name
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.warm.command(*arguments),
            capture_output=True,
            text=True,
            env=self.env,
            cwd=self.folder,
            timeout=PATIENCE,
            check=False,
        )

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "mcp_toolset", *arguments)

    @asynccontextmanager
    async def client(self, mode: Any, *words: str) -> AsyncGenerator[Client]:
        """A client of a program that is served over stdio."""
        command, *rest = self.warm.command(*words)
        program = StdioServerParameters(command=command, args=rest, env=self.env, cwd=self.folder)
        with anyio.fail_after(PATIENCE):
            async with Client(stdio_client(program), mode=mode, cache=None) as client:
                yield client


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    files = [EXAMPLE / name for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]]
    return installed(tmp_path_factory.mktemp("packages"), project["project"]["entry-points"], *files)


@pytest.fixture
def place(tmp_path: Path, packages: Path, warm: Warm) -> Place:
    return Place(tmp_path, packages, warm)


def configured(place: Place, redact: Any) -> Path:
    server = place.write("server.py", SERVER)
    command, *rest = place.warm.command(str(server))
    entry = {"command": command, "args": rest, "prefix": False}
    return place.write("mcp.json", {"toolset": {"redact": redact}, "mcpServers": {"desk": entry}})


def test_g8_its_own_tests_pass_where_it_is_installed(place: Place) -> None:
    shutil.copy(EXAMPLE / "test_redact.py", place.folder)
    done = place.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_redact.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.anyio
@pytest.mark.parametrize("given", ["extensions=[Redact()]", "redact=True", 'redact="sk-[0-9a-f]+"'])
async def test_g8_it_is_an_object_and_a_keyword_of_a_served_program(place: Place, given: str) -> None:
    example = (EXAMPLE / "app.py").read_text()
    assert example.count("extensions=[Redact()]") == 1
    app = place.write("app.py", example.replace("extensions=[Redact()]", given))
    async with place.client("auto", "-m", "mcp_toolset", "serve", str(app)) as client:
        shown = await client.call_tool("account", {"name": "ann"})
        assert shown.structured_content == {"name": "ann", "key": "***"}
        assert "sk-" not in str(shown)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("redact", "mode"),
    [
        *((True, mode) for mode in ERAS),
        ("ghp_[A-Za-z0-9]+", ERAS[0]),
        ({"pattern": "ghp_[A-Za-z0-9]+"}, ERAS[1]),
    ],
)
async def test_g8_it_is_a_key_of_a_file_that_is_served_over_stdio(
    place: Place, redact: Any, mode: Any
) -> None:
    words = ["-m", "mcp_toolset", "serve", str(configured(place, redact))]
    async with place.client(mode, *words) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert {"account", "blanked"} <= listed
        shown = await client.call_tool("account", {})
        ours, theirs = ("***", "ghp_4f2a9c10b7d1") if redact is True else ("sk-4f2a9c10b7d1", "***")
        assert shown.structured_content == {"ours": ours, "theirs": theirs}
        count = await client.call_tool("blanked", {})
        assert count.structured_content == {"result": 2}


def test_a_file_turns_it_off(place: Place) -> None:
    configured(place, False)
    done = place.command("call", "mcp.json", "account", "--json")
    assert done.returncode == 0, done.stderr
    assert "sk-4f2a9c10b7d1" in done.stdout


@pytest.mark.parametrize(
    ("redact", "said"),
    [
        (
            {"pattern": ""},
            ["toolset.redact.pattern: ", "write `pattern` as a regular expression, as a string"],
        ),
        ("", ["mcp.json:1:14: toolset.redact: must be ", "write `redact` as true, false, a regular expr"]),
        ([], ["toolset.redact: must be ", 'or an object such as {"pattern": "ghp_[A-Za-z0-9]+"}']),
        ("(", ["toolset.redact.pattern: is no pattern: missing ), ", "; correct it"]),
        ({"patern": "x"}, ["toolset.redact.patern", "did you mean `pattern`?"]),
    ],
)
def test_check_says_the_place_the_cause_and_the_mend(place: Place, redact: Any, said: list[str]) -> None:
    configured(place, redact)
    done = place.command("check", "mcp.json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    for part in said:
        assert part in done.stderr


@pytest.mark.parametrize("redact", [True, False, "x+", {"pattern": "x+"}, {}])
def test_check_finds_nothing_wrong_in_right_values(place: Place, redact: Any) -> None:
    configured(place, redact)
    done = place.command("check", "mcp.json", "--strict")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is wrong" in done.stdout


def test_a_misspelt_and_a_misplaced_key_are_recognised(place: Place) -> None:
    place.write("mcp.json", {"toolset": {"redcat": True}, "mcpServers": {}})
    done = place.command("check", "mcp.json")
    assert done.returncode == 1
    assert "did you mean `redact`?" in done.stderr
    place.write("mcp.json", {"redact": True, "mcpServers": {}})
    done = place.command("check", "mcp.json")
    assert done.returncode == 1
    assert "move it to `toolset.redact`" in done.stderr


def test_the_schema_and_the_reference_have_its_keys(place: Place) -> None:
    done = place.command("check", "--schema")
    assert done.returncode == 0, done.stderr
    schema = json.loads(done.stdout)
    key = schema["$defs"]["toolset"]["properties"]["redact"]
    assert key["anyOf"][-1] == {"$ref": "#/$defs/redact"}
    assert key["description"].startswith("Blanks secrets in results")
    assert schema["$defs"]["redact"]["properties"]["pattern"]["examples"] == ["ghp_[A-Za-z0-9]+"]
    assert jsonschema_rs.is_valid(schema, json.loads((EXAMPLE / "mcp.json").read_text()))
    assert not jsonschema_rs.is_valid(schema, {"toolset": {"redact": {"patern": "x"}}})
    asked = "from mcp_toolset.config.schema import parts\nprint(parts()['redact'].heading)"
    assert place.run("-c", asked).stdout.strip() == "`redact` of `toolset`"


def test_help_lists_its_command_and_the_command_runs(place: Place) -> None:
    listed = place.command("--help").stdout
    assert "  redact  " in listed and "Show what is left of TEXT without its secrets" in listed
    assert place.command("redact", "the key sk-4f2a is old").stdout == "the key *** is old\n"
    told = place.command("redcat", "x")
    assert told.returncode == 2 and "redact" in told.stderr
    without = Place(place.folder, None, place.warm)
    assert "redact" not in without.command("--help").stdout
    assert without.command("redact", "x").returncode == 2


@pytest.fixture
def broken(tmp_path: Path, warm: Warm) -> Place:
    points = {
        "mcp_toolset.extensions": {"redact": "gone:Redact", "shadow": "shadow:Shadow", "no": "shadow:no"},
        "mcp_toolset.commands": {"redact": "gone:command", "no": "shadow:no", "list": "shadow:no"},
    }
    shadow = tmp_path / "shadow.py"
    shadow.write_text(
        "from mcp_toolset.extending import Extension\n"
        "class Shadow(Extension):\n    key = 'light'\n"
        "def no(): ...\n"
    )
    return Place(tmp_path, installed(tmp_path / "packages", points, shadow), warm)


def test_a_broken_package_is_named_and_hides_nothing(broken: Place) -> None:
    done = broken.command("--help")
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "mcp-toolset-redact: gone:command cannot be imported: No module named 'gone'" in words
    assert "no: shadow:no is no command of click" in words
    assert "List" in words  # the own command of this name is the one that is there

    for command in ("redact", "no"):
        told = broken.command(command)
        assert told.returncode == 1 and told.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("redact", "gone:Redact cannot be imported: No module named 'gone'"),
        ("shadow", "shadow:Shadow has the key 'light'; give the entry point and the class one name"),
        ("no", "shadow:no is no subclass of mcp_toolset.extending.Extension"),
    ],
)
def test_a_wrong_entry_point_is_an_error_that_says_so(broken: Place, key: str, said: str) -> None:
    app = "from mcp_toolset import Toolset, ToolsetServer\ntools = ToolsetServer(Toolset(), {}=True)\n"
    broken.write("app.py", app.format(key))
    done = broken.command("list", "app.py:tools")
    assert done.returncode == 1
    assert said in done.stderr
    broken.write("mcp.json", {"toolset": {key: {}}, "mcpServers": {}})
    done = broken.command("check", "mcp.json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and "unexpected" not in done.stderr


def test_k8_a_scheme_of_references_is_looked_up_where_the_file_is_served(place: Place) -> None:
    server = place.write("server.py", SERVER)
    command, *rest = place.warm.command(str(server))
    text = "${netrc:example.com}"
    entry = {"command": command, "args": rest, "env": {"TOKEN": text}, "prefix": False}
    place.write(
        "mcp.json", {"mcpServers": {"desk": entry, "two": {**entry, "env": {"A": "${netrc:other:-x}"}}}}
    )
    assert place.command("check", "mcp.json").returncode == 0
    shown = place.command("list", "mcp.json", "--servers")
    assert "there is no file" in shown.stdout and shown.stdout.count("there is no file") == 1
    netrc = place.write(".netrc", "machine example.com login me password s3cr3t-of-netrc\n")
    netrc.chmod(0o600)
    shown = place.command("list", "mcp.json", "--json")
    assert {one["state"] for one in json.loads(shown.stdout)["servers"].values()} == {"ready"}
    assert "s3cr3t" not in shown.stdout + shown.stderr
