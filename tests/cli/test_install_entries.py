"""What `install` writes: the options of `serve`, portable project files, never a file that serves itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.commandline import PATIENCE, environment
from tests.cli.desk import CLIENTS, ClientName, installing
from tests.cli.desk import Desk as Machine
from tests.support.warm import Warm

from mcp_toolset.cli.commands.serve import serve_command
from mcp_toolset.cli.main import cli
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError

KEPT_BACKUPS = 5

PROJECT: list[ClientName] = ["claude-code", "cursor", "vscode"]


apply = installing.apply


class Desk(Machine):
    """A machine with a program in its project."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, scope=None)
        self.folders()
        (self.project / "app.py").write_text("")
        (self.project / "sub").mkdir()

    def plan(self, client: ClientName, *target: str, **options: Any) -> installing.InstallPlan:
        return self.install(client, *target, command=None, **options)

    def entry(self, client: ClientName, *target: str, **options: Any) -> dict[str, Any]:
        plan = self.plan(client, *target, **options)
        assert plan.after is not None
        return json.loads(plan.after)[CLIENTS[client].section]["hub"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"HOME": tmp_path, "XDG_CACHE_HOME": tmp_path / "cache"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


OPTIONS = ["--deferred", "--grants", "g.db", "--state", "s.json", "--client-prefix", "mcp__x__", "--no-watch"]


def test_u16_the_options_of_serve_are_written_into_the_entry(at_home: Path) -> None:
    done = CliRunner().invoke(cli, ["install", "cursor", "https://h/mcp", *OPTIONS, "--timeout", "20"])
    assert done.exit_code == 0, done.output
    (entry,) = json.loads((at_home / ".cursor" / "mcp.json").read_text())["mcpServers"].values()
    written = entry["args"][entry["args"].index("serve") + 1 :]
    files = [str(at_home / "g.db"), str(at_home / "s.json")]
    assert set(written) == {*OPTIONS, *files, "--timeout", "20", "https://h/mcp"} - {"g.db", "s.json"}
    read = serve_command.make_context("serve", list(written)).params
    assert (read["deferred"], read["watch"], read["timeout"]) == (True, False, 20)
    assert (str(read["grants"]), read["state"]) == tuple(files)


def test_u16_what_is_not_given_is_not_written(desk: Desk) -> None:
    assert desk.entry("cursor", "https://h/mcp")["args"] == ["serve", "https://h/mcp"]
    command = desk.entry("cursor", "--", "uvx", "x", options=["--deferred", Path("s")])
    assert command["args"] == ["serve", "--deferred", str(desk.project / "s"), "--", "uvx", "x"]


@pytest.mark.parametrize("client", PROJECT)
@pytest.mark.parametrize(
    ("target", "written"),
    [
        (("app.py",), ["{}/app.py"]),
        (("./app.py:tools",), ["{}/app.py:tools"]),
        (("--", "python", "sub/../app.py", "."), ["--", "python", "{}/app.py", "{}"]),
    ],
)
def test_u18_a_project_file_names_nothing_of_one_machine(
    desk: Desk, client: ClientName, target: tuple[str, ...], written: list[str]
) -> None:
    entry = desk.entry(client, *target, scope="project", options=["--state", Path("s.json")])
    folder = CLIENTS[client].workspace
    assert entry["command"] == "mcp-toolset"
    assert entry["args"] == [
        "serve",
        "--state",
        f"{folder}/s.json",
        *(word.format(folder) for word in written),
    ]
    assert str(desk.project.parent) not in json.dumps(entry)


@pytest.mark.parametrize("client", PROJECT)
def test_u18_what_lies_outside_and_modules_are_written_from_the_project(
    desk: Desk, client: ClientName
) -> None:
    (desk.home / "far.py").write_text("")
    (desk.project / "kit.py").write_text("")
    folder = CLIENTS[client].workspace
    far = desk.entry(client, str(desk.home / "far.py"), scope="project")
    assert far["args"] == ["serve", f"{folder}/../home/far.py"]
    assert desk.entry(client, "kit:tools", scope="project")["env"] == {"PYTHONPATH": folder}


@pytest.mark.parametrize("client", PROJECT)
def test_u18_a_portable_entry_is_read_as_the_file_that_was_meant(desk: Desk, client: ClientName) -> None:
    plan = desk.plan(client, "app.py", scope="project")
    apply(plan)
    (server,) = load_config(plan.path, environ={}).servers
    assert os.path.normpath(Path(server.cwd or "") / server.args[1]) == str(desk.project / "app.py")


def test_u18_the_program_by_its_name(tmp_path: Path) -> None:
    def found(*programs: str) -> tuple[str, ...]:
        folder = tmp_path / "-".join(programs)
        folder.mkdir()
        for program in programs:
            (folder / program).touch(0o755)
        return installing.launcher(Machine(tmp_path, environ={"PATH": str(folder)}).machine, portable=True)

    # By its name uvx finds nothing, as the package is on no index.
    assert found("mcp-toolset", "uvx") == found("uvx") == found("none") == ("mcp-toolset",)


def test_u18_a_users_own_file_keeps_absolute_paths(desk: Desk) -> None:
    entry = desk.entry("cursor", "app.py", scope="user")
    assert entry["args"] == ["serve", str(desk.project / "app.py")] and os.path.isabs(entry["command"])


@pytest.mark.parametrize("spelling", ["path", "relative", "link", "through another file"])
def test_u15_install_refuses_a_file_that_would_serve_itself(desk: Desk, spelling: str) -> None:
    own = desk.home / ".cursor" / "mcp.json"
    own.parent.mkdir()
    own.write_text('{"mcpServers": {}}')
    (desk.project / "link.json").symlink_to(own)
    other = {"up": {"command": "uvx", "args": ["mcp-toolset", "serve", str(own)]}}
    (desk.project / "other.json").write_text(json.dumps({"mcpServers": other}))
    targets = {"path": str(own), "relative": "../home/.cursor/mcp.json", "link": "link.json"}
    with pytest.raises(ConfigError, match="would serve the file that contains it.*a file of their own"):
        desk.plan("cursor", targets.get(spelling, "other.json"))
    assert own.read_text() == '{"mcpServers": {}}'


def test_u17_eight_at_once_are_eight_entries(tmp_path: Path, warm: Warm) -> None:
    install = ("-m", "mcp_toolset", "install", "cursor")
    started = [
        subprocess.Popen(
            warm.command(*install, f"https://h{number}.example/mcp", "--name", f"s{number}"),
            cwd=tmp_path,
            env=environment(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache")}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for number in range(8)
    ]
    said = [process.communicate(timeout=PATIENCE)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 8, said
    file = tmp_path / ".cursor" / "mcp.json"
    assert sorted(json.loads(file.read_text())["mcpServers"]) == [f"s{number}" for number in range(8)]
    assert len(list(file.parent.glob("*.bak"))) == KEPT_BACKUPS
    assert not [path for path in file.parent.iterdir() if path.suffix in (".lock", ".tmp")]


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link to a pipe"])
def test_u17_what_is_no_regular_file_is_refused_at_once(desk: Desk, kind: str) -> None:
    own = desk.home / ".cursor" / "mcp.json"
    own.parent.mkdir()
    match kind:
        case "pipe":
            os.mkfifo(own)
        case "folder":
            own.mkdir()
        case "device":
            own.symlink_to("/dev/null")
        case _:
            os.mkfifo(desk.home / "pipe")
            own.symlink_to(desk.home / "pipe")
    with pytest.raises(ConfigError, match=r"a (pipe|folder|device) and no regular file"):
        desk.plan("cursor", "https://h/mcp")


def test_u17_a_link_is_followed_and_the_last_five_backups_stay(desk: Desk) -> None:
    own, real = desk.home / ".cursor" / "mcp.json", desk.home / "real.json"
    own.parent.mkdir()
    real.write_text("{}")
    own.symlink_to(real)
    backups = [apply(desk.plan("cursor", f"https://h/{number}", force=True)) for number in range(12)]
    assert own.is_symlink() and "https://h/11" in real.read_text()
    kept = sorted(real.parent.glob("real.json.*.bak"))
    assert [path.name for path in kept] == sorted(f"real.json.{number}.bak" for number in range(8, 13))
    assert backups[-1] in kept and "https://h/10" in (real.parent / "real.json.12.bak").read_text()


ALL_DEFERRED = '{"toolset": {"deferred": true}, "mcpServers": {"a": {"command": "x"}}}'
SOME_DEFERRED = '{"mcpServers": {"a": {"command": "x", "deferred": true}, "b": {"command": "y"}}}'


@pytest.mark.parametrize(
    ("text", "options", "is_written"),
    [
        (ALL_DEFERRED, [], True),
        (ALL_DEFERRED, ["--no-deferred"], False),
        (SOME_DEFERRED, [], False),
        (SOME_DEFERRED, ["--deferred"], True),
        ("{", [], False),
    ],
)
def test_k1_an_entry_has_the_switch_of_its_client_where_all_tools_are_behind_search(
    desk: Desk, text: str, options: list[str], is_written: bool
) -> None:
    (desk.project / "mcp.json").write_text(text)
    clients: list[ClientName] = ["claude-code", "copilot-cli", "cursor"]
    entries = {one: desk.entry(one, "mcp.json", options=options) for one in clients}
    assert entries["claude-code"].get("alwaysLoad") is (True if is_written else None)
    assert entries["copilot-cli"].get("deferTools") == ("never" if is_written else None)
    assert entries["cursor"].keys() == {"type", "command", "args"}


def test_k1_a_program_that_is_not_started_has_no_switch(desk: Desk) -> None:
    assert "alwaysLoad" not in desk.entry("claude-code", "app.py")
    assert "alwaysLoad" in desk.entry("claude-code", "app.py", options=["--deferred"])
