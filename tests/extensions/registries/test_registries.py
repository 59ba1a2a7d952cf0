"""`mcp-toolset registry` and `add`, with registries on loopback, and hostile ones (K5)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.cli.commandline import CommandLine, answer, line
from tests.cli.pseudo import terminal

from mcp_toolset.config import load_config
from mcp_toolset.errors import TargetError
from mcp_toolset.extensions.registries.registry_api import Registry

__all__ = ["line"]

EXAMPLE = Path(__file__).parents[3] / "examples" / "registry" / "server.json"
WEATHER: dict[str, Any] = json.loads(EXAMPLE.read_text())
OFFICIAL = "io.modelcontextprotocol.registry/official"
Answer = Callable[[str, Mapping[str, str]], tuple[int, Mapping[str, str], bytes]]


@contextmanager
def serving(reply: Answer) -> Iterator[str]:
    """An HTTP server on loopback; `reply` has the path and the query."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            status, headers, body = reply(parts.path, query)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                pass

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def registry(*servers: dict[str, Any], api: str = "v0.1", size: int = 2) -> Answer:
    """A registry with pages of `size`, as the MCP registry answers."""

    def reply(path: str, query: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        if path != f"/{api}/servers":
            return 404, {}, b"{}"
        found = [one for one in servers if query.get("search", "") in one["name"]]
        start = int(query.get("cursor", "0"))
        page = found[start : start + size]
        entries = [
            {"server": one, "_meta": {OFFICIAL: {"status": "active", "isLatest": True}}} for one in page
        ]
        more = {"nextCursor": str(start + size)} if start + size < len(found) else {}
        return 200, {}, json.dumps({"servers": entries, "metadata": {"count": len(page), **more}}).encode()

    return reply


def named(name: str, **more: Any) -> dict[str, Any]:
    return {**deepcopy(WEATHER), "name": name, **more}


@pytest.fixture
def url() -> Iterator[str]:
    others = (named(f"com.example/weather-{number}", description=f"Number {number}") for number in range(4))
    with serving(registry(*others, WEATHER, named("org.other/weather"), named("org.other/mail"))) as url:
        yield url


def written(line: CommandLine, name: str = "mcp.json") -> dict[str, Any]:
    return json.loads((line.folder / name).read_text())["mcpServers"]


def add(line: CommandLine, server: dict[str, Any], *words: str, code: int = 0) -> dict[str, Any]:
    """Add a server of a file, without a question."""
    line.write("server.json", json.dumps(server))
    done = line.run("add", "server.json", "--yes", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return written(line) if code == 0 else {"error": done.stderr}


def package(**more: Any) -> dict[str, Any]:
    """A server with one package."""
    plain = {"registryType": "npm", "identifier": "x", "version": "1.0.0", "transport": {"type": "stdio"}}
    return {"name": "a.b/x", "description": "x", "version": "1", "packages": [{**plain, **more}]}


def remote(**more: Any) -> dict[str, Any]:
    plain = {"type": "streamable-http", "url": "https://h.example/mcp"}
    return {"name": "a.b/x", "description": "x", "version": "1", "remotes": [{**plain, **more}]}


def test_k5_a_registry_is_searched_over_its_pages(line: CommandLine, url: str) -> None:
    found = answer(line, "registry", "weather", "--registry", url)
    assert [one["name"] for one in found] == [
        *(f"com.example/weather-{number}" for number in range(4)),
        "com.example/weather",
        "org.other/weather",
    ]
    assert found[0]["ways"] == "http, npm, oci" and found[0]["description"] == "Number 0"
    assert len(answer(line, "registry", "weather", "--registry", url, "--limit", "3")) == 3
    shown = line.run("registry", "mail", env={"MCP_TOOLSET_REGISTRY": url})
    assert shown.returncode == 0 and "org.other/mail" in shown.stdout and "1 server of" in shown.stdout
    line.write("mcp.json", json.dumps({"mcpServers": {}, "toolset": {"registry_url": url}}))
    assert line.run("registry", "mail").returncode == 0
    assert line.run("registry", "nothing-of-this-name").returncode == 1
    assert line.run("check", "mcp.json").returncode == 0


def test_k5_a_registry_of_the_first_api_is_found(line: CommandLine) -> None:
    flat = {**WEATHER, "_meta": {OFFICIAL: {"status": "active"}}}

    def reply(path: str, query: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        return (
            (200, {}, json.dumps({"servers": [flat]}).encode()) if path == "/v0/servers" else (404, {}, b"")
        )

    with serving(reply) as url:
        assert answer(line, "registry", "weather", "--registry", url)[0]["name"] == "com.example/weather"


def test_k5_without_a_registry_it_says_how_to_name_one(line: CommandLine) -> None:
    done = line.run("registry", "weather")
    assert done.returncode == 1 and "--registry URL, set MCP_TOOLSET_REGISTRY" in done.stderr
    done = line.run("registry", "weather", "--registry", "http://registry.example.com")
    assert done.returncode == 1 and "use https" in done.stderr
    line.write("mcp.json", json.dumps({"mcpServers": {}, "toolset": {"registry_url": "registry"}}))
    assert "toolset.registry_url: is no address of a registry" in line.run("check", "mcp.json").stderr


def test_k5_a_server_is_shown_and_nothing_is_written_without_a_yes(line: CommandLine, url: str) -> None:
    words = ("add", "com.example/weather", "--registry", url, "--via", "npm")
    done = line.run(*words)
    assert done.returncode == 2 and "add --yes" in done.stderr and not (line.folder / "mcp.json").exists()
    for said in (
        "com.example/weather 1.0.2: Weather",
        f"from {url}",
        'runs ["npx", "-y", "@example/weather@1.0.2", "--units", "metric"]',
        "sets WEATHER_KEY: ${MCP_ADDED_WEATHER__WEATHER_KEY}",
    ):
        assert said in done.stdout
    assert line.run(*words, "--dry-run").returncode == 0 and not (line.folder / "mcp.json").exists()
    done = line.run(*words, "--yes")
    assert (
        done.returncode == 0
        and "set the variable MCP_ADDED_WEATHER__WEATHER_KEY first (Your key)" in done.stdout
    )
    assert written(line) == {
        "weather": {
            "command": "npx",
            "args": ["-y", "@example/weather@1.0.2", "--units", "metric"],
            "env": {"WEATHER_KEY": "${MCP_ADDED_WEATHER__WEATHER_KEY}"},
        }
    }
    (server,) = load_config(line.folder / "mcp.json", environ={"MCP_ADDED_WEATHER__WEATHER_KEY": "k"}).servers
    assert server.env == {"WEATHER_KEY": "k"} and server.fault == ""


def test_k5_an_address_is_taken_before_a_package_and_has_its_values(line: CommandLine, url: str) -> None:
    words = ("add", "com.example/weather", "--registry", url, "--yes", "--set", "region=us")
    told = answer(line, *words, "--set", "token=${keyring:weather/token}")
    assert told["added"] and told["unset"] == {}
    assert written(line)["weather"] == {
        "type": "http",
        "url": "https://weather.example.com/us/mcp",
        "headers": {"Authorization": "Bearer ${keyring:weather/token}"},
    }
    assert answer(line, *words, "--set", "token=${keyring:weather/token}")["added"] is False
    done = line.run(*words)
    assert done.returncode == 1 and "has another server 'weather'" in done.stderr
    assert "one of eu, us" in line.run(*words[:-1], "region=moon", "--as", "two").stderr


def test_k5_a_secret_is_no_argument_and_an_unknown_input_is_told(line: CommandLine) -> None:
    done = add(line, WEATHER, "--via", "npm", "--set", "WEATHER_KEY=s3cret", code=1)["error"]
    assert "a secret is no argument" in done and "s3cret" not in done
    done = add(line, WEATHER, "--via", "npm", "--set", "UNIT=x", code=1)["error"]
    assert "no such input; it has WEATHER_KEY, units" in done or "it has units" in done
    assert not (line.folder / "mcp.json").exists()


@pytest.mark.parametrize(
    ("server", "entry"),
    [
        (package(registryType="pypi", identifier="mcp-x"), {"command": "uvx", "args": ["mcp-x@1.0.0"]}),
        (
            package(
                registryType="oci",
                identifier="example/x",
                registryBaseUrl="https://images.example.com",
                environmentVariables=[{"name": "A", "value": "1"}],
                runtimeArguments=[
                    {
                        "type": "named",
                        "name": "--mount",
                        "value": "type=bind,src={dir},dst=/data",
                        "variables": {"dir": {"isRequired": True}},
                    }
                ],
                packageArguments=[{"type": "positional", "value": "serve"}],
            ),
            {
                "command": "docker",
                "args": [
                    *("run", "-i", "--rm", "--mount", "type=bind,src=${MCP_ADDED_X__DIR},dst=/data"),
                    *("-e", "A", "images.example.com/example/x:1.0.0", "serve"),
                ],
                "env": {"A": "1"},
            },
        ),
        (
            package(
                packageArguments=[
                    {"type": "positional", "valueHint": "folder", "isRequired": True, "isRepeated": True},
                    {"type": "named", "name": "--verbose"},
                    {"type": "named", "name": "--port=", "value": "8"},
                    {"type": "positional", "value": "; rm -rf ~ $(id) `id`"},
                ]
            ),
            {
                "command": "npx",
                "args": ["-y", "x@1.0.0", "${MCP_ADDED_X__FOLDER}", "--port=8", "; rm -rf ~ $(id) `id`"],
            },
        ),
        (
            {
                "name": "a.b/x",
                "description": "",
                "packages": [
                    {
                        "registry_name": "docker",
                        "name": "example/x",
                        "version": "3.1.0",
                        "runtime_arguments": [{"type": "named", "name": "--network", "value": "host"}],
                    }
                ],
            },
            {"command": "docker", "args": ["run", "-i", "--rm", "--network", "host", "example/x:3.1.0"]},
        ),
        (remote(type="sse", url="https://h.example/sse"), {"type": "sse", "url": "https://h.example/sse"}),
        (
            remote(headers=[{"name": "X-Key", "isRequired": True}, {"name": "X-More"}]),
            {"type": "http", "url": "https://h.example/mcp", "headers": {"X-Key": "${MCP_ADDED_X__X_KEY}"}},
        ),
        (
            {
                "name": "a.b/x",
                "description": "",
                "version_detail": {},
                "packages": [
                    {
                        "registry_name": "npm",
                        "name": "x",
                        "version": "2.0.0",
                        "environment_variables": [{"name": "A", "default": 5}],
                    }
                ],
            },
            {"command": "npx", "args": ["-y", "x@2.0.0"], "env": {"A": "5"}},
        ),
    ],
)
def test_k5_each_kind_becomes_an_entry(
    line: CommandLine, server: dict[str, Any], entry: dict[str, Any]
) -> None:
    assert add(line, server)["x"] == entry


def test_k5_comments_of_the_file_stay(line: CommandLine) -> None:
    text = '{\n  // mine\n  "mcpServers": {\n    "a": {"command": "x"}, // first\n  },\n}\n'
    line.write("mcp.json", text)
    line.write("server.json", json.dumps(remote()))
    assert line.run("add", "server.json", "--yes", "--as", "b").returncode == 0
    after = (line.folder / "mcp.json").read_text()
    assert "// mine" in after and "// first" in after and '"b": {' in after
    assert [one.name for one in load_config(line.folder / "mcp.json").servers] == ["a", "b"]


HOSTILE: dict[str, tuple[Any, str]] = {
    "a name with a path": (remote() | {"name": "a.b/../../etc"}, "no name of a server"),
    "a name with a control character": (remote() | {"name": "a.b/x\x1b[2J"}, "no name of a server"),
    "a name that is a folder": (remote() | {"name": "a.b/.."}, "no name of a server"),
    "a name that is no text": (remote() | {"name": {"a": 1}}, "is no server.json"),
    "a list": ([remote()], "is no server.json"),
    "a package that is an option": (package(identifier="--call=id"), "no name of a package"),
    "a package that is a path": (package(identifier="../x"), "no name of a package"),
    "a package from elsewhere": (package(identifier="git+https://e.vil/x"), "no name of a package"),
    "a package with a blank": (package(identifier="x y"), "no name of a package"),
    "two packages": (package(registryType="pypi", identifier="a;b"), "no name of a package"),
    "an image that is an option": (
        package(registryType="oci", identifier="--privileged"),
        "no name of a package",
    ),
    "another runtime": (package(runtimeHint="bash"), "would be started by 'bash'"),
    "a range": (package(version="^1"), "no exact version"),
    "latest": (package(version="latest"), "no exact version"),
    "a tag": (package(version="next"), "no exact version"),
    "a version of npm that is a range": (package(version="1"), "no exact version"),
    "a range of pypi": (package(registryType="pypi", version=">=1"), "no exact version"),
    "the latest image": (package(registryType="oci", version="latest"), "no exact version"),
    "an address as a version": (package(version="https://e.vil/x.tgz"), "no exact version"),
    "no version": (package(version=""), "names no version"),
    "another registry": (package(registryBaseUrl="https://npmjs.e.vil"), "is of the registry"),
    "a bundle": (package(registryType="mcpb", identifier="https://h.example/x.mcpb"), "is a bundle"),
    "a kind that nobody knows": (package(registryType="shell"), "no packages of 'shell'"),
    "a program over HTTP": (
        package(transport={"type": "streamable-http", "url": "http://localhost:1"}),
        "serves HTTP",
    ),
    "code for npx": (
        package(runtimeArguments=[{"type": "named", "name": "-c", "value": "id"}]),
        "could start anything",
    ),
    "an index for uvx": (
        package(
            registryType="pypi",
            runtimeArguments=[{"type": "named", "name": "--index-url", "value": "https://e.vil"}],
        ),
        "could start anything",
    ),
    "a privileged container": (
        package(registryType="oci", runtimeArguments=[{"type": "positional", "value": "--privileged"}]),
        "could start anything",
    ),
    "the whole disk": (
        package(registryType="oci", runtimeArguments=[{"type": "named", "name": "-v", "value": "/:/host"}]),
        "with a value that you do not choose",
    ),
    "a loader": (package(environmentVariables=[{"name": "LD_PRELOAD", "value": "x"}]), "not its own"),
    "options of node": (
        package(environmentVariables=[{"name": "NODE_OPTIONS", "value": "-r x"}]),
        "not its own",
    ),
    "a proxy": (
        package(environmentVariables=[{"name": "https_proxy", "value": "http://e.vil"}]),
        "not its own",
    ),
    "a variable that is none": (
        package(environmentVariables=[{"name": "A=B\nC", "value": "x"}]),
        "not its own",
    ),
    "a secret of the user": (
        package(packageArguments=[{"type": "positional", "value": "--key=${keyring:github}"}]),
        "has a reference",
    ),
    "a command of ours": (
        package(environmentVariables=[{"name": "A", "value": "${command:id}"}]),
        "has a reference",
    ),
    "a secret as a default": (
        remote(headers=[{"name": "X", "default": "${GITHUB_TOKEN}"}]),
        "has a reference",
    ),
    "a secret in an address": (remote(url="https://h.example/${HOME}"), "has a reference"),
    "a file in an address": (remote(url="file:///etc/passwd"), "no https address"),
    "no encryption": (remote(url="http://h.example/mcp"), "no https address"),
    "credentials": (remote(url="https://a:b@h.example/mcp"), "no https address"),
    "an address of ours": (remote(url="https://127.0.0.1/mcp"), "own network"),
    "metadata of a cloud": (remote(url="https://169.254.169.254/"), "own network"),
    "an address in decimal": (remote(url="https://2130706433/mcp"), "own network"),
    "a host without a dot": (remote(url="https://intranet/mcp"), "own network"),
    "a header with a line": (remote(headers=[{"name": "X\r\nY", "value": "z"}]), "no header"),
    "a value with a line": (remote(headers=[{"name": "X", "value": "a\r\nY: b"}]), "not shown"),
    "text that runs backwards": (
        package(packageArguments=[{"type": "positional", "value": "a\u202eb"}]),
        "not shown",
    ),
    "a long argument": (
        package(packageArguments=[{"type": "positional", "value": "a" * 5000}]),
        "4096 characters",
    ),
    "many arguments": (
        package(packageArguments=[{"type": "positional", "value": "a"}] * 101),
        "is no server.json",
    ),
    "another transport": (remote(type="stdio"), "is no transport"),
    "nothing": ({"name": "a.b/x", "description": "", "version": "1"}, "neither package nor address"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_k5_a_hostile_description_is_refused_with_a_reason(line: CommandLine, name: str) -> None:
    server, reason = HOSTILE[name]
    error = add(line, server, code=1)["error"]
    assert reason in error, error
    assert not (line.folder / "mcp.json").exists()
    assert all(each.isprintable() for each in error.splitlines())


def test_k5_a_large_or_deep_file_is_refused(line: CommandLine) -> None:
    with (line.folder / "server.json").open("wb") as file:
        file.write(b'{"name": "')
        file.truncate(50 * 1024 * 1024)
    assert "too many for a server.json" in line.run("add", "server.json", "--yes").stderr
    line.write("server.json", "[" * 200_000)
    assert "is no JSON" in line.run("add", "server.json", "--yes").stderr
    assert "cannot be read" in line.run("add", "none.json", "--yes").stderr


def test_k5_a_hostile_registry_is_told_and_bounded(line: CommandLine) -> None:
    broken: list[Any] = [
        5,
        {"server": {"name": "\x1b[2J"}},
        {"server": {"name": "a.b/x", "packages": 5}},
        WEATHER,
    ]
    bodies: dict[str, tuple[int, Mapping[str, str], bytes]] = {
        "large": (200, {}, b" " * (9 * 1024 * 1024)),
        "odd": (200, {}, b"[]"),
        "html": (200, {}, b"<html>"),
        "elsewhere": (302, {"Location": "http://169.254.169.254/"}, b""),
        "down": (503, {}, b"\x1b[2J"),
        "loop": (200, {}, json.dumps({"servers": [], "metadata": {"nextCursor": "again"}}).encode()),
        "broken": (200, {}, json.dumps({"servers": broken}).encode()),
    }
    asked: list[str] = []

    def reply(path: str, query: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        asked.append(path)
        return bodies[query["search"]]

    said = {
        "large": "more than",
        "odd": "no object",
        "html": "no JSON",
        "elsewhere": "another address",
        "down": "503",
    }
    with serving(reply) as url:
        for name, reason in said.items():
            done = line.run("registry", name, "--registry", url)
            assert done.returncode == 1 and reason in done.stderr and "\x1b" not in done.stderr
        assert answer(line, "registry", "loop", "--registry", url, code=1) == [] and len(asked) < 20
        (found,) = answer(line, "registry", "broken", "--registry", url)
        assert found["name"] == "com.example/weather"
    done = line.run("registry", "x", "--registry", url)
    assert done.returncode == 1 and "cannot be reached" in done.stderr


def test_k5_a_registry_that_never_ends_has_a_deadline() -> None:
    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                while not done:
                    self.wfile.write(b" " * 1000)
                    self.wfile.flush()
            except OSError:
                pass

        def log_message(self, format: str, *args: Any) -> None: ...

    done: list[bool] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(TargetError, match=r"did not answer in|more than"):
            Registry(f"http://127.0.0.1:{server.server_port}", seconds=1).search("x", 5)
    finally:
        done.append(True)
        server.shutdown()
        thread.join()
        server.server_close()


def test_k5_what_was_deleted_is_not_added(line: CommandLine) -> None:
    gone = {"server": WEATHER, "_meta": {OFFICIAL: {"status": "deleted"}}}
    assert "was deleted" in add(line, gone, code=1)["error"]
    old = {"server": WEATHER, "_meta": {OFFICIAL: {"status": "deprecated"}}}
    line.write("server.json", json.dumps(old))
    done = line.run("add", "server.json", "--yes", "--via", "npm")
    assert done.returncode == 0 and "is deprecated" in done.stderr


def test_k5_another_version_than_the_wanted_one_is_not_added(line: CommandLine) -> None:
    old = {**WEATHER, "version": "1.0.1"}
    words = ("add", "com.example/weather", "--via", "npm", "--yes", "--release")
    # These registries do not know the parameter `version`.
    with serving(registry(WEATHER)) as url:
        done = line.run(*words, "1.0.1", "--registry", url)
        assert done.returncode == 1 and "no version 1.0.1 of it, but 1.0.2" in done.stderr
    with serving(registry(WEATHER, old)) as url:
        assert "com.example/weather 1.0.1" in line.run(*words, "1.0.1", "--registry", url).stdout
    shutil.copy(EXAMPLE, line.folder / "server.json")
    done = line.run("add", "server.json", "--yes", "--release", "1.0.1")
    assert done.returncode == 1 and "is of version 1.0.2, and not 1.0.1" in done.stderr


def test_k5_a_short_name_is_enough_if_one_server_has_it(line: CommandLine, url: str) -> None:
    done = line.run("add", "weather", "--registry", url, "--yes")
    assert done.returncode == 1 and "com.example/weather, org.other/weather" in done.stderr
    assert line.run("add", "mail", "--registry", url, "--yes").returncode == 0
    done = line.run("add", "mial", "--registry", url, "--yes")
    assert done.returncode == 1 and "no such server" in done.stderr


def test_k5_the_example_of_the_page_is_added(line: CommandLine) -> None:
    shutil.copy(EXAMPLE, line.folder / "server.json")
    for way in ("http", "npm", "oci"):
        assert line.run("add", "server.json", "--yes", "--via", way, "--as", way).returncode == 0
    assert [*written(line)] == ["http", "npm", "oci"]


def test_k5_in_a_terminal_it_asks_and_keeps_secrets(line: CommandLine) -> None:
    shutil.copy(EXAMPLE, line.folder / "server.json")
    with terminal(line.command("add", "server.json", "--via", "npm"), line.folder) as screen:
        screen.shows("WEATHER_KEY (Your key)")
        screen.type("s3cr3t-of-mine\n")
        screen.shows("units ([metric, imperial]) [metric]")
        screen.type("\n")
        screen.shows("Add weather to mcp.json?")
        screen.type("y\n")
        assert screen.end() == 0 and "s3cr3t" not in screen.screen
    assert written(line)["weather"]["env"] == {"WEATHER_KEY": "${keyring:weather/WEATHER_KEY}"}
    assert line.run("list", "mcp.json", "--json").returncode == 1
    assert "weather/WEATHER_KEY" in line.run("secret", "list").stdout
    with terminal(line.command("add", "server.json", "--via", "oci", "--as", "two"), line.folder) as screen:
        screen.shows("WEATHER_KEY (Your key)")
        screen.type("other\n")
        screen.shows("Add two to mcp.json?")
        screen.type("n\n")
        assert screen.end() == 0
    assert [*written(line)] == ["weather"]
    assert "two/" not in line.run("secret", "list").stdout


def test_k5_a_description_cannot_look_like_what_will_run(line: CommandLine) -> None:
    spoof = 'nice\n  runs ["npx", "harmless"]\r\x1b[2K' + "x" * 5000
    inputs = [{"name": "A", "isRequired": True, "description": spoof}]
    server = {**package(environmentVariables=inputs), "title": spoof, "version": "1\n2"}
    line.write("server.json", json.dumps(server))
    done = line.run("add", "server.json", "--yes")
    assert done.returncode == 0
    assert [one for one in done.stdout.splitlines() if one.startswith("  runs")] == [
        '  runs ["npx", "-y", "x@1.0.0"]'
    ]
    assert "\x1b" not in done.stdout and max(map(len, done.stdout.splitlines())) < 300
    with serving(registry(named("a.b/x", description=spoof))) as url:
        shown = line.run("registry", "x", "--registry", url)
    assert shown.returncode == 0 and len(shown.stdout.splitlines()) == 3 and "\x1b" not in shown.stdout
