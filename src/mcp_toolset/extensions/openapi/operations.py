"""`Operation`: an operation of a document as a tool, and how its requests are made."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.openapi import reading
from mcp_toolset.extensions.openapi.answers import AnswerSchemas
from mcp_toolset.extensions.openapi.arguments import (
    HEADERS_OF_OTHERS,
    MEDIA,
    TOKEN,
    Body,
    OperationArguments,
    Parameter,
    as_sent,
    is_json,
)
from mcp_toolset.extensions.openapi.schemas import Schemas, brief
from mcp_toolset.extensions.openapi.texts import TITLE, description, hints, names_of
from mcp_toolset.security.egress import is_web_address
from mcp_toolset.tools.definition import REACHES_META_KEY

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
MAX_OPERATIONS: Final = 20_000

_TOKENS: Final = ("bearer", "token", "apikey", "api-key")
"""Schemes of HTTP that send a secret as it is; others, such as `digest`, prove that one knows it."""

_OF_KEYS: Final = frozenset(("authorization",))  # headers that may be a key, and no parameter
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to prove who calls (Security Scheme Object)."""

    name: str
    kind: Literal["apiKey", "basic", "token", "other"]
    place: str = ""  # of a key: `query`, `header` or `cookie`
    parameter: str = ""  # the name of a key; the word before a token in `Authorization`


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation."""

    name: str
    method: str
    path: str
    servers: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    body: Body | None
    # The alternatives of schemes, each of which suffices; `None` if the document says nothing.
    security: tuple[tuple[str, ...], ...] | None
    accepts: str
    definition: Mapping[str, Any]  # as `tools/list` has it
    fixed: frozenset[tuple[str, str]]  # places and names, as sent, that are configured


@dataclass(frozen=True, slots=True)
class Api:
    """All operations of a document.

    Attributes:
        title: Its title.
        version: Its version.
        about: Its description.
        operations: The operations by the names of their tools.
        schemes: The security schemes by name.
        set_aside: What cannot be a tool, each with the reason.
    """

    title: str
    version: str
    about: str
    operations: Mapping[str, Operation]
    schemes: Mapping[str, Scheme]
    set_aside: tuple[tuple[str, str], ...]

    @property
    def origins(self) -> frozenset[tuple[str, str]]:
        """The schemes and hosts of its servers."""
        return frozenset(urlsplit(one.servers[0])[:2] for one in self.operations.values())


def api_of(
    documents: reading.Documents,
    *,
    server: str = "",
    origin: str = "",
    given: Collection[str] = (),
    output_schemas: bool = False,
    headers: Mapping[str, str] | None = None,
    clean: Callable[[str], str] = str,
) -> Api:
    """The operations of a document.

    Args:
        documents: The document, and what it refers to.
        server: The address that takes the place of the servers that it names.
        origin: What addresses without a host are relative to, if the document has no address itself.
        given: The security schemes for which there are credentials: a parameter that is the place of one is
            no argument.
        output_schemas: Whether the operations have output schemas.
        headers: What is sent with every request: a parameter that is one of them is no argument either.
        clean: Takes secrets out of a text that clients see.

    Raises:
        DocumentError: it is no document of OpenAPI 3 or Swagger 2.0, or has too many operations.
    """
    return _Description(documents, server, origin, given, output_schemas, headers or {}, clean).api()


class _Description:
    """A document while its operations are read."""

    def __init__(
        self,
        documents: reading.Documents,
        server: str,
        origin: str,
        given: Collection[str],
        output_schemas: bool,
        headers: Mapping[str, str],
        clean: Callable[[str], str],
    ) -> None:
        self._documents = documents
        self._start = documents.start
        self._base = self._start.base if self._start.base.startswith("http") else origin
        self._root = reading.table_of(self._start.value)
        self._server, self._clean = server, clean
        version = str(self._root.get("openapi", ""))
        if not documents.is_old and not version.startswith("3."):
            raise reading.DocumentError(
                "the document has neither `openapi: 3.…` nor `swagger: 2.0`; give an OpenAPI document"
            )
        is_modern = not documents.is_old and not version.startswith("3.0")
        self._schemas = Schemas(documents, modern=is_modern)
        self._answers = AnswerSchemas(documents, modern=is_modern) if output_schemas else None
        self._schemes = self._security_schemes()
        keys = [one for one in self._schemes.values() if one.kind == "apiKey" and one.name in given]
        fixed = [*((one.place, one.parameter) for one in keys), *_named_by(headers)]
        self._fixed = frozenset((place, as_sent(place, name)) for place, name in fixed)

    def api(self) -> Api:
        found = [*self._found()]
        if len(found) > MAX_OPERATIONS:
            raise reading.DocumentError(
                f"the document has more than {MAX_OPERATIONS} operations; give a part of it"
            )
        names = names_of(
            [(reading.text_of(one.value.get("operationId")), method, path) for method, path, one, _ in found]
        )
        operations, aside = dict[str, Operation](), list[tuple[str, str]]()
        for name, (method, path, node, item) in zip(names, found, strict=True):
            try:
                operations[name] = self._operation(name, method, path, node, item)
            except reading.DocumentError as fault:
                aside.append((name, str(fault)))
        info = reading.table_of(self._root.get("info"))
        return Api(
            brief(reading.text_of(info.get("title")), 100) or "API",
            brief(str(info.get("version") or ""), 40),
            brief(reading.text_of(info.get("summary")) or reading.text_of(info.get("description")), 600),
            operations,
            self._schemes,
            tuple(aside),
        )

    def _found(self) -> Iterator[tuple[str, str, reading.Node, reading.Node]]:
        """Each operation: its method, its path, what it is, and the item of its path."""
        for path, value in reading.table_of(self._root.get("paths")).items():
            if not path.startswith("/") or _CONTROL.search(path):
                continue
            item = self._documents.end(self._start.within(value))
            for method in METHODS:
                if isinstance(reading.table_of(item.value).get(method), dict):
                    operation = self._documents.end(item.within(item.value[method]))
                    if isinstance(operation.value, dict):
                        yield method, path, operation, item

    def _operation(
        self, name: str, method: str, path: str, node: reading.Node, item: reading.Node
    ) -> Operation:
        table = reading.table_of(node.value)
        arguments = OperationArguments(self._documents, self._schemas, self._fixed)
        arguments.read(path, item, node)
        servers, security = self._servers(table, item), self._security(table)
        definition: dict[str, Any] = {
            "name": name,
            "description": description(method, path, table),
            "inputSchema": arguments.schema,
            "annotations": hints(method),
        }
        if self._answers is not None and (output := self._answers.of(name, node)) is not None:
            definition["outputSchema"] = output
        if title := brief(reading.text_of(table.get("summary")), TITLE):
            definition["title"] = title
        definition["_meta"] = {
            REACHES_META_KEY: {
                "method": method.upper(),
                "path": path,
                # The path stands by itself: at the origin of the mount, an address is shown without it.
                "server": "://".join(urlsplit(servers[0])[:2]),
                "base": self._clean(urlsplit(servers[0]).path or "/"),
                "request": self._plan(arguments, security),
            }
        }
        parameters, accepts = tuple(arguments.parameters), self._accepts(table, node)
        return Operation(
            name,
            method.upper(),
            path,
            servers,
            parameters,
            arguments.body,
            security,
            accepts,
            definition,
            self._fixed,
        )

    def _plan(self, arguments: OperationArguments, security: tuple[tuple[str, ...], ...] | None) -> str:
        """A digest of how a request is made: what goes where, in which form, with which credentials."""
        known = self._schemes
        ways = [known] if security is None else security
        proofs = [[asdict(known[name]) for name in sorted(one) if name in known] for one in ways]
        places = [asdict(one) for one in sorted(arguments.parameters, key=lambda one: one.argument)]
        said = [places, None if arguments.body is None else asdict(arguments.body), proofs]
        text = json.dumps(said, sort_keys=True, default=sorted)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def _servers(self, table: Mapping[str, Any], item: reading.Node) -> tuple[str, ...]:
        if self._server:
            return (self._server.rstrip("/"),)
        if self._documents.is_old:
            given = self._old_servers()
        else:
            places = (table, reading.table_of(item.value), self._root)
            said = next(
                (found for one in places if (found := reading.list_of(one.get("servers")))), list[Any]()
            )
            given = [url for one in said if (url := _server_url(reading.table_of(one))) is not None]
        found = list[str]()
        for url in given or ["/"]:
            there = reading.joined(self._base, url)
            if not is_web_address(there) or "@" in urlsplit(there).netloc or {"?", "#"} & {*there}:
                continue
            found.append(there.rstrip("/"))
        if not found:
            raise reading.DocumentError(
                "the document names no server with an http or https address; name one with `server`"
            )
        return tuple(found)

    def _old_servers(self) -> list[str]:
        host, path = (
            reading.text_of(self._root.get("host")),
            reading.text_of(self._root.get("basePath")) or "/",
        )
        path = path if path.startswith("/") else f"/{path}"
        if not host:
            return [path]
        schemes = [one for one in reading.list_of(self._root.get("schemes")) if one in ("http", "https")]
        here = urlsplit(self._base).scheme
        schemes = schemes or [here if here in ("http", "https") else "https"]
        return [f"{one}://{host}{path}" for one in sorted(schemes, reverse=True)]

    def _security_schemes(self) -> dict[str, Scheme]:
        is_old = self._documents.is_old
        parts = self._root if is_old else reading.table_of(self._root.get("components"))
        named = reading.table_of(parts.get("securityDefinitions" if is_old else "securitySchemes"))
        return {
            name: _scheme(name, reading.table_of(self._documents.end(self._start.within(one)).value))
            for name, one in named.items()
        }

    def _security(self, table: Mapping[str, Any]) -> tuple[tuple[str, ...], ...] | None:
        said = table.get("security", self._root.get("security"))
        if not isinstance(said, list):
            return None
        return tuple(tuple(reading.table_of(one)) for one in reading.list_of(cast("object", said)))

    def _accepts(self, table: Mapping[str, Any], node: reading.Node) -> str:
        """The media types of the answers, JSON first."""
        named = (
            reading.list_of(table.get("produces", self._root.get("produces")))
            if self._documents.is_old
            else []
        )
        found = dict.fromkeys(one for one in named if isinstance(one, str))
        for answer in reading.table_of(table.get("responses")).values():
            one = self._documents.end(node.within(answer))
            found |= dict.fromkeys(reading.table_of(reading.table_of(one.value).get("content")))
        kinds = [one for one in found if MEDIA.fullmatch(one)][:6]
        # Some APIs have versions in them, and answer in XML unless asked for JSON.
        kinds.sort(key=lambda one: not is_json(one))
        return ", ".join([*kinds, "*/*;q=0.1"]) if kinds else "application/json, */*;q=0.8"


def _named_by(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The headers, and the cookies in them, each as a place and a name."""
    for name, value in headers.items():
        yield "header", name
        if name.lower() == "cookie":
            yield from (("cookie", one.partition("=")[0].strip()) for one in value.split(";"))


