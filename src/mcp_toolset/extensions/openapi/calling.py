"""`ApiCalls`: sends the requests of calls to the servers of a document, and makes results of the answers.

A request goes to the host of its server and to no other one: redirects are followed within the origin alone,
and an address is judged when its name was resolved (`Egress`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, quote, urldefrag, urlsplit

import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.errors import CallError, UpstreamUnavailableError
from mcp_toolset.extensions.openapi.answers import fitting
from mcp_toolset.extensions.openapi.arguments import as_sent
from mcp_toolset.extensions.openapi.operations import Api, Operation, Scheme
from mcp_toolset.extensions.openapi.reading import DocumentError, joined, shown
from mcp_toolset.extensions.openapi.sending import Request, request_of
from mcp_toolset.tools.validation import depth_exceeds

if TYPE_CHECKING:
    import httpx2

    from mcp_toolset.security.egress import Egress
    from mcp_toolset.tools.validation import SchemaCheck
    from mcp_toolset.transports.carrier import TokenSource

MAX_ANSWER: Final = 16 * 1024 * 1024
"""The most bytes of an answer; a longer one is an error."""

_DEEPEST: Final = 100  # levels of structured content, which every client can read
_REDIRECTS: Final = 5
_CONNECT: Final = 30.0
_PAGE: Final = re.compile(r"(?i)next.*(?:page|cursor|token|link|url)|^(?:next|cursor|continue|after)$")
"""Members of an answer that name the next page."""

_HOLDERS: Final = (
    "meta",
    "metadata",
    "paging",
    "pagination",
    "response_metadata",
    "cursors",
    "links",
    "_links",
)
_CURSORS: Final = ("cursor", "page_token", "pageToken", "continue", "after", "starting_after", "start_cursor")
_MORE: Final = "More results: call again with the same arguments and "


@dataclass(frozen=True, slots=True)
class Access:
    """The settings for requests of one mount."""

    name: str  # the name of the mount, for messages
    headers: Mapping[str, str]
    credentials: Mapping[str, str]  # by the names of security schemes
    auth: httpx2.Auth | None
    tokens: TokenSource | None
    files: Path | None


def refused(egress: Egress, own: str, *named: str) -> Callable[[str, str], str]:
    """Why a request may not go to an address; see `Egress.refusal`."""

    def refusal(url: str, address: str) -> str:
        told = egress.refusal(url, address, own, *named)
        return f"{told}, or name the API by `server`" if told and named and not any(named) else told

    return refusal


@asynccontextmanager
async def client(
    transport: httpx2.AsyncBaseTransport | None, refusal: Callable[[str, str], str]
) -> AsyncGenerator[httpx2.AsyncClient]:
    """An HTTP client that keeps no cookies and follows no redirects."""
    import httpx2

    # The calls of one caller, which may hang, leave room for those of others.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=10)
    timeout = httpx2.Timeout(None, connect=_CONNECT)
    mounts = None
    if transport is None:
        from mcp_toolset.transports.guarded import GuardedTransport, proxies

        transport, mounts = GuardedTransport(refusal, limits), proxies(limits)
    found = httpx2.AsyncClient(
        transport=transport, mounts=mounts, timeout=timeout, trust_env=False, follow_redirects=False
    )
    # One client is for all callers.
    found.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
    async with found:
        yield found


async def fetched(
    http: httpx2.AsyncClient, url: str, limit: int, etag: str = "", headers: Mapping[str, str] | None = None
) -> tuple[str | None, str]:
    """The text at an address, and its ETag; no text if it is still that of `etag`.

    Raises:
        DocumentError: it cannot be had.
    """
    import httpx2

    here = url
    sent = {"accept": "application/json, application/yaml, */*;q=0.5", **(headers or {})}
    sent |= {"if-none-match": etag} if etag else {}
    try:
        for _ in range(_REDIRECTS):
            async with http.stream("GET", here, headers=sent) as answer:
                if answer.status_code == 304 and etag:
                    return None, etag
                if _moves(answer):
                    here = _redirected(here, answer.headers["location"])
                    continue
                if answer.status_code != 200:
                    raise DocumentError(f"{shown(here)} answered {answer.status_code}; correct the address")
                body = await _read(http, answer, limit)
                return body.decode("utf-8", "replace"), answer.headers.get("etag", "")
    except httpx2.InvalidURL as fault:
        raise DocumentError(f"{shown(here)} is no address: {fault}; correct it") from None
    except httpx2.HTTPError as fault:
        raise DocumentError(f"{shown(here)} was not reached: {_told(fault)}") from None
    except CallError as fault:
        raise DocumentError(f"{shown(here)}: {fault}") from None
    raise DocumentError(f"{shown(url)} redirects more than {_REDIRECTS} times; correct the address")


async def _read(http: httpx2.AsyncClient, answer: httpx2.Response, limit: int) -> bytes:
    known = {one.strip() for one in http.headers.get("accept-encoding", "").split(",")} | {"", "identity"}
    said = (one.strip() for one in answer.headers.get("content-encoding", "").lower().split(","))
    odd = next((one for one in said if one not in known), "")
    is_empty = answer.request.method == "HEAD" or answer.status_code in (204, 304)
    if odd and not is_empty and answer.headers.get("content-length") != "0":
        raise CallError(
            f"HTTP {answer.status_code}: its content is encoded as `{odd[:40]}`, which is not read"
        )
    parts, size = list[bytes](), 0
    async for chunk in answer.aiter_bytes():
        size += len(chunk)
        if size > limit:
            raise CallError(f"the answer has more than {limit // 2**20} MiB; ask for less")
        parts.append(chunk)
    return b"".join(parts)


def _moves(answer: httpx2.Response) -> bool:
    """True if an answer says where else to ask; 304 and others below 400 are answers themselves."""
    return answer.has_redirect_location and bool(answer.headers["location"].strip())


def _redirected(url: str, location: str) -> str:
    """The target of a redirect within its origin."""
    there = joined(url, location)
    before, after = urlsplit(url), urlsplit(there)
    if not there:
        raise CallError("it redirects to what is no address")
    if after.scheme not in ("http", "https"):
        raise CallError(f"it redirects to an address of `{after.scheme}:`, to which nothing is sent")
    upgraded = before.scheme == "http" and after.scheme == "https" and before.port == after.port
    if before.hostname != after.hostname or not (
        (before.scheme, before.port) == (after.scheme, after.port) or upgraded
    ):
        raise CallError(f"it redirects to {shown(there)[:200]}, another host, to which nothing is sent")
    return there


def _told(fault: Exception) -> str:
    return str(fault) or type(fault).__name__


class ApiCalls:
    """Calls of the operations of one document."""

    def __init__(self, api: Api, http: httpx2.AsyncClient, access: Access) -> None:
        self.api = api
        self._http = http
        self._access = access

    async def call(
        self, name: str, arguments: Mapping[str, Any], output: SchemaCheck | None = None
    ) -> dict[str, Any]:
        """The result of a call, whose structured content fits an output schema.

        Raises:
            CallError: the arguments cannot be sent, or the answer cannot be used.
            UpstreamUnavailableError: the server was not reached, or wants a login.
        """
        operation = self.api.operations[name]
        if operation.body is not None and operation.body.files:
            # A deadline does not wait for a disk.
            request = await anyio.to_thread.run_sync(
                request_of, operation, arguments, self._access.files, abandon_on_cancel=True
            )
        else:
            request = request_of(operation, arguments, self._access.files)
        answer, body = await self._sent(operation, request)
        result = _result(operation, arguments, answer, body)
        return result if output is None or result.get("isError") else fitting(result, output)

    async def _sent(self, operation: Operation, request: Request) -> tuple[httpx2.Response, bytes]:
        import httpx2

        tokens = self._access.tokens if _wants_token(operation) else None
        url, headers = self._proved(operation, request)
        used: str | None = None
        asked, is_safe = set[str](), request.method in ("GET", "HEAD")
        for attempt in range(_REDIRECTS):
            if tokens is not None and (used := await tokens.header(None)):
                headers["authorization"] = used
            asked.add(urldefrag(url)[0])
            made = self._made(request, url, headers)
            auth = self._access.auth if _wants_token(operation) else None
            try:
                answer = await self._http.send(made, stream=True, auth=auth)
                try:
                    if answer.status_code in (401, 403) and tokens is not None and attempt < 2:
                        challenge = answer.headers.get("www-authenticate", "")
                        if await tokens.challenged(answer.status_code, challenge, used, None):
                            continue
                    elif _moves(answer) and (is_safe or answer.status_code in (307, 308)):
                        url = _redirected(url, answer.headers["location"])
                        if urldefrag(url)[0] in asked:
                            raise CallError(f"{shown(url)} redirects back to itself")
                        continue
                    elif tokens is not None:
                        await tokens.accepted(used)
                    return answer, await _read(self._http, answer, MAX_ANSWER)
                finally:
                    await answer.aclose()
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as fault:
                told = f"{shown(url)} was not reached: {_told(fault)}"
                raise UpstreamUnavailableError(self._access.name, told, sent=False) from None
            except httpx2.HTTPError as fault:
                told = f"{shown(url)} gave no answer: {_told(fault)}"
                raise UpstreamUnavailableError(self._access.name, told, sent=True) from None
        raise CallError(f"{shown(url)} redirects more than {_REDIRECTS} times")

    def _made(self, request: Request, url: str, headers: Mapping[str, str]) -> httpx2.Request:
        import httpx2

        try:
            return self._http.build_request(request.method, url, headers=headers, content=request.body)
        except httpx2.InvalidURL as fault:
            raise CallError(f"the address of the request is none: {fault}; give other arguments") from None

    def _proved(self, operation: Operation, request: Request) -> tuple[str, dict[str, str]]:
        """The address and the headers of a request, with the credentials that its security asks for."""
        query = [request.query] if request.query else []
        own = {name.lower(): value for name, value in self._access.headers.items()}
        fixed = {as_sent("header", name) for name in own}
        asked = {name.lower(): value for name, value in request.headers.items()}
        headers = {name: value for name, value in asked.items() if as_sent("header", name) not in fixed} | own
        # What is configured comes first: some servers take the first one of names that they hold for equal.
        said = (one.strip().partition("=") for one in headers.pop("cookie", "").split(";"))
        cookies = {name: f"{name}{sign}{value}" for name, sign, value in said if name}
        for scheme in self._schemes(operation):
            secret = self._access.credentials[scheme.name]
            if scheme.kind == "apiKey" and scheme.place == "query":
                query.append(f"{quoted(scheme.parameter)}={quoted(secret)}")
            elif scheme.kind == "apiKey" and scheme.place == "cookie":
                cookies[scheme.parameter] = f"{scheme.parameter}={secret}"
            elif scheme.kind == "apiKey":
                headers[scheme.parameter.lower()] = secret
            elif scheme.kind == "basic":
                headers["authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
            elif scheme.kind == "token":
                is_whole = secret.lower().startswith(f"{scheme.parameter.lower()} ")
                headers["authorization"] = secret if is_whole else f"{scheme.parameter} {secret}"
            if not _is_sendable(secret) and (scheme.kind, scheme.place) != ("apiKey", "query"):
                raise CallError(
                    f"the credential {scheme.name!r} cannot be sent: it has a character that is none of a "
                    "header; correct it where this server is configured"
                )
        if cookies or request.cookies:
            headers["cookie"] = "; ".join([*cookies.values(), *request.cookies])
        url = operation.servers[0] + request.path
        return f"{url}?{'&'.join(query)}" if query else url, headers

    def _schemes(self, operation: Operation) -> list[Scheme]:
        """The schemes of the first alternative for which there are credentials.

        Many documents forget to say what they need: then the credential is sent if there is but one.
        """
        given, known = self._access.credentials, self.api.schemes
        if operation.security is None:
            return [known[name] for name in given] if len(given) == 1 else []
        for one in operation.security:
            if one and all(name in given and name in known for name in one):
                return [known[name] for name in one]
        return []


def _is_sendable(secret: str) -> bool:
    return secret.isascii() and secret.isprintable()


def quoted(text: str) -> str:
    return quote(text, safe="")


def _wants_token(operation: Operation) -> bool:
    """True if a call is sent with the login of the mount: unless the document says that none is needed."""
    return operation.security is None or any(operation.security)


def check_credentials(api: Api, given: Mapping[str, str]) -> None:
    """Refuse credentials for a scheme that the document does not have."""
    for name in given:
        if name not in api.schemes:
            known = ", ".join(api.schemes) or "none"
            raise DocumentError(
                f"`credentials` names {name!r}, which is no security scheme; there are: {known}"
            )
        if api.schemes[name].kind == "other":
            raise DocumentError(
                f"`credentials` names {name!r}, a security scheme that cannot be met with a secret; use "
                "`headers`, or leave it out"
            )
        if mend := _mend_of(api.schemes[name], given[name]):
            raise DocumentError(f"`credentials`: the secret of {name!r} cannot be sent: {mend}")


def _mend_of(scheme: Scheme, secret: str) -> str:
    """The fault of a secret, and how to mend it; empty if it can be sent."""
    word, _, token = secret.strip().rpartition(" ")
    is_word = scheme.kind == "token" and token.lower() == scheme.parameter.lower()
    if not token or (is_word and not word):
        return "it is empty; set the variable that it is from, or leave it out"
    if scheme.kind == "basic" and ":" not in secret:
        return "it has no colon; write it as `user:password`"
    if scheme.kind == "token" and scheme.parameter == "Bearer" and word.lower() not in ("", "bearer"):
        return "it is more than one word; give the token alone"
    if scheme.kind in ("basic", "token") and not _is_sendable(secret):
        return "it has a character that is none of a header; correct it"
    return ""


# Results


def _result(
    operation: Operation, arguments: Mapping[str, Any], answer: httpx2.Response, body: bytes
) -> dict[str, Any]:
    media = answer.headers.get("content-type", "").split(";")[0].strip().lower()
    is_error = answer.status_code >= 300
    text, structured, blocks = _content(answer, media, body)
    if is_error:
        return error(f"HTTP {answer.status_code} {_reason(operation, answer)}".strip() + f"\n{text}")
    result: dict[str, Any] = {"content": blocks}
    if structured is not None:
        result["structuredContent"] = structured
    if hint := _next_page(operation, arguments, answer, structured):
        blocks.append({"type": "text", "text": hint})
    return result


def error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text.strip()}], "isError": True}


def _reason(operation: Operation, answer: httpx2.Response) -> str:
    if _moves(answer):
        to = shown(joined(str(answer.url), answer.headers["location"]))
        return f"(it redirects {f'to {to}, which is not followed' if to else 'to what is no address'})"
    if answer.status_code not in (401, 403):
        return ""
    if operation.security is None:
        return "(its document does not say what it needs: give one secret in `credentials`, or use `headers`)"
    ways = " or ".join(" and ".join(one) for one in operation.security if one)
    return f"(it needs {ways}: give it in `credentials`, or log in by `auth`)" if ways else ""


def _content(
    answer: httpx2.Response, media: str, body: bytes
) -> tuple[str, dict[str, Any] | None, list[dict[str, Any]]]:
    """The text of an answer, its JSON if that is an object, and its blocks."""
    if not body:
        text = f"HTTP {answer.status_code}, without content"
        return text, None, [{"type": "text", "text": text}]
    kind = media.partition("/")[0]
    if kind in ("image", "audio") and media != "image/svg+xml":
        data = base64.b64encode(body).decode()
        return f"{media}, {len(body)} bytes", None, [{"type": kind, "data": data, "mimeType": media}]
    charset = answer.charset_encoding or "utf-8"
    try:
        text = body.decode(charset).removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError):
        resource = {"uri": str(answer.url.copy_with(query=None)), "blob": base64.b64encode(body).decode()}
        resource |= {"mimeType": media} if media else {}
        return f"{media or 'a file'}, {len(body)} bytes", None, [{"type": "resource", "resource": resource}]
    structured: Any = None
    if "json" in media or text[:1] in "{[":
        try:
            structured = json.loads(text)
            # What has half of a surrogate pair cannot be sent on.
            if "\\ud" in text.lower():
                json.dumps(structured, ensure_ascii=False).encode()
            if depth_exceeds(structured, _DEEPEST):
                structured = None
        except (ValueError, RecursionError):
            structured = None
    blocks = [{"type": "text", "text": text}]
    return text, cast("dict[str, Any]", structured) if isinstance(structured, dict) else None, blocks


def _next_page(
    operation: Operation,
    arguments: Mapping[str, Any],
    answer: httpx2.Response,
    structured: Mapping[str, Any] | None,
) -> str:
    """The parameters for the next page, if the answer names one; otherwise empty."""
    known = {one.name: one.argument for one in operation.parameters if one.place == "query"}
    link = answer.links.get("next", {}).get("url", "")
    found = _changed(link, known, arguments) if link else {}
    for name, value in () if found or structured is None else _named_next(structured):
        if re.match(r"https?://|/|\?", value):
            found = _changed(value, known, arguments)
        elif (cursor := _cursor_of(name, known)) is not None:
            found = {known[cursor]: value}
        if found:
            break
    return _MORE + json.dumps(found, ensure_ascii=False) if found else ""


def _named_next(structured: Mapping[str, Any], depth: int = 0) -> list[tuple[str, str]]:
    found = list[tuple[str, str]]()
    for name, value in structured.items():
        if isinstance(value, str) and value and len(value) < 2000 and _PAGE.search(name):
            found.append((name, value))
        elif isinstance(value, dict) and depth < 2 and (name in _HOLDERS or name == "next"):
            inner = cast("dict[str, Any]", value)
            if name == "next" and isinstance(inner.get("href"), str):
                found.append((name, inner["href"]))
            else:
                found += _named_next(inner, depth + 1)
    return found


def _cursor_of(name: str, known: Mapping[str, str]) -> str | None:
    plain = re.sub(r"(?i)^next_?", "", name)
    wished = [name, plain, plain[:1].lower() + plain[1:], *_CURSORS]
    return next((one for one in wished if one in known), None)


def _changed(url: str, known: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by which an address differs from the call."""
    pairs = parse_qsl(urlsplit(joined("http://api/", url)).query)
    return {
        known[name]: int(value)
        if value.isdecimal() and len(value) < 16 and value == str(int(value))
        else value
        for name, value in pairs
        if name in known and str(arguments.get(known[name])) != value
    }
