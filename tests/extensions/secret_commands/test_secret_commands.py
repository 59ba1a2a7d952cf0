"""`${command:…}`: the output of a program is a secret, and only what is served runs one (K8)."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.commandline import CommandLine, answer, command, environment, line
from tests.faults.harness import until

from mcp_toolset import load_toolset
from mcp_toolset.config import load_config
from mcp_toolset.config.models import HubConfig
from mcp_toolset.errors import SecretError
from mcp_toolset.extensions.secret_commands.references import look_up
from mcp_toolset.hub.mistakes import mistakes_in
from mcp_toolset.security import vault as vaults
from mcp_toolset.security.vault import Vault

__all__ = ["line"]

SECRET = "s3cr3t-0f-a-c0mmand"
TELLING = '''
import os
from mcp_toolset import serve, tool

@tool
def token() -> str:
    """Say how long the token is, and its end."""
    return f"{len(os.environ['TOKEN'])} {os.environ['TOKEN'][-4:]!r}"

serve(token)
'''


def reference(*words: str) -> str:
    return f"${{command:{shlex.join(words)}}}"


def counted(folder: Path, text: str = SECRET, code: int = 0) -> tuple[str, Path]:
    """A command that notes that it has run, and the file in which it does."""
    ran, script = folder / "ran", folder / "give.py"
    script.write_text(f"open({str(ran)!r}, 'a').write('x')\nprint({text!r})\nraise SystemExit({code})\n")
    return reference(sys.executable, "-IS", str(script)), ran


def times(ran: Path) -> int:
    return len(ran.read_text()) if ran.exists() else 0


def write(folder: Path, servers: dict[str, Any], **section: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, "toolset": section}))
    return path


def read(folder: Path, entry: dict[str, Any], **options: Any) -> HubConfig:
    return load_config(write(folder, {"up": entry}), **options)


def fault(folder: Path, text: str, **options: Any) -> str:
    (server,) = read(folder, {"command": "x", "env": {"TOKEN": text}}, **options).servers
    return server.fault


def test_k8_the_output_stands_wherever_a_reference_does(tmp_path: Path) -> None:
    text, ran = counted(tmp_path)
    entry = {"command": "x", "args": [f"--token={text}"], "env": {"TOKEN": text, "OTHER": f"a {text}"}}
    (server,) = read(tmp_path, entry).servers
    assert (server.args, dict(server.env)) == (
        (f"--token={SECRET}",),
        {"TOKEN": SECRET, "OTHER": f"a {SECRET}"},
    )
    # Once for a reading, however often it stands there; and every output and log blanks it.
    assert server.secrets == (SECRET,) and times(ran) == 1
    (server,) = read(tmp_path, {"url": "https://h/mcp", "headers": {"X": f"Bearer {text}"}}).servers
    assert dict(server.headers) == {"X": f"Bearer {SECRET}"}


@pytest.mark.parametrize(
    ("written", "value"),
    [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a b ", " a b "), ("é", "é"), ("a\nb\n", "a\nb")],
)
def test_k8_one_line_break_at_the_end_is_left_out(tmp_path: Path, written: str, value: str) -> None:
    (tmp_path / "file").write_bytes(written.encode())
    assert look_up("cat file", tmp_path, os.environ) == value


def test_k8_no_shell_sees_the_command(tmp_path: Path) -> None:
    said = "printf '[%s]' '$HOME' ; touch mark ~ * `id` $(id) && x|y"
    value = look_up(said, tmp_path, os.environ)
    assert value == "[$HOME][;][touch][mark][~][*][`id`][$(id)][&&][x|y]" and not [*tmp_path.iterdir()]


def test_k8_it_has_the_environment_and_the_folder_of_the_configuration(tmp_path: Path) -> None:
    code = "import os; print(os.environ['VAULT'], os.getcwd(), os.read(0, 9))"
    said = shlex.join([sys.executable, "-c", code])
    assert look_up(said, tmp_path, {"VAULT": "v"}) == f"v {tmp_path} b''"


def test_k8_a_program_that_fails_is_told_by_its_name_and_code_alone(tmp_path: Path) -> None:
    code = f"import sys; print({SECRET!r}); sys.stderr.write({SECRET!r}); sys.exit(7)"
    told = fault(tmp_path, reference(sys.executable, "-IS", "-c", code))
    assert told.endswith(
        f"the program {Path(sys.executable).name} ended with exit code 7; run the same "
        "command in a shell to see why"
    )
    assert "mcpServers.up.env.TOKEN" in told and SECRET not in told and "sys.exit" not in told
    assert "signal 9" in fault(tmp_path, reference("sh", "-c", "kill -9 $$"))
    assert "wrote nothing" in fault(tmp_path, reference("true"))
    assert "no UTF-8" in fault(tmp_path, reference("printf", r"\377"))
    assert "quote that is not closed" in fault(tmp_path, "${command:op 'read}")
    assert "cannot be started" in fault(tmp_path, f"${{command:{tmp_path}}}")


def test_k8_a_program_that_is_not_there_leaves_room_for_a_default(tmp_path: Path) -> None:
    assert "there is no program no-such-program; install it" in fault(
        tmp_path, "${command:no-such-program x}"
    )
    (server,) = read(tmp_path, {"command": "x", "args": ["${command:no-such-program x:-none}"]}).servers
    assert server.args == ("none",)
    # A program that fails has no default: a wrong secret would hide it.
    assert "exit code 1" in fault(tmp_path, "${command:false:-none}")
    assert "VS Code" in fault(tmp_path, "${command:python.interpreterPath}")


def test_k8_a_deadline_ends_the_program_and_its_children(tmp_path: Path) -> None:
    said = "sh -c 'sleep 600 & echo $$ $! > pids; wait'"
    with pytest.raises(SecretError, match=r"the program sh did not end in 2 s"):
        look_up(said, tmp_path, os.environ, seconds=2)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2 and all(is_gone(pid) for pid in pids)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells whose child a process is")
@pytest.mark.parametrize("ignoring", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN); "])
def test_k8_a_deadline_ends_children_with_a_session_of_their_own(tmp_path: Path, ignoring: str) -> None:
    noting = "open('new', 'w').write(str(os.getpid())); os.rename('new', 'pid')"
    child = f"import os, signal, time; {ignoring}{noting}; time.sleep(600)"
    parent = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-IS', '-c', sys.argv[1]], start_new_session=True).wait()\n"
    )
    (tmp_path / "parent.py").write_text(parent)
    said = shlex.join([sys.executable, "-IS", "parent.py", child])
    with pytest.raises(SecretError, match="did not end in 3 s"):
        look_up(said, tmp_path, os.environ, seconds=3)
    assert is_gone(int((tmp_path / "pid").read_text()))


def is_gone(pid: int) -> bool:
    try:
        # What nobody waits for is a zombie until init does.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_k8_a_flood_is_refused_and_ended(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match="wrote more than 65536 bytes"):
        look_up("yes", tmp_path, os.environ)


def test_k8_a_killed_bridge_leaves_no_program(tmp_path: Path) -> None:
    lines = ["import os, time", "open('new', 'w').write(str(os.getpid()))", "os.rename('new', 'pid')"]
    (tmp_path / "wait.py").write_text("\n".join([*lines, "time.sleep(600)"]))
    write(tmp_path, {"up": {"command": "x", "env": {"A": reference(sys.executable, "-IS", "wait.py")}}})
    words, pid = command("list", "mcp.json"), tmp_path / "pid"
    with subprocess.Popen(words, cwd=tmp_path, env=environment(tmp_path)) as process:
        try:
            anyio.run(until, pid.exists)
        finally:
            process.send_signal(signal.SIGKILL)
    anyio.run(until, lambda: is_gone(int(pid.read_text())))


def test_k8_a_served_file_gives_its_server_the_secret(line: CommandLine) -> None:
    text, ran = counted(line.folder)
    line.write("telling.py", TELLING)
    up = {**line.entry("serve", "telling.py"), "env": {"TOKEN": text}}
    write(line.folder, {"up": up})
    assert line.run("call", "mcp.json", "up_token").stdout == f"{len(SECRET)} 'mand'\n"
    assert times(ran) == 1


def test_k8_it_is_blanked_in_what_a_server_says(line: CommandLine, caplog: pytest.LogCaptureFixture) -> None:
    text, _ = counted(line.folder)
    code = "import os, sys; sys.exit('error: no login with ' + os.environ['TOKEN'])"
    write(line.folder, {"up": {"command": sys.executable, "args": ["-c", code], "env": {"TOKEN": text}}})
    with caplog.at_level(logging.DEBUG):
        done = line.run("list", "mcp.json", "-vv")
    assert "no login with ***" in done.stderr and SECRET not in done.stdout + done.stderr + caplog.text


def test_k8_a_disabled_server_runs_nothing(tmp_path: Path) -> None:
    text, ran = counted(tmp_path)
    read(tmp_path, {"command": "x", "args": [text], "env": {"TOKEN": text}, "disabled": True})
    read(tmp_path, {"url": text, "headers": {"A": text}, "enabled": False})
    assert times(ran) == 0


def test_k8_only_what_is_served_runs_a_command(line: CommandLine) -> None:
    """Files are checked, packed, switched and listed, also those of clients: none runs anything."""
    text, ran = counted(line.folder)
    entry = {"command": "no-such-program", "args": [text], "env": {"TOKEN": text}}
    remote = {"url": text, "headers": {"Authorization": f"Bearer {text}"}}
    write(line.folder, {"up": entry, "far": remote}, auth={"tokens": {"ci": {"token": text}}})
    assert answer(line, "check", "mcp.json")["errors"] == []
    assert line.run("disable", "mcp.json", "up/x", "--dry-run").returncode == 0
    line.run("logs", "mcp.json")
    line.run("pack", "mcp.json", "-o", "up.mcpb")
    cursor = line.folder / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text(json.dumps({"mcpServers": {"up": entry}}))
    line.run("list", "--clients", "--tokens")
    line.run("check")
    done = line.run("install", "cursor", "--adopt", "--yes")
    assert "up stays: it refers to a command of the editor" in done.stderr
    assert times(ran) == 0


def test_k8_mistakes_are_found_without_running_it(tmp_path: Path) -> None:
    text, ran = counted(tmp_path)
    path = write(tmp_path, {"up": {"url": text, "tiemout": 3}, "two": {"command": "x", "env": {"A": text}}})
    found = mistakes_in(path)
    assert [one.server for one in found.problems] == ["up"] and "did you mean" in found.problems[0].message
    assert times(ran) == 0


def test_k8_a_bundle_asks_in_place_of_a_command(line: CommandLine) -> None:
    text, ran = counted(line.folder)
    write(line.folder, {"up": {"command": "uvx", "args": ["x"], "env": {"TOKEN": text}}})
    done = line.run("pack", "mcp.json", "-o", "up.mcpb")
    assert done.returncode == 0, done.stderr
    from zipfile import ZipFile

    with ZipFile(line.folder / "up.mcpb") as bundle:
        packed = "".join(bundle.read(name).decode("utf-8", "replace") for name in bundle.namelist())
    assert "${command:" not in packed and "give.py" not in packed and times(ran) == 0


def test_k8_it_runs_again_when_the_file_has_changed_and_a_failure_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(vaults, "monotonic", lambda: clock[0])
    text, ran = counted(tmp_path)
    path = write(tmp_path, {"up": {"command": "x", "env": {"TOKEN": text}}})
    toolset = load_toolset(path)
    for _ in range(3):
        assert toolset.read() == toolset.config
    assert times(ran) == 1
    stamp = path.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(stamp, stamp))
    toolset.read()
    assert times(ran) == 2
    text, ran = counted(tmp_path, code=1)
    vault = Vault(os.environ)
    for seconds, number in ((0, 3), (59, 3), (61, 4), (119, 4)):
        clock[0] = 1000 + seconds
        assert "exit code 1" in fault_kept(path, vault)
        assert times(ran) == number


def fault_kept(path: Path, vault: Vault) -> str:
    (server,) = load_config(path, vault=vault).servers
    return server.fault


def test_k8_what_is_not_ours_stays_as_it_is(tmp_path: Path) -> None:
    shell = [
        "${x%.*}",
        "${x:0:3}",
        "${command:0:3}",
        "${COMMAND:-a b}",
        "${#x}",
        "${x:=/y}",
        "${other:a/b:c}",
    ]
    (server,) = read(tmp_path, {"command": "x", "args": shell}, environ={"COMMAND": ""}).servers
    assert server.fault == "" and server.args == (*shell[:3], "a b", *shell[4:])


def test_k8_an_absent_program_is_not_looked_for_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "op").write_text("#!/bin/sh\necho caught\n")
    (tmp_path / "op").chmod(0o755)
    environ = {"PATH": "/usr/bin:/bin"}
    with pytest.raises(SecretError) as told:
        look_up("op read x", tmp_path, environ)
    assert told.value.absent and look_up("./op read x", tmp_path, environ) == "caught"


def test_k8_the_example_of_the_page_asks_the_programs_that_it_names(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "config" / "secret-command.json"
    assert mistakes_in(example).problems == ()
    for name in ("op", "pass"):
        (tmp_path / name).write_text("#!/bin/sh\nprintf '[%s]' \"$@\"\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    github, database = load_config(example, environ=environ).servers
    assert dict(github.headers) == {"Authorization": "Bearer [read][op://work/github/token]"}
    assert dict(database.env) == {"DATABASE_PASSWORD": "[show][team/data base]"}


def test_k8_a_signal_ends_a_bridge_that_waits_for_a_program(line: CommandLine) -> None:
    text, ran = counted(line.folder)
    telling = line.write("telling.py", TELLING)
    up = {**line.entry("serve", str(telling)), "env": {"TOKEN": text}}
    path = write(line.folder, {"up": up})
    lines = ["import os, time", "open('new', 'w').write(str(os.getpid()))", "os.rename('new', 'pid')"]
    line.write("wait.py", "\n".join([*lines, "time.sleep(600)"]))
    pid = line.folder / "pid"
    with line.fork("serve", str(path)) as process:
        try:
            anyio.run(until, lambda: times(ran))
            draft = line.folder / "draft"
            waiting = {**up, "env": {"TOKEN": reference(sys.executable, "-IS", "wait.py")}}
            draft.write_text(json.dumps({"mcpServers": {"up": waiting}}))
            draft.replace(path)
            anyio.run(until, pid.exists)
            # The file was read at the start, and again by what watches it.
            assert times(ran) == 1
            process.terminate()
            assert process.wait(60) == 0
            # It did not wait for the deadline of the program, which its watchdog ends a little later.
            assert not is_gone(int(pid.read_text()))
        finally:
            process.kill()
    anyio.run(until, lambda: is_gone(int(pid.read_text())))
