"""`ClientQuestions`: checks requests of a mounted server to clients, and finds the client of each request.

A server may use only capabilities that the client has declared (basic/lifecycle, "Capability negotiation";
2026-07-28: error -32021), and may ask only the client whose call caused the request. If that client cannot be
found, the request is refused with the reason; no other client gets it.

`ServerMessages` takes the messages of a server on one session: these requests, pings and notifications.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import given_up
from mcp_toolset.context.connection import CARRIED_EXTENSIONS, ServedClient
from mcp_toolset.context.request import ASK_TIMEOUT, WireContext
from mcp_toolset.errors import CallError, UpstreamError, UpstreamProtocolError
from mcp_toolset.protocol import json_rpc, methods
from mcp_toolset.protocol.dispatch import DispatchContext
from mcp_toolset.security.egress import is_loopback
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.hidden_text import hidden_in, in_log, visible
from mcp_toolset.tools.result import CALL_META_KEY, ELICITATION, ROOTS, SAMPLED_FIELDS, SAMPLING, mapping_of
from mcp_toolset.upstream.in_flight import CallInFlight, CallsInFlight, SessionHealth, StandIn, is_carried
from mcp_toolset.upstream.secrets import LEFT_OUT
from mcp_toolset.upstream.target import Link

_META: Final = methods.Members(optional={"progressToken": methods.ID})
_CONTENT_BLOCK: Final = methods.tagged_union(
    "type",
    {
        **{
            kind: methods.Members(dict.fromkeys(fields, methods.TEXT))
            for kind, fields in SAMPLED_FIELDS.items()
        },
        "tool_use": methods.Members({"id": methods.TEXT, "name": methods.TEXT, "input": methods.OBJECT}),
        "tool_result": methods.Members(
            {"toolUseId": methods.TEXT, "content": methods.list_of(methods.OBJECT)}
        ),
    },
)
_SAMPLING: Final = methods.Members(
    {
        "messages": methods.list_of(
            methods.Members(
                {"role": methods.one_of("user", "assistant"), "content": methods.one_or_more(_CONTENT_BLOCK)}
            )
        ),
        "maxTokens": methods.NUMBER,
    },
    {
        "_meta": _META,
        "modelPreferences": methods.OBJECT,
        "systemPrompt": methods.TEXT,
        "includeContext": methods.one_of("none", "thisServer", "allServers"),
        "temperature": methods.NUMBER,
        "stopSequences": methods.list_of(methods.TEXT),
        "metadata": methods.OBJECT,
        "tools": methods.list_of(
            methods.Members(
                {"name": methods.TEXT, "inputSchema": methods.OBJECT}, {"description": methods.TEXT}
            )
        ),
        "toolChoice": methods.Members(optional={"mode": methods.one_of("auto", "none", "required")}),
        "task": methods.OBJECT,
    },
)
_COMMON: Final[Mapping[str, methods.Shape]] = {"_meta": _META, "task": methods.OBJECT}
_FORM: Final = methods.Members(
    {
        "message": methods.TEXT,
        "requestedSchema": methods.Members({"type": methods.one_of("object"), "properties": methods.OBJECT}),
    },
    _COMMON,
)
_PAGE: Final = methods.Members(
    {"message": methods.TEXT, "url": methods.TEXT, "elicitationId": methods.TEXT}, _COMMON
)
_ELICITATIONS: Final = methods.tagged_union("mode", {"form": _FORM, "url": _PAGE})

_HOST_AND_PORT: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w-]+(\.[\w-]+)*\.?)(:\d{1,5})?", re.ASCII)
"""The host and port of a page; browsers read other characters, such as a backslash, in different ways."""

_QUESTIONS: Final[Mapping[str, methods.Shape]] = {
    "sampling/createMessage": _SAMPLING,
    "elicitation/create": _ELICITATIONS,
    "roots/list": methods.Members(optional={"_meta": _META}),
}


def question_fault(method: str, params: Mapping[str, Any]) -> str | None:
    """The fault in the form of a server's request (2025-11-25, client); `None` if it is well-formed."""
    shape = _QUESTIONS.get(method)
    if shape is None:
        return f"{method} is no request of a server"
    if shape is _ELICITATIONS and "mode" not in params:
        params = {**params, "mode": "form"}
    fault = shape.fault(cast("dict[str, Any]", params), "")
    return None if fault is None else fault.removeprefix(".")


