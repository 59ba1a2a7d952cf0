"""F42: what a mount was given to authenticate itself never comes out in a status, an error or a log."""

from __future__ import annotations

import logging
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mcp import StdioServerParameters
from tests.faults.harness import hostile, hostile_http, specials, until
from tests.support.served import hosted

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.errors import UpstreamProtocolError
from mcp_toolset.upstream.target import link_to

pytestmark = pytest.mark.anyio
TOKEN = "tok-8d1f00c7"
PASSWORD = "pass-55aa-word"
SECRETS = (TOKEN, PASSWORD)


def clean(*texts: object) -> bool:
    return not any(secret in str(text) for secret in SECRETS for text in texts)


def careless(*arguments: str, **script: Any) -> RemoteToolset:
    return RemoteToolset(hostile(*arguments, **script), name="up", env={"API_TOKEN": TOKEN}, start_timeout=5)


ARGUMENTS = [("--password", PASSWORD), (f"--db-password={PASSWORD}",), ("-token", PASSWORD)]


@pytest.mark.parametrize("arguments", ARGUMENTS)
async def test_f42_errors_of_a_server_come_without_what_it_was_given(arguments: tuple[str, ...]) -> None:
    async with ToolsetServer(Toolset(careless(*arguments))) as server:
        failed = await server.call_tool("fail", {})
        assert failed.is_error and "cannot log in with ***" in failed.text
        with pytest.raises(UpstreamProtocolError, match="cannot log in with") as refused:
            await server.call_tool("refuse", {})
        assert clean(failed.wire, refused.value, refused.value.data)


async def test_f42_the_last_words_of_a_server_come_without_what_it_was_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="mcp_toolset")
    up = careless("--password", PASSWORD, last_words=f"login {TOKEN} {PASSWORD} refused\n")
    async with ToolsetServer(Toolset(up)) as server:
        await until(lambda: server.statuses()["up"].reason)
        assert "login *** *** refused" in server.statuses()["up"].reason
        assert clean(server.statuses(), repr(up), repr(up.connection.link))
    assert "refused" in caplog.text
    assert clean(caplog.text)


async def test_f42_log_messages_of_a_server_are_scrubbed_too() -> None:
    link = link_to(["x"], name="up", env={"API_TOKEN": TOKEN})
    assert link.secrets.cleaned({"level": "info", "data": [{"url": f"?t={TOKEN}"}, 5, None]}) == {
        "level": "info",
        "data": [{"url": "?t=***"}, 5, None],
    }


@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_f42_headers_and_addresses_come_without_their_secrets(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="mcp_toolset")
    with hostile_http(tools=specials("fail"), say=f" as {TOKEN} with {PASSWORD}") as (port, process):
        url = f"http://user:{PASSWORD}@127.0.0.1:{port}/{path}?key={TOKEN}&x=1"
        up = RemoteToolset(
            url,
            name="up",
            transport="sse" if path == "sse" else "http",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        async with ToolsetServer(Toolset(up)) as server:
            failed = await server.call_tool("fail", {}) if server.statuses()["up"].state == "ready" else None
            assert failed is None or "as *** with ***" in failed.text
            process.kill()
            process.wait()
            await server.call_tool("fail", {}) if failed else None
            await until(lambda: server.statuses()["up"].retry_in is not None)
            assert server.statuses()["up"].reason
            assert clean(server.statuses(), repr(up.connection.link), up.connection.link.shown)
    assert clean(caplog.text)


async def test_f42_a_server_that_refuses_the_login_is_named_without_it() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": f"bad token {TOKEN}".encode()})

    async with hosted(app) as base:
        for path in ("mcp", "sse"):
            url = f"{base}/{path}?key={TOKEN}"
            up = RemoteToolset(url, name="up", transport="sse" if path == "sse" else "http")
            async with up:
                assert up.status.state == "offline"
                assert up.status.reason and clean(up.status)


def test_f42_what_is_a_secret_of_a_mount(tmp_path: Path) -> None:
    process = StdioServerParameters(
        command="x",
        args=["--api-key", "abcdef1", "--verbose", "--auth=abcdef2", "--key"],
        env={"T": "abcdef3", "N": "1"},
    )
    assert set(link_to(process, name="up").secrets.values) == {"abcdef1", "abcdef2", "abcdef3"}
    url = link_to("https://me:abcdef4@h/mcp?k=abcdef5", name="up", headers={"A": "Bearer abcdef6", "B": "1"})
    basic = b64encode(b"me:abcdef4").decode()
    quoted = {"k%3Dabcdef5", "Bearer%20abcdef6", quote(basic, safe="")}
    plain = {"abcdef4", "abcdef5", "k=abcdef5", "abcdef6", "Bearer abcdef6", basic}
    assert set(url.secrets.values) == plain | quoted
    assert url.secrets.scrubbed("Bearer abcdef6, abcdef6, ?k=abcdef5") == "***, ***, ?***"
    assert not link_to(["x"], name="up").secrets
