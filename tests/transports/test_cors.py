"""Pages of allowed origins call from a browser: preflights need no token, answers can be read (I1)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.auth import StaticTokens

pytestmark = [pytest.mark.anyio, pytest.mark.needs("inbound_auth")]
PAGE = "https://app.example.com"
TOKEN = "a-static-token-of-some-length"
LISTED = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def client(*origins: str) -> AsyncGenerator[httpx2.AsyncClient]:
    server = ToolsetServer(Toolset(add), auth=StaticTokens({"ann": TOKEN}))
    app = server.http_app(allowed_origins=origins)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as found,
    ):
        yield found


def asking(origin: str) -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, mcp-protocol-version",
    }


@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages/"])
@pytest.mark.parametrize("allowed", [PAGE, "https://app.example.com:*"])
async def test_i1_a_preflight_of_an_allowed_page_needs_no_token(path: str, allowed: str) -> None:
    origin = PAGE + ":8443" if allowed.endswith("*") else PAGE
    async with client(allowed) as page:
        answer = await page.options(path, headers=asking(origin))
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert "authorization" in answer.headers["access-control-allow-headers"]


async def test_i1_an_allowed_page_reads_refusals_and_answers() -> None:
    async with client(PAGE) as page:
        for token, status in ((None, 401), (TOKEN, 400)):
            headers = {"origin": PAGE, **({} if token is None else {"authorization": f"Bearer {token}"})}
            answer = await page.post("/mcp", headers=headers, json=LISTED)
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)
            assert "WWW-Authenticate" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "https://app.example.com.evil.example", PAGE + ":1"]
)
async def test_i1_other_pages_are_refused(origin: str) -> None:
    async with client(PAGE) as page:
        preflight = await page.options("/mcp", headers=asking(origin))
        answer = await page.post("/mcp", headers={"origin": origin}, json=LISTED)
    assert (preflight.status_code, answer.status_code) == (400, 403)
    assert "access-control-allow-origin" not in {**preflight.headers, **answer.headers}


async def test_i1_without_allowed_origins_no_page_is_told_anything() -> None:
    async with client() as page:
        answer = await page.options("/mcp", headers=asking(PAGE))
    assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