def requests_in(link: Link, wire: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The requests of a modern server in one result; `CallError` if they are too many."""
    asked = mapping_of(wire.get("inputRequests"))
    if len(asked) > MAX_ASKED:
        raise CallError(f"{link.name}: it asks for {len(asked)} things at once, more than {MAX_ASKED}")
    return {key: cast("Mapping[str, Any]", each) for key, each in asked.items() if isinstance(each, Mapping)}


def checked(
    link: Link, requests: Mapping[str, Mapping[str, Any]], caller: WireContext
) -> dict[str, Mapping[str, Any]]:
    """The requests of one result, ready for the client; an error if a request is not allowed.

    Raises:
        UpstreamProtocolError: the client has not declared a capability (-32021).
        CallError: a question must not be shown to a user.
    """
    ready = dict[str, Mapping[str, Any]]()
    for key, request in requests.items():
        method = str(request.get("method"))
        params = mapping_of(request.get("params"))
        missing = "" if is_carried(link, method, caller) else undeclared(method, params, caller.declares)
        if missing:
            raise UpstreamProtocolError(
                link.name,
                json_rpc.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"it asks for {method}, and the client has not declared {missing}",
                json_rpc.required(missing),
            )
        if method == ELICITATION and (fault := unshowable(link, params)):
            raise CallError(f"{link.name}: its question is refused: {fault}")
        shown = shown_question if method == ELICITATION else marked
        ready[key] = {**request, "params": shown(link, params)}
    return ready


_LABELS: Final = frozenset(("message", "title", "description", "enumNames"))
"""Members of a question that are only shown to the user."""

MAX_SHOWN: Final = 100_000
"""Characters that a question may have, with its form."""

_REORDERING: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that reorder a line: they are allowed in ordinary text, and refused in a question."""


def unshowable(link: Link, params: Mapping[str, Any]) -> str:
    """The reason why a question must not be shown to a user; empty if it may be shown."""
    mode, url = params.get("mode", "form"), params.get("url")
    if any(so_far > MAX_SHOWN for so_far in accumulate(_sizes(params))):
        return f"it is longer than the {MAX_SHOWN:,} characters that a user is shown"
    if mode not in ("form", "url") or not isinstance(params.get("message"), str):
        return "it has no message, or is neither a form nor a page"
    if (mode == "url") != (url is not None):
        return "a page has an address, and a form has none"
    if url is not None:
        try:
            parts = urlsplit(address := str(url))
            _ = parts.port
        except ValueError:
            return "its page has no valid address"
        is_here = parts.scheme == "http" and link.is_near and is_loopback(address)
        if parts.scheme != "https" and not is_here:
            return "its page has no https address"
        is_plain = address.isascii() and address.isprintable() and " " not in address
        if not (is_plain and _HOST_AND_PORT.fullmatch(parts.netloc)):
            return "its page hides its address"
    hidden = next(_hidden({key: each for key, each in params.items() if key != "_meta"}), "")
    return f"its {'form' if url is None else 'page'} has {hidden} in a value" if hidden else ""


def shown_question(link: Link, params: Mapping[str, Any]) -> dict[str, Any]:
    """A question as the user gets it: the name of the server first, hidden characters spelt out."""
    # Further lines of labels are quoted, so that no line of a server looks like one of the bridge.
    safe = _with_safe_labels(dict(params))
    return marked(link, {**safe, "message": f"{link.name} asks: {safe['message']}"})


def marked(link: Link, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with the name of the mounted server that asks, which clients do not see otherwise."""
    meta = {
        key: value
        for key, value in mapping_of(params.get("_meta")).items()
        if key != "progressToken" and not key.startswith("mcp-toolset/")
    }
    return {**params, "_meta": {**meta, CALL_META_KEY: {"server": link.name}}}


def _sizes(value: object) -> Iterator[int]:
    """The length of each text and each name in a question; other values count as one character."""
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[str, Any]", value).items():
            yield len(key)
            yield from _sizes(each)
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        yield len(items)
        for each in items:
            yield from _sizes(each)
    else:
        yield len(value) if isinstance(value, str) else 1


def _hidden_kinds(text: str) -> tuple[str, ...]:
    """The kinds of hidden characters in a text."""
    found = hidden_in(text)
    return found or (("bidirectional controls",) if _REORDERING.search(text) else ())


def _with_safe_labels(value: Any, is_label: bool = False) -> Any:
    """A value in which the labels have hidden characters spelt out and further lines quoted."""
    if isinstance(value, list):
        return [_with_safe_labels(each, is_label) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {key: _with_safe_labels(each, key in _LABELS) for key, each in table.items()}
    if not is_label or not isinstance(value, str):
        return value
    return "\n> ".join((visible(value) if _hidden_kinds(value) else value).splitlines())


def _hidden(value: Any, name: str = "") -> Iterator[str]:
    """The kinds of hidden characters and line breaks in a question, except in its labels."""
    if isinstance(value, str):
        yield from () if name in _LABELS else _hidden_kinds(value)
        # The default of a field may have several lines.
        allowed_lines = value.count("\n") + 1 if name == "default" else 1
        if name not in _LABELS and len(value.splitlines()) > allowed_lines:
            yield "a line break"
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _hidden(each, name if name in _LABELS else "")
    elif isinstance(value, Mapping):
        for key, each in cast("Mapping[str, Any]", value).items():
            yield from _hidden(key)
            yield from _hidden(each, key)


async def answers_to(
    name: str, requests: Mapping[str, Mapping[str, Any]], caller: WireContext
) -> dict[str, dict[str, Any]]:
    """Ask a legacy client the requests of a modern server; `CallError` if one answer is an error."""
    answers: dict[str, dict[str, Any]] = {}
    refused: list[json_rpc.MCPError] = []

    async def ask(key: str, request: Mapping[str, Any]) -> None:
        try:
            answers[key] = await caller.relay(*for_legacy(request))
        except json_rpc.MCPError as fault:
            refused.append(fault)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for key, request in requests.items():
            group.start_soon(ask, key, request)
    if refused:
        raise CallError(f"{name}: the client did not answer what the server asked: {refused[0].message}")
    return answers


def undeclared(method: str, params: Mapping[str, Any], declares: Mapping[str, Any]) -> str:
    """The capability that a request needs and a client lacks; empty if the request is allowed."""
    if method == ROOTS:
        return "" if "roots" in declares else "roots"
    if method == SAMPLING:
        return _undeclared_sampling(params, declares.get("sampling"))
    if method == ELICITATION:
        return _undeclared_elicitation(params.get("mode", "form"), declares.get("elicitation"))
    return method


def _undeclared_sampling(params: Mapping[str, Any], declared: Mapping[str, Any] | None) -> str:
    if declared is None:
        return "sampling"
    wants_tools = params.get("tools") is not None or params.get("toolChoice") is not None
    return "sampling.tools" if wants_tools and declared.get("tools") is None else ""


def _undeclared_elicitation(mode: object, declared: Mapping[str, Any] | None) -> str:
    """Like `undeclared`; an empty `elicitation` declares forms (client/elicitation, "Capabilities")."""
    if declared is None:
        return "elicitation"
    if mode == "url":
        return "" if declared.get("url") is not None else "elicitation.url"
    forms = declared.get("form") is not None or declared.get("url") is None
    return "" if forms else "elicitation.form"


def pages_of(data: object) -> list[Mapping[str, Any]]:
    """The pages in the data of error -32042 (client/elicitation, "URL Elicitation Required")."""
    listed = mapping_of(data).get("elicitations")
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    return [{**page, "mode": "url"} for page in map(mapping_of, entries) if page]


def shown_in(pages: Sequence[Mapping[str, Any]]) -> str:
    """The end of an error that asks the user to open these pages."""
    return f"; open it in a browser and call again: {', '.join(page['url'] for page in pages)}"


def for_modern(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A legacy server's request in the form for a modern client."""
    asked = {key: value for key, value in params.items() if key not in ("elicitationId", "task")}
    return {"method": method, "params": asked} if asked else {"method": method}


def for_legacy(request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A modern server's request in the form for a legacy client, where a page needs an id."""
    method, params = str(request.get("method")), dict(mapping_of(request.get("params")))
    if method == ELICITATION and params.get("mode") == "url":
        params.setdefault("elicitationId", secrets.token_hex(16))
    return method, params


def missing_extensions(code: int, data: object) -> str:
    """The extensions that error -32021 asks for and the bridge cannot pass on; empty if there are none."""
    # The bridge declares a client's extension to a server only if it passes on all messages of the extension.
    if code != json_rpc.MISSING_REQUIRED_CLIENT_CAPABILITY:
        return ""
    needed = mapping_of(mapping_of(mapping_of(data).get("requiredCapabilities")).get("extensions"))
    return ", ".join(sorted(needed.keys() - CARRIED_EXTENSIONS))


MAX_ASKED: Final = 64  # requests that a mounted server may make during one call
MAX_TOLD: Final = 64  # logged refusals of one session that are remembered, so that each is logged once
MAX_PAGES: Final = 256  # shown pages that are remembered until the server reports them complete

PAGE_TIMEOUT: Final = 30.0
"""Seconds to wait until a server reports an opened page complete; not every server does."""

_log = logging.getLogger("mcp_toolset.ask")


class ClientQuestions:
    """Passes on the requests of a server on one session, each to the client whose call caused it."""

    def __init__(
        self,
        link: Link,
        calls: CallsInFlight,
        declares: Mapping[str, Any],
        client: ServedClient | None = None,
        stand_in: StandIn | None = None,
    ) -> None:
        self.declares = declares  # the capabilities of clients that the session has declared
        self.client = client  # the only client of the session; `None` if several share it
        self._link = link
        self._stand_in = stand_in
        self._calls = calls
        # The client of each page, and an event for its completion.
        self._pages: OrderedDict[str, tuple[ServedClient, anyio.Event]] = OrderedDict()
        self._logged_refusals: set[tuple[str, str]] = set()

    async def put(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Ask the client whose call caused a request; `MCPError` if the request is refused."""
        params = params or {}
        missing = undeclared(method, params, self.declares)
        if missing:
            raise self._refused(method, f"the client has not declared {missing}")
        malformed = question_fault(method, params)
        if malformed is not None:
            raise self._refused(method, f"it does not follow the protocol: {malformed}")
        if method == ELICITATION and (fault := unshowable(self._link, params)):
            raise self._refused(method, fault)
        current = self._calls.current()
        call = current or self._calls.sole()
        if call is None or call.ended:
            return await self._outside(method, params, call)
        if call.asked >= MAX_ASKED:
            raise self._refused(method, f"one call may ask {MAX_ASKED} times")
        if isinstance(call.context, WireContext):
            self.note_pages([params], call.context.client)
        with call.asking(exact=current is not None):
            other = self._stand_in
            if other is not None and method == other.method and other.serves(call.context):
                return await other.relay(call, params)
            shown = shown_question if method == ELICITATION else marked
            return await call.ask(method, shown(self._link, params))
        raise self._refused(method, "the call that it belongs to has ended")

    async def put_own(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Put a request of an extension to the client of the call, if that client declares the extension."""
        current = self._calls.current()
        call = current or self._calls.sole()
        if call is None or call.ended or not is_carried(self._link, method, call.context):
            raise json_rpc.MCPError(json_rpc.METHOD_NOT_FOUND, "Method not found", method)
        if call.asked >= MAX_ASKED:
            raise self._refused(method, f"one call may ask {MAX_ASKED} times")
        with call.asking(exact=current is not None):
            return await call.ask(method, marked(self._link, params or {}))
        raise self._refused(method, "the call that it belongs to has ended")

    async def _outside(
        self, method: str, params: Mapping[str, Any], call: CallInFlight | None
    ) -> dict[str, Any]:
        """Handle a request that belongs to no call: ask the session's client for roots, refuse any other."""
        if method == ROOTS and self.client is not None:
            # A client on HTTP without an open stream would never answer.
            with anyio.move_on_after(ASK_TIMEOUT):
                answer = await self.client.ask(method, params)
                if answer is not None:
                    return answer
        if call is not None:
            raise self._refused(method, "the call that it belongs to has ended")
        if len(self._calls):
            raise self._refused(
                method,
                "calls of several clients are in flight and nothing says which of them it belongs to; "
                "mount the server with sessions='client'",
            )
        raise self._refused(method, "no call is in flight that it could belong to")

    def _refused(self, method: str, reason: str) -> json_rpc.MCPError:
        """The error for a refused request; each reason is logged once."""
        if (method, reason) not in self._logged_refusals:
            if len(self._logged_refusals) >= MAX_TOLD:
                self._logged_refusals.clear()
            self._logged_refusals.add((method, reason))
            _log.warning("%s asks for %s and is refused: %s", self._link.name, in_log(method), in_log(reason))
        return json_rpc.MCPError(json_rpc.INVALID_REQUEST, f"{method} is refused: {reason}")

    def note_pages(self, pages: object, client: ServedClient) -> None:
        """Remember which client each page is for, by its `elicitationId`."""
        for page in cast("list[object]", pages) if isinstance(pages, list) else ():
            name = mapping_of(page).get("elicitationId")
            if isinstance(name, str):
                shown = self._pages.get(name)
                done = anyio.Event() if shown is None or shown[1].is_set() else shown[1]
                self._pages[name] = client, done
                if len(self._pages) > MAX_PAGES:
                    self._pages.popitem(last=False)

    def note_refusal(self, fault: UpstreamError, context: ToolContext) -> None:
        """Remember the pages in error -32042 of a call, which the client of the call shows."""
        if (
            isinstance(fault, UpstreamProtocolError)
            and fault.code == json_rpc.URL_ELICITATION_REQUIRED
            and isinstance(context, WireContext)
        ):
            self.note_pages(pages_of(fault.data), context.client)

    async def page_done(self, params: Mapping[str, Any] | None) -> None:
        """Tell the client of a page that the page is complete."""
        page = self._pages.get(str((params or {}).get("elicitationId")))
        if page is not None and not page[1].is_set():
            page[1].set()
            await page[0].notify("notifications/elicitation/complete", params)

    async def show(self, pages: Sequence[Mapping[str, Any]]) -> str:
        """Ask a modern client to open the pages that a legacy server wants first (error -32042).

        Returns an empty text if the user has opened each page, else the reason why a repeat of the call would
        fail. It waits until the server reports the pages complete, at most `PAGE_TIMEOUT`.
        """
        for page in pages:
            try:
                answer = await self.put(ELICITATION, {**page, "mode": "url"})
            except json_rpc.MCPError as fault:
                return fault.message
            if answer.get("action") != "accept":
                return "the user did not open the page that the server needs to be opened first"
        with anyio.move_on_after(PAGE_TIMEOUT):
            for page in pages:
                known = self._pages.get(str(page.get("elicitationId")))
                if known is not None:
                    await known[1].wait()
        return ""


_ASKS_CLIENTS: Final = frozenset({ELICITATION, ROOTS, SAMPLING})

Notified = Callable[[str, Mapping[str, Any] | None], Awaitable[bool]]
"""Gets a notification of the server first; returns `True` if it has handled it."""


async def _not_handled(method: str, params: Mapping[str, Any] | None) -> bool:
    return False


@dataclass(eq=False)
class ServerMessages:
    """Routes a server's own messages: requests to clients, notifications to calls in flight."""

    link: Link  # the link to the server
    calls: CallsInFlight  # the calls in flight in the session
    questions: ClientQuestions  # asks the clients of these calls
    health: SessionHealth  # records that the server has sent something
    notified: Notified = field(default=_not_handled, init=False)  # gets notifications that belong to no call
    answers_pings: bool = field(default=True, init=False)  # True if the revision has pings

    async def answer(
        self, context: DispatchContext, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Answer a request of the server: a client answers questions, the bridge itself pings."""
        if method in _ASKS_CLIENTS:
            given_up.set(lambda: getattr(context, "reason", None))
            return await self.questions.put(method, params)
        if method == "ping" and self.answers_pings:
            return {}
        if self.link.carries.tables:
            given_up.set(lambda: getattr(context, "reason", None))
            return await self.questions.put_own(method, params)
        raise json_rpc.MCPError(json_rpc.METHOD_NOT_FOUND, "Method not found", method)

    def take_of_call(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take a notification of a call in flight at once; `False` if `take` must handle it."""
        self.health.heard()
        if any(method in one.hears for one in self.link.declared.values()):
            return False
        return self.calls.take(method, self._cleaned(params))

    async def take(self, _: DispatchContext, method: str, params: Mapping[str, Any] | None) -> None:
        """Take any other notification of the server."""
        self.health.heard()
        if self.link.declared:
            await self.link.hear(method, params)
        if method == "notifications/elicitation/complete":
            await self.questions.page_done(params)
        elif not await self.notified(method, params) and method != "notifications/progress":
            await self.calls.notify(method, self._cleaned(params))

    def _cleaned(self, params: Mapping[str, Any] | None) -> Any:
        """The parameters of a notification without secrets; if they are too big, a note replaces the data."""
        takes = self.link.secrets.takes
        if not takes(params):
            known = {key: (params or {}).get(key) for key in ("level", "logger", "uri")}
            params = {key: value for key, value in known.items() if isinstance(value, str) and takes(value)}
            params["data"] = LEFT_OUT
        return self.link.secrets.cleaned(params)
