"""`mcp-toolset login` and `logout`, with a real authorization server and a program in place of a browser."""

from __future__ import annotations

import getpass
import json
import shlex
import subprocess
from collections.abc import Iterator
from functools import partial

import anyio
import anyio.to_thread
import pytest
from tests.cli.commandline import CommandLine, line
from tests.extensions.upstream_access.credentials.protected import protected
from tests.support.asking import text_of
from tests.support.audit_logs import lines
from tests.support.authorization_server import AuthorizationServer, authorization_server
from tests.support.callers import client_of, until_listed
from tests.support.served import served

from mcp_toolset import ToolsetServer, load_toolset
from mcp_toolset.audit import AuditLog
from mcp_toolset.config import load_config

__all__ = ["line"]
BROWSER = """
import sys
import httpx2
with httpx2.Client(timeout=30, follow_redirects=True) as browser:
    page = browser.get(sys.argv[1] + "&login_hint=USER")
with open("page.html", "w") as file:
    file.write(page.text)
"""
SECRETS = ("Bearer ", "access_token", "refresh_token", "client_secret")


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with authorization_server() as running:
        yield running


class Desk:
    """A person at a command line with a browser."""

    def __init__(self, line: CommandLine, user: str = "alice") -> None:
        self.line = line
        browser = line.write("browser.py", BROWSER.replace("USER", user))
        self.env = {
            "BROWSER": f"{shlex.join(line.script(browser))} %s",
            "MCP_TOOLSET_CREDENTIALS": str(line.folder / "credentials"),
        }

    async def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        run = partial(self.line.forked, *words, env=self.env)
        return await anyio.to_thread.run_sync(run)

    async def said(self, *words: str) -> str:
        done = await self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.mark.anyio
async def test_i4_a_login_serves_configurations_and_addresses_until_a_logout(
    line: CommandLine, issuer: AuthorizationServer
) -> None:
    desk = Desk(line)
    async with protected(issuer) as server:
        line.write("mcp.json", json.dumps({"mcpServers": {"up": {"url": server.url, "auth": "oauth"}}}))
        before = await desk.run("list", "mcp.json")
        assert before.returncode == 1 and "needs login: mcp-toolset login up\n" in before.stderr
        done = await desk.run("login", "up")
        assert done.stdout.strip() == f"logged in to up at {issuer.issuer}, for tools:read"
        page = (line.folder / "page.html").read_text()
        assert "You are logged in to up. You can close this window." in page
        kept = b"".join(path.read_bytes() for path in (line.folder / "credentials").iterdir())
        shown = done.stdout + done.stderr + page + (line.folder / "mcp.json").read_text() + repr(kept)
        assert not [secret for secret in SECRETS if secret in shown]
        assert await desk.said("call", "mcp.json", "up_whose") == "it ran"
        listed = json.loads(await desk.said("login", "--list", "--json"))
        assert listed == [{"server": server.url, "issuer": issuer.issuer, "state": "logged in"}]
        assert await desk.said("logout", "up", "--dry-run") == "up: would be logged out"
        assert await desk.said("logout", "up") == "up: logged out"
        assert await desk.said("logout", "up", "--dry-run") == "up: no tokens are kept"
        assert (await desk.run("call", server.url, "whose")).returncode == 1


@pytest.mark.anyio
async def test_i5_a_login_as_a_caller_serves_that_caller_of_a_running_bridge_alone(
    line: CommandLine, issuer: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(line)
    tokens = {name: f"the-long-token-of-{name}" for name in ("alice", "bob")}
    async with protected(issuer) as server:
        entry = {"url": server.url, "auth": {"type": "oauth", "per_user": True}}
        file = line.write(
            "mcp.json", json.dumps({"mcpServers": {"up": entry}, "toolset": {"auth": {"tokens": tokens}}})
        )
        monkeypatch.setenv("MCP_TOOLSET_CREDENTIALS", desk.env["MCP_TOOLSET_CREDENTIALS"])
        bridge = ToolsetServer(load_toolset(load_config(file)))
        async with (
            served(bridge) as url,
            client_of(url, "alice", token=tokens["alice"]) as alice,
            client_of(url, "bob", token=tokens["bob"]) as bob,
        ):
            await until_listed(alice, {"up_log_in"})
            done = await desk.run("login", "up", "--as", "alice")
            assert done.stdout.strip().endswith(", for the caller alice alone"), done.stderr
            await until_listed(alice, {"up_whose"})
            assert text_of(await alice.call_tool("up_whose", {})) == "it ran"
            await until_listed(bob, {"up_log_in"})
        listed = json.loads(await desk.said("login", "--list", "--json"))
        assert [one["caller"] for one in listed] == ['["alice", null, null]']
        assert '["alice", null, null]' in await desk.said("login", "--list")
        done = await desk.run("logout", "up")
        assert done.stdout == "up: no tokens are kept\n" and "use --as CALLER" in done.stderr
        assert await desk.said("logout", "up", "--as", "alice") == "up: logged out (the caller alice alone)"
        assert await desk.said("login", "--list") == "no tokens are kept"


@pytest.mark.anyio
async def test_i9_logins_and_logouts_are_in_the_audit_log_of_the_configuration(
    line: CommandLine, issuer: AuthorizationServer
) -> None:
    desk, path = Desk(line), line.folder / "audit.jsonl"
    async with protected(issuer) as server:
        servers = {"up": {"url": server.url, "auth": "oauth"}}
        line.write("mcp.json", json.dumps({"toolset": {"audit": path.name}, "mcpServers": servers}))
        await desk.said("login", "up")
        with AuditLog(path).opened() as held_by_a_bridge:
            assert await desk.said("logout", "up") == "up: logged out"
            held_by_a_bridge.take_over()
    found = {said["event"]: said for said in map(json.loads, path.read_text().splitlines())}
    login, logout = found["login"], found["logout"]
    assert (login["server"], login["outcome"], login["issuer"]) == ("up", "logged in", issuer.issuer)
    assert (logout["server"], logout["outcome"], logout["user"]) == ("up", "logged out", getpass.getuser())
    assert login["scopes"] == ["tools:read"] and not [each for each in SECRETS if each in path.read_text()]


@pytest.mark.anyio
async def test_i9_a_login_that_fails_is_in_the_audit_log_with_its_reason(line: CommandLine) -> None:
    servers = {"up": {"url": "http://127.0.0.1:1/mcp", "auth": "oauth"}}
    line.write("mcp.json", json.dumps({"toolset": {"audit": "audit.jsonl"}, "mcpServers": servers}))
    done = await Desk(line).run("login", "up")
    assert done.returncode == 1
    (failed,) = lines(line.folder / "audit.jsonl", "login")
    assert (failed["outcome"], failed["server"]) == ("failed", "up")
    assert failed["reason"] and failed["reason"] in done.stderr


@pytest.mark.anyio
async def test_i4_a_person_who_refuses_is_told_in_one_line(
    line: CommandLine, issuer: AuthorizationServer
) -> None:
    async with protected(issuer) as server:
        done = await Desk(line, user="nobody").run("login", server.url)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "the login was refused: access_denied: the user refused" in last
    assert "The login has failed; the terminal says why." in (line.folder / "page.html").read_text()
