"""`AuthorizationHttp`: requests to authorization servers, each with a deadline; it renews tokens."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlsplit

import anyio

from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.upstream.credentials.credential import Credential

if TYPE_CHECKING:
    import httpx2

PATIENCE: Final = 20.0
"""Seconds that an authorization server may take for one answer."""

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
"""The grant of RFC 8693, section 2.1."""

MAX_ANSWER: Final = 1_000_000
"""Bytes of one answer."""

_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_ENDED: Final = frozenset(("invalid_grant", "invalid_client", "unauthorized_client"))
"""Errors by which a refresh token, or its client, is refused for good (RFC 6749, section 5.2)."""

_OF_THE_BODY: Final = frozenset(("content-encoding", "content-length", "transfer-encoding"))
_LONGEST_REASON: Final = 200
_AGAIN: Final = "call again later"


@asynccontextmanager
async def authorization_http(name: str, url: str) -> AsyncGenerator[AuthorizationHttp]:
    """Connections to authorization servers, for a block; see `AuthorizationHttp` for the arguments."""
    import httpx2

    async with httpx2.AsyncClient(timeout=PATIENCE, follow_redirects=False) as client:
        yield AuthorizationHttp(name, url, client)


class AuthorizationHttp:
    """Sends what the credentials for one mounted server need; the server's own tokens are in none of it."""

    def __init__(self, name: str, url: str, client: httpx2.AsyncClient) -> None:
        """Send by `client`, for the server that is mounted as `name` at `url`."""
        self._name = name
        self._host = urlsplit(url).hostname
        self._client = client

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the answer is read.

        Raises:
            UpstreamUnavailableError: there is no answer, or the address is not to be trusted.
        """
        import httpx2

        url = request.url
        if url.scheme != "https" and url.host not in _LOOPBACK and url.host != self._host:
            raise self.fault(f"{in_log(url.host)} would be asked for a login without https; nothing was sent")
        try:
            with anyio.fail_after(PATIENCE):
                answer = await self._client.send(request, stream=True)
                try:
                    body = await self._whole(answer)
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise self.fault(f"{in_log(url.host)} gave no answer within {PATIENCE:g} s; {_AGAIN}") from None
        except httpx2.HTTPError as fault:
            why = f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
            raise self.fault(f"{in_log(url.host)} cannot be reached ({in_log(why)}); {_AGAIN}") from None
        headers = [(name, text) for name, text in answer.headers.multi_items() if name not in _OF_THE_BODY]
        read = httpx2.Response(answer.status_code, headers=headers, content=body, request=request)
        read.next_request = answer.next_request
        return read

    async def _whole(self, answer: httpx2.Response) -> bytes:
        parts, size = list[bytes](), 0
        async for chunk in answer.aiter_bytes():
            size += len(chunk)
            if size > MAX_ANSWER:
                raise self.fault(f"{in_log(answer.url.host)} answered with more than {MAX_ANSWER} bytes")
            parts.append(chunk)
        return b"".join(parts)

    async def challenge(self, request: httpx2.Request) -> str:
        """The challenge in the answer of the mounted server itself, whose body is not read."""
        import httpx2

        try:
            with anyio.fail_after(PATIENCE):
                answer = await self._client.send(request, stream=True)
                await answer.aclose()
        except TimeoutError:
            raise UpstreamUnavailableError(self._name, f"no answer within {PATIENCE:g} s") from None
        except httpx2.HTTPError as fault:
            why = in_log(f"{type(fault).__name__}: {fault}")
            raise UpstreamUnavailableError(self._name, f"it cannot be reached ({why})") from None
        return answer.headers.get("www-authenticate", "") if answer.status_code == 401 else ""

    async def form(self, url: str, form: Mapping[str, str], client: Mapping[str, Any]) -> httpx2.Response:
        """Post a form as a registered client (RFC 6749, section 2.3.1)."""
        import httpx2

        data, headers = dict(form), dict[str, str]()
        identity, secret = str(client.get("client_id", "")), client.get("client_secret")
        method = client.get("token_endpoint_auth_method")
        if secret and method == "client_secret_basic":
            pair = f"{quote(identity, safe='')}:{quote(str(secret), safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            data["client_id"] = identity
            if secret and method == "client_secret_post":
                data["client_secret"] = str(secret)
        return await self.send(httpx2.Request("POST", url, data=data, headers=headers))

    async def renewed(self, credential: Credential, now: float) -> Credential | None:
        """The credential with the tokens that its refresh token gets; `None` if that is refused for good.

        Raises:
            UpstreamUnavailableError: there is no usable answer; the refresh token may still be good.
        """
        form = {"grant_type": "refresh_token", "refresh_token": credential.refresh_token}
        if credential.resource:
            form["resource"] = credential.resource
        endpoint = credential.server.get("token_endpoint")
        if not isinstance(endpoint, str) or not credential.client:
            return None
        answer = await self.form(endpoint, form, credential.client)
        table = table_in(answer.content)
        if answer.status_code == 200:
            try:
                return credential.with_tokens(table, now)
            except ValueError as fault:
                raise self.fault(f"{in_log(urlsplit(endpoint).netloc)}: {fault}") from None
        if answer.status_code in (400, 401) and table.get("error") in _ENDED:
            return None
        raise self.fault(
            f"{in_log(urlsplit(endpoint).netloc)} did not renew the token: {told(answer)}; {_AGAIN}"
        )

    async def revoke(self, credential: Credential) -> bool:
        """Have the tokens revoked (RFC 7009); `False` if the authorization server does not offer that.

        Raises:
            UpstreamUnavailableError: it does not answer, or refuses.
        """
        endpoint = credential.server.get("revocation_endpoint")
        token = credential.refresh_token or credential.header.partition(" ")[2]
        if not isinstance(endpoint, str) or not token:
            return False
        answer = await self.form(endpoint, {"token": token}, credential.client)
        if answer.status_code != 200:
            raise self.fault(f"{in_log(urlsplit(endpoint).netloc)}: {told(answer)}")
        return True

    def fault(self, reason: str) -> UpstreamUnavailableError:
        """The error that no credentials could be got."""
        return UpstreamUnavailableError(self._name, f"no credentials for it: {reason}", sent=False)


def table_in(body: bytes) -> Mapping[str, Any]:
    """The JSON object in an answer; empty if there is none."""
    try:
        found: object = json.loads(body)
    # Also what is nested too deeply.
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def told(answer: httpx2.Response) -> str:
    """Why an authorization server refuses: the status, and its own error (RFC 6749, section 5.2)."""
    said = oauth_error(table_in(answer.content))
    return in_log(f"HTTP {answer.status_code} {said}".rstrip()[:_LONGEST_REASON])


def oauth_error(table: Mapping[str, Any]) -> str:
    """The error in an answer, with its description (RFC 6749, section 5.2); empty if there is none."""
    said = (table.get(name) for name in ("error", "error_description"))
    return ": ".join(text for text in said if isinstance(text, str))
