"""What a person tells a server at a URL, what a command says of servers that are down, and how it ends."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from tests.cli.commandline import PATIENCE, CommandLine, answer, line
from tests.cli.screening import SHOP

__all__ = ["line"]

SECRET = "tok-4711-secret"


class Guarded(BaseHTTPRequestHandler):
    """A server of the legacy era with one tool, for who has the token."""

    heard: list[dict[str, str]] = []

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(self.rfile.read(int(headers["content-length"])))
        self.heard.append(headers)
        if SECRET not in (headers.get("authorization", "") + headers.get("x-key", "")):
            return self._send(401, {})
        match body["method"]:
            case "initialize":
                about = {"name": "guarded", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
            case "tools/list":
                result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": "seen"}]}
            case _:
                return self._send(202 if "id" not in body else 400, {})
        self._send(200, {"jsonrpc": "2.0", "id": body["id"], "result": result})

    def do_GET(self) -> None:
        self._send(405, {})

    def _send(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        server.shutdown()
        thread.join(PATIENCE)


def test_u62_a_token_and_headers_reach_a_url_and_no_output(line: CommandLine, guarded: str):
    env = {"TOKEN": SECRET}
    for given in (["--token-env", "TOKEN"], ["--header", "X-Key: ${TOKEN}"], ["--header", f"x-key:{SECRET}"]):
        listed = line.run("list", guarded, *given, env=env)
        assert listed.returncode == 0 and "look" in listed.stdout, listed.stderr
        inspected = line.run("list", guarded, "--servers", "--json", "-vv", *given, env=env)
        assert SECRET not in listed.stdout + listed.stderr + inspected.stdout + inspected.stderr
    assert line.run("call", guarded, "look", "--token-env", "TOKEN", env=env).stdout == "seen\n"
    assert {one["authorization"] for one in Guarded.heard if "authorization" in one} == {f"Bearer {SECRET}"}
    refused = line.run("list", guarded, "--header", "X-Key: wrong")
    assert refused.returncode == 1 and "wrong" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--token-env", "NOT_SET"], 2, "--token-env NOT_SET: the variable is not set"),
        (["--header", SECRET], 2, "--header: it has no name before a colon"),
        (["--header", f"X Key:{SECRET}"], 2, "--header: it has no name before a colon"),
        (["--header", f"X-Key:{SECRET}\nEvil: 1"], 2, "--header X-Key: its value is empty or has"),
        (["--header", "X-Key: ${NOT_SET}"], 1, "NOT_SET"),
    ],
)
def test_u62_a_header_that_cannot_be_sent_is_refused_without_its_value(
    line: CommandLine, arguments: list[str], code: int, says: str
):
    done = line.run("list", "http://127.0.0.1:9/mcp", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert says in done.stderr and SECRET not in done.stderr


def test_u62_headers_are_for_urls_alone(line: CommandLine):
    done = line.run("list", "kit.py", "--header", f"X-Key:{SECRET}")
    assert done.returncode == 2 and "--header and --token-env are for a URL" in done.stderr


def down(line: CommandLine) -> None:
    line.write("shop.py", SHOP)


def test_u62_list_names_what_is_down_once_and_fails_when_it_is_told_to(line: CommandLine):
    down(line)
    done = line.run("list", "shop.py")
    assert (done.returncode, done.stderr) == (0, "mcp-toolset: 1 of 2 servers is down: accounting\n")
    assert (done.stdout + done.stderr).count("no-such-program") == 1
    strict = line.run("list", "shop.py", "--strict", "--json")
    assert strict.returncode == 1 and json.loads(strict.stdout)["servers"]["accounting"]["state"] == "offline"
    assert line.run("list", "kit.py", "--strict").returncode == 0


def test_u62_list_servers_says_each_reason_once(line: CommandLine):
    line.write("down.json", json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}}}))
    done = line.run("list", "down.json", "--servers")
    assert (done.returncode, done.stderr) == (1, "mcp-toolset: 1 of 1 server is down: gone\n")
    assert done.stdout.count("command not found") == 1


def test_u62_prompts_and_resources_are_listed_got_and_read(line: CommandLine):
    down(line)
    (prompt,) = answer(line, "list", "shop.py", "--prompts")["prompts"]
    assert prompt["name"] == "review"
    assert line.run("get", "shop.py", "review", "language=7").stdout == "Review it in 7.\n"
    assert answer(line, "get", "shop.py", "review", "language=French")["messages"][0]["role"] == "user"
    listed = answer(line, "list", "shop.py", "--resources")
    assert ([one["uri"] for one in listed["resources"]], listed["resourceTemplates"]) == (
        ["note://today"],
        [],
    )
    for uri in ("note://today", "urn:note:today"):
        assert line.run("get", "shop.py", uri).stdout == "Buy milk.\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["get", "shop.py", "reviev", "language=x"], "reviev: no such prompt; did you mean review?"),
        (["get", "shop.py", "review"], "language"),
        (["get", "shop.py", "note://tody"], "note://tody: no such resource; did you mean note://today?"),
        (
            ["call", "shop.py", "review"],
            "review: no such tool in shop.py; it is a prompt: use mcp-toolset get",
        ),
        (["call", "shop.py", "note://today"], "use mcp-toolset get shop.py note://today"),
    ],
)
def test_u62_a_name_of_another_kind_has_its_mend(line: CommandLine, arguments: list[str], says: str):
    down(line)
    done = line.run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr.splitlines()[-1]


def test_u62_a_folder_that_does_not_exist_has_its_own_mend(line: CommandLine):
    entry = {"command": sys.executable, "args": ["x.py"], "cwd": "nowhere"}
    line.write("mcp.json", json.dumps({"mcpServers": {"one": entry}}))
    mount = f"RemoteToolset([{sys.executable!r}, 'x.py'], name='one', cwd='nowhere')"
    line.write("mount.py", f"from mcp_toolset import RemoteToolset\ntools = {mount}\n")
    for target, says in (("mcp.json", "correct `cwd`"), ("mount.py", "its folder does not exist: nowhere")):
        done = line.run("list", target)
        assert done.returncode == 1 and says in done.stderr
        assert "install" not in done.stderr
