"""The wire forms of questions to clients: whether one is declared and well formed, and who answers.

A server of a legacy revision sends such a request within a call, one of 2026-07-28 has it in a result
(`input_required`), which `Exchange` passes on to a modern client and plays out for a legacy one
(2026-07-28, basic/patterns/mrtr). A client that checks what it gets would fail the whole for one request
that is malformed.

    question_fault("elicitation/create", {"message": "Sure?"})    # "requestedSchema is missing"
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

import anyio

from mcp_toolset.context.client import CARRIED_EXTENSIONS
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError, UpstreamProtocolError
from mcp_toolset.protocol.errors import required
from mcp_toolset.protocol.json_rpc import MISSING_REQUIRED_CLIENT_CAPABILITY, MCPError
from mcp_toolset.protocol.shapes import (
    ID,
    NUMBER,
    OBJECT,
    TEXT,
    Items,
    Members,
    OneOf,
    OneOrMore,
    Shape,
    Tagged,
)
from mcp_toolset.security.egress import is_loopback
from mcp_toolset.tools.core.result import CALL_META_KEY, ELICITATION, ROOTS, SAMPLING
from mcp_toolset.tools.text.hidden_text import hidden_in, visible

_META: Final = Members(optional={"progressToken": ID})
_MEDIA: Final = Members({"data": TEXT, "mimeType": TEXT})
_BLOCK: Final = Tagged(
    "type",
    {
        "text": Members({"text": TEXT}),
        "image": _MEDIA,
        "audio": _MEDIA,
        "tool_use": Members({"id": TEXT, "name": TEXT, "input": OBJECT}),
        "tool_result": Members({"toolUseId": TEXT, "content": Items(OBJECT)}),
    },
)
_SAMPLING: Final = Members(
    {
        "messages": Items(Members({"role": OneOf(("user", "assistant")), "content": OneOrMore(_BLOCK)})),
        "maxTokens": NUMBER,
    },
    {
        "_meta": _META,
        "modelPreferences": OBJECT,
        "systemPrompt": TEXT,
        "includeContext": OneOf(("none", "thisServer", "allServers")),
        "temperature": NUMBER,
        "stopSequences": Items(TEXT),
        "metadata": OBJECT,
        "tools": Items(Members({"name": TEXT, "inputSchema": OBJECT}, {"description": TEXT})),
        "toolChoice": Members(optional={"mode": OneOf(("auto", "none", "required"))}),
        "task": OBJECT,
    },
)
_COMMON: Final[Mapping[str, Shape]] = {"_meta": _META, "task": OBJECT}
_FORM: Final = Members(
    {"message": TEXT, "requestedSchema": Members({"type": OneOf(("object",)), "properties": OBJECT})},
    _COMMON,
)
_PAGE: Final = Members({"message": TEXT, "url": TEXT, "elicitationId": TEXT}, _COMMON)
_ELICITATIONS: Final = Tagged("mode", {"form": _FORM, "url": _PAGE})

_AUTHORITY: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w-]+(\.[\w-]+)*\.?)(:\d{1,5})?", re.ASCII)
"""The host of a page, and its port: browsers read what is odd, such as a backslash, in ways of their own."""

_QUESTIONS: Final[Mapping[str, Shape]] = {
    "sampling/createMessage": _SAMPLING,
    "elicitation/create": _ELICITATIONS,
    "roots/list": Members(optional={"_meta": _META}),
}


def question_fault(method: str, params: Mapping[str, Any]) -> str | None:
    """What is malformed about a request of a server (2025-11-25, client); `None` if nothing is."""
    shape = _QUESTIONS.get(method)
    if shape is None:
        return f"{method} is no request of a server"
    if shape is _ELICITATIONS and "mode" not in params:
        params = {**params, "mode": "form"}
    fault = shape.fault(cast("dict[str, Any]", params), "")
    return None if fault is None else fault.removeprefix(".")


def requests_in(wire: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The requests in a result that asks for input, by their keys."""
    requests: object = wire.get("inputRequests")
    if not isinstance(requests, Mapping):
        return {}
    asked = cast("Mapping[str, Any]", requests)
    return {key: cast("Mapping[str, Any]", each) for key, each in asked.items() if isinstance(each, Mapping)}


def checked(
    link: Asking, requests: Mapping[str, Mapping[str, Any]], caller: WireContext
) -> dict[str, Mapping[str, Any]]:
    """Requests of one round as the client gets them, unless one is refused.

    Args:
        link: The server that asks.
        requests: The requests by their keys.
        caller: Whose request it is.

    Raises:
        UpstreamProtocolError: one asks for more than the client has declared (-32021).
        CallError: one cannot be shown to a user.
    """
    found = dict[str, Mapping[str, Any]]()
    for key, request in requests.items():
        method = str(request.get("method"))
        params = mapping_of(request.get("params"))
        missing = undeclared(method, params, caller.declares)
        if missing:
            raise UpstreamProtocolError(
                link.name,
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"it asks for {method}, and the client has not declared {missing}",
                required(missing),
            )
        if method == ELICITATION and (fault := unshowable(link, params)):
            raise CallError(f"{link.name}: its question is refused: {fault}")
        shown = shown_question if method == ELICITATION else marked
        found[key] = {**request, "params": shown(link, params)}
    return found