def _scheme(name: str, table: Mapping[str, Any]) -> Scheme:
    kind, how = table.get("type"), reading.text_of(table.get("scheme")).lower()
    parameter = reading.text_of(table.get("name"))
    if kind == "apiKey" and table.get("in") in ("query", "header", "cookie"):
        is_plain = TOKEN.fullmatch(parameter) and parameter.lower() not in HEADERS_OF_OTHERS - _OF_KEYS
        is_usable = is_plain or (parameter and table["in"] == "query")
        return Scheme(name, "apiKey" if is_usable else "other", table["in"], parameter)
    if kind == "basic" or (kind == "http" and how == "basic"):
        return Scheme(name, "basic")
    if kind in ("oauth2", "openIdConnect"):
        return Scheme(name, "token", parameter="Bearer")
    if kind == "http" and how in _TOKENS:
        return Scheme(
            name, "token", parameter="Bearer" if how == "bearer" else reading.text_of(table.get("scheme"))
        )
    return Scheme(name, "other")


def _server_url(table: Mapping[str, Any]) -> str | None:
    """The address of a server with the defaults of its variables; `None` if it has others."""
    url = reading.text_of(table.get("url"))
    for name, said in reading.table_of(table.get("variables")).items():
        default = reading.table_of(said).get("default")
        if default is not None:
            url = url.replace("{" + name + "}", str(default))
    return None if "{" in url or not url else url