class Asking(Protocol):
    """A server that asks; `Link` is one."""

    @property
    def name(self) -> str: ...

    @property
    def is_near(self) -> bool: ...


_LABELS: Final = frozenset(("message", "title", "description", "enumNames"))
"""Members of a question that are shown and have no other use."""

_DIRECTION: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that reorder a line, which real writing has, and a line about a decision must not have."""


def unshowable(link: Asking, params: Mapping[str, Any]) -> str:
    """Why a user must not be shown a question of a server; empty if nothing is wrong."""
    mode, url = params.get("mode", "form"), params.get("url")
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
        if not (is_plain and _AUTHORITY.fullmatch(parts.netloc)):
            return "its page hides its address"
    hidden = next(_hidden({key: each for key, each in params.items() if key != "_meta"}), "")
    return f"its {'form' if url is None else 'page'} has {hidden} in a value" if hidden else ""


def shown_question(link: Asking, params: Mapping[str, Any]) -> dict[str, Any]:
    """A question of a server as its user gets it: the server first, hidden characters spelt out.

    Each further line of its labels is quoted: no line of a server can be taken for one of this bridge.
    """
    seen = _labelled(dict(params))
    return marked(link, {**seen, "message": f"{link.name} asks: {seen['message']}"})


def marked(link: Asking, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with the name of the server that asks, which the client cannot see otherwise."""
    meta = {
        key: value
        for key, value in mapping_of(params.get("_meta")).items()
        if key != "progressToken" and not key.startswith("mcp-toolset/")
    }
    return {**params, "_meta": {**meta, CALL_META_KEY: {"server": link.name}}}


def _kinds(text: str) -> tuple[str, ...]:
    found = hidden_in(text)
    return found or (("bidirectional controls",) if _DIRECTION.search(text) else ())


def _labelled(value: Any, is_label: bool = False) -> Any:
    """A value whose labels are spelt out, their lines quoted; a parameter may have the name of a label."""
    if isinstance(value, list):
        return [_labelled(each, is_label) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {key: _labelled(each, key in _LABELS) for key, each in table.items()}
    if not is_label or not isinstance(value, str):
        return value
    return "\n> ".join((visible(value) if _kinds(value) else value).splitlines())


def _hidden(value: Any, name: str = "") -> Iterator[str]:
    """The kinds of hidden characters, and of breaks, in what a question has besides its labels."""
    if isinstance(value, str):
        yield from () if name in _LABELS else _kinds(value)
        # What a field holds at first may have several lines.
        if name not in _LABELS and len(value.splitlines()) > (
            1 if name != "default" else value.count("\n") + 1
        ):
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
    """What a legacy client answers to the requests of one round, asked all at once."""
    answers: dict[str, dict[str, Any]] = {}
    refused: list[MCPError] = []

    async def ask(key: str, request: Mapping[str, Any]) -> None:
        try:
            answers[key] = await caller.relay(*for_legacy(request))
        except MCPError as fault:
            refused.append(fault)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for key, request in requests.items():
            group.start_soon(ask, key, request)
    if refused:
        raise CallError(f"{name}: the client did not answer what the server asked: {refused[0].message}")
    return answers


def undeclared(method: str, params: Mapping[str, Any], declares: Mapping[str, Any]) -> str:
    """The capability that a request needs and a client has not declared; empty if there is none."""
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
    """A bare declaration of elicitation means forms (client/elicitation, "Capabilities")."""
    if declared is None:
        return "elicitation"
    if mode == "url":
        return "" if declared.get("url") is not None else "elicitation.url"
    forms = declared.get("form") is not None or declared.get("url") is None
    return "" if forms else "elicitation.form"


def pages_of(data: object) -> list[Mapping[str, Any]]:
    """The pages that error -32042 of 2025-11-25 names (client/elicitation, "URL Elicitation Required")."""
    listed = mapping_of(data).get("elicitations")
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    return [{**page, "mode": "url"} for page in map(mapping_of, entries) if page]


def shown_in(pages: Sequence[Mapping[str, Any]]) -> str:
    """The addresses of pages that may be shown, for a person who opens them without the client."""
    return f"; open it in a browser and call again: {', '.join(page['url'] for page in pages)}"


def for_modern(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A legacy server's request as 2026-07-28 has it, within a result."""
    asked = {key: value for key, value in params.items() if key not in ("elicitationId", "task")}
    return {"method": method, "params": asked} if asked else {"method": method}


def for_legacy(request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A modern server's request as a legacy client has it: a page to open needs an id there."""
    method, params = str(request.get("method")), dict(mapping_of(request.get("params")))
    if method == ELICITATION and params.get("mode") == "url":
        params.setdefault("elicitationId", secrets.token_hex(16))
    return method, params


def missing_extensions(code: int, data: object) -> str:
    """The extensions that error -32021 asks for and the bridge does not carry; empty if there are none.

    A client's `extensions` go upstream only where every message of theirs crosses the bridge.
    """
    if code != MISSING_REQUIRED_CLIENT_CAPABILITY:
        return ""
    needed = mapping_of(mapping_of(mapping_of(data).get("requiredCapabilities")).get("extensions"))
    return ", ".join(sorted(needed.keys() - CARRIED_EXTENSIONS))


def mapping_of(value: object) -> Mapping[str, Any]:
    """What should be an object; empty if it is none."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
