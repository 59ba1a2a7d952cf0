"""`Operation`: an operation of a document as a tool: its name, text and arguments, and where they go."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, Final, Literal, cast
from urllib.parse import urljoin, urlsplit

from mcp_toolset._records import dataclass, replace
from mcp_toolset.extensions.openapi.reading import DocumentError, Documents, Node, list_of, table_of, text_of
from mcp_toolset.extensions.openapi.schemas import JsonSchema, Schemas, brief, of_documents
from mcp_toolset.security.egress import is_web_address
from mcp_toolset.tools.definition import REACHES_META_KEY, qualified

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
MAX_OPERATIONS: Final = 20_000

_FIRST: Final = 80  # characters of the first sentence of a description
_DESCRIPTION: Final = 700
_PARAMETER: Final = 300
_NAME: Final = 64

Place = Literal["path", "query", "header", "cookie", "body"]

_STYLES: Final = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_KNOWN_STYLES: Final = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
_COLLECTIONS: Final = {
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}
"""The list formats of Swagger 2.0, as style and `explode`."""

_HEADERS_OF_OTHERS: Final = frozenset(
    ("accept", "content-type", "authorization", "host", "cookie", "content-length", "transfer-encoding")
) | {"connection", "te", "trailer", "upgrade", "expect", "keep-alive", "proxy-authorization", "forwarded"}
"""Header parameters that count for nothing (OpenAPI, Parameter Object), or that would change the request."""

_TOKENS: Final = ("bearer", "token", "apikey", "api-key")
"""Schemes of HTTP that send a secret as it is; others, such as `digest`, prove that one knows it."""

_OF_KEYS: Final = frozenset(("authorization",))  # headers that may be a key, and no parameter
_MEDIA: Final = re.compile(r"[\w.+*-]+/[\w.+*-]+(?:; ?[\w-]+=\"?[\w.:/-]+\"?)*", re.ASCII)
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")
_TEMPLATE: Final = re.compile(r"\{([^{}/]+)\}")


@dataclass(frozen=True, slots=True)
class Written:
    """The serialization of a value."""

    style: str = "form"
    explode: bool = True
    reserved: bool = False  # whether reserved characters stay as they are
    media: str = ""  # the media type of a value that is written as a whole


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument that is no part of a body."""

    argument: str  # its name as an argument
    name: str
    place: Place
    written: Written


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request.

    Attributes:
        media: Its media type.
        argument: The argument that it is; empty if its members are arguments themselves.
        members: The members that are arguments, with their names in the body.
        parts: The serialization of single members of a form.
        files: The members of a form that are files, or "" for the body itself.
    """

    media: str
    argument: str = ""
    members: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: Mapping[str, Written] = field(default_factory=dict[str, Written])
    files: frozenset[str] = frozenset()
    required: bool = False


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


@dataclass(frozen=True, slots=True)
class Api:
    """All operations of a document.

    Attributes:
        title: Its title.
        version: Its version.
        about: Its description.
        operations: The operations by the names of their tools.
        schemes: The security schemes by name.
        set_aside: The operations that cannot be tools, each with the reason.
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


def api_of(documents: Documents, *, server: str = "", origin: str = "", given: Collection[str] = ()) -> Api:
    """The operations of a document.

    Args:
        documents: The document, and what it refers to.
        server: The address that takes the place of the servers that it names.
        origin: The base of addresses without a host, if the document has no address itself.
        given: The security schemes for which there are credentials: a parameter that is the place of one is
            no argument.

    Raises:
        DocumentError: it is no document of OpenAPI 3 or Swagger 2.0, or has too many operations.
    """
    return _Description(documents, server, origin, given).api()


class _Description:
    """A document while its operations are read."""

    def __init__(self, documents: Documents, server: str, origin: str, given: Collection[str]) -> None:
        self._documents = documents
        self._start = documents.start
        self._base = self._start.base if self._start.base.startswith("http") else origin
        self._root = table_of(self._start.value)
        self._server = server
        self._is_old = str(self._root.get("swagger", "")).startswith("2")
        version = str(self._root.get("openapi", ""))
        if not self._is_old and not version.startswith("3."):
            raise DocumentError(
                "the document has neither `openapi: 3.…` nor `swagger: 2.0`; give an OpenAPI document"
            )
        self._modern = not self._is_old and not version.startswith("3.0")
        self._schemas = Schemas(documents, modern=self._modern)
        self._schemes = self._security_schemes()
        keys = [one for one in self._schemes.values() if one.kind == "apiKey" and one.name in given]
        self._of_keys = {(one.place, _as_sent(one.place, one.parameter)) for one in keys}

    def api(self) -> Api:
        found = [*self._found()]
        if len(found) > MAX_OPERATIONS:
            raise DocumentError(f"the document has more than {MAX_OPERATIONS} operations; give a part of it")
        names = names_of(
            [(text_of(one.value.get("operationId")), method, path) for method, path, one, _ in found]
        )
        operations, aside = dict[str, Operation](), list[tuple[str, str]]()
        for name, (method, path, node, item) in zip(names, found, strict=True):
            try:
                operations[name] = self._operation(name, method, path, node, item)
            except DocumentError as fault:
                aside.append((name, str(fault)))
        info = table_of(self._root.get("info"))
        return Api(
            brief(text_of(info.get("title")), 100) or "API",
            brief(str(info.get("version") or ""), 40),
            brief(text_of(info.get("summary")) or text_of(info.get("description")), 600),
            operations,
            self._schemes,
            tuple(aside),
        )

    def _found(self) -> Iterator[tuple[str, str, Node, Node]]:
        """Each operation: its method, its path, what it is, and the item of its path."""
        for path, value in table_of(self._root.get("paths")).items():
            if not path.startswith("/") or _CONTROL.search(path):
                continue
            item = of_documents(self._documents, self._start.within(value))
            for method in METHODS:
                if isinstance(table_of(item.value).get(method), dict):
                    operation = of_documents(self._documents, item.within(item.value[method]))
                    if isinstance(operation.value, dict):
                        yield method, path, operation, item

    def _operation(self, name: str, method: str, path: str, node: Node, item: Node) -> Operation:
        table = table_of(node.value)
        said = [*self._parameters(item, node)]
        properties, required = dict[str, JsonSchema](), list[str]()
        parameters = [*self._arguments(path, said, properties, required)]
        missing = {*_TEMPLATE.findall(path)} - {one.name for one in parameters if one.place == "path"}
        for one in sorted(missing):
            # A document that forgets a parameter of its path is common.
            parameters.append(
                Parameter(_free(one, properties, "path"), one, "path", Written("simple", explode=False))
            )
            properties[parameters[-1].argument] = {"type": "string"}
            required.append(parameters[-1].argument)
        body = self._body(table, node, said, properties, required)
        schema: JsonSchema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = [*dict.fromkeys(required)]
        schema["additionalProperties"] = False
        servers = self._servers(table, item)
        schema = self._schemas.arguments(schema)
        definition: dict[str, Any] = {
            "name": name,
            "description": _description(method, path, table),
            "inputSchema": schema,
            "annotations": _hints(method),
        }
        if title := brief(text_of(table.get("summary")), _FIRST):
            definition["title"] = title
        security = self._security(table)
        definition["_meta"] = {
            REACHES_META_KEY: {
                "method": method.upper(),
                "path": path,
                "server": servers[0],
                "request": self._plan(parameters, body, security),
            }
        }
        return Operation(
            name,
            method.upper(),
            path,
            servers,
            tuple(parameters),
            body,
            security,
            self._accepts(table, node),
            definition,
        )

    def _plan(
        self, parameters: Sequence[Parameter], body: Body | None, security: tuple[tuple[str, ...], ...] | None
    ) -> str:
        """A digest of how a request is made: what goes where, in which form, with which credentials."""
        known = self._schemes
        ways = [known] if security is None else security
        proofs = [[asdict(known[name]) for name in sorted(one) if name in known] for one in ways]
        places = [asdict(one) for one in sorted(parameters, key=lambda one: one.argument)]
        said = [places, None if body is None else asdict(body), proofs]
        text = json.dumps(said, sort_keys=True, default=sorted)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    # Parameters

    def _parameters(self, item: Node, operation: Node) -> Iterator[Node]:
        """The parameters of an operation, and those of its path that it does not replace."""
        own = [
            of_documents(self._documents, operation.within(one))
            for one in list_of(operation.value.get("parameters"))
        ]
        above = [
            of_documents(self._documents, item.within(one))
            for one in list_of(table_of(item.value).get("parameters"))
        ]
        keys = {_key(one) for one in own}
        kept = (one for one in above if _key(one) not in keys)
        for one in (*kept, *own):
            if all(_key(one)):
                yield one

    def _arguments(
        self, path: str, said: Sequence[Node], properties: dict[str, JsonSchema], required: list[str]
    ) -> Iterator[Parameter]:
        templates = {*_TEMPLATE.findall(path)}
        # Those of the path keep their names.
        for one in sorted(said, key=lambda one: one.value.get("in") != "path"):
            place, name = one.value.get("in"), one.value["name"]
            if place not in _STYLES or (place == "path" and name not in templates):
                continue
            if place == "header" and name.lower() in _HEADERS_OF_OTHERS:
                continue
            if (place, _as_sent(place, name)) in self._of_keys:
                continue
            if place in ("header", "cookie") and not _TOKEN.fullmatch(name):
                raise DocumentError(
                    f"the {place} {name[:80]!r} is no name of a {place}; correct the document"
                )
            written, schema = self._written(one)
            argument = _free(name, properties, place)
            properties[argument] = _described(schema, one.value, _PARAMETER)
            if place == "path" or one.value.get("required") is True:
                required.append(argument)
            yield Parameter(argument, name, place, written)

    def _written(self, node: Node) -> tuple[Written, JsonSchema]:
        table, place = node.value, node.value["in"]
        if self._is_old:
            style, explode = _COLLECTIONS.get(text_of(table.get("collectionFormat")), ("form", False))
            style = style if place == "query" else _STYLES[place]
            return Written(style, explode), self._schemas.of(node.within(_old_schema(table)))
        for media, said in table_of(table.get("content")).items():
            inner = of_documents(self._documents, node.within(said))
            return Written(media=media), self._schemas.of(
                inner.within(table_of(inner.value).get("schema", {}))
            )
        style = text_of(table.get("style"))
        style = style if style in _KNOWN_STYLES[place] else _STYLES[place]
        explode = table.get("explode")
        explode = explode if isinstance(explode, bool) else style == "form"
        reserved = table.get("allowReserved") is True
        return Written(style, explode, reserved), self._schemas.of(node.within(table.get("schema", {})))

    # Bodies

    def _body(
        self,
        table: Mapping[str, Any],
        node: Node,
        said: Sequence[Node],
        properties: dict[str, JsonSchema],
        required: list[str],
    ) -> Body | None:
        if self._is_old:
            media, schema, content, needed, about = self._old_body(table, node, said)
        else:
            media, schema, content, needed, about = self._new_body(table, node)
        if not media:
            return None
        is_form = _is_form(media)
        encodings = table_of(content.get("encoding"))
        members = self._members(schema, media, needed, properties)
        if members is not None:
            flat = [*self._schemas.flat(schema)]
            made = self._schemas.of(schema)
            _put_members(members, made, self._schemas.definitions, properties, required, needed=needed)
            body = Body(media, members=members, required=needed)
        else:
            flat = [*self._schemas.flat(schema)] if is_form else []
            argument = _free("body", properties, "request")
            properties[argument] = _described(self._schemas.of(schema), {"description": about}, _PARAMETER)
            if needed:
                required.append(argument)
            body = Body(media, argument, required=needed)
        if is_form:
            body = replace(body, parts=_parts(encodings, flat), files=self._files(flat))
        elif not _is_json(media) and not media.startswith("text/"):
            body = replace(body, files=frozenset([""]))
            properties[body.argument] = {"type": "string", "description": FILE}
        for argument, name in body.members.items():
            if name in body.files:
                properties[argument] = _file_schema(properties[argument])
        return body

    def _new_body(self, table: Mapping[str, Any], node: Node) -> tuple[str, Node, dict[str, Any], bool, str]:
        if "requestBody" not in table:
            return "", node, {}, False, ""
        body = of_documents(self._documents, node.within(table["requestBody"]))
        contents = table_of(table_of(body.value).get("content"))
        media = _preferred(contents)
        if contents and not media:
            raise DocumentError("its body has no media type that can be sent; correct the document")
        content = of_documents(self._documents, body.within(contents.get(media, {})))
        schema = content.within(table_of(content.value).get("schema", {}))
        needed = table_of(body.value).get("required") is True
        return (
            media,
            schema,
            table_of(content.value),
            needed,
            text_of(table_of(body.value).get("description")),
        )

    def _old_body(
        self, table: Mapping[str, Any], node: Node, said: Sequence[Node]
    ) -> tuple[str, Node, dict[str, Any], bool, str]:
        consumes = [
            one for one in list_of(table.get("consumes", self._root.get("consumes"))) if isinstance(one, str)
        ]
        for one in said:
            if one.value.get("in") == "body":
                media = _preferred(dict.fromkeys(consumes or ["application/json"]))
                schema = one.within(one.value.get("schema", {}))
                needed = one.value.get("required") is True
                return media, schema, {}, needed, text_of(one.value.get("description"))
        fields = [one.value for one in said if one.value.get("in") == "formData"]
        if not fields:
            return "", node, {}, False, ""
        has_files = any(one.get("type") == "file" for one in fields)
        media = "application/x-www-form-urlencoded"
        if has_files or ("multipart/form-data" in consumes and media not in consumes):
            media = "multipart/form-data"
        needed = [one["name"] for one in fields if one.get("required") is True]
        schema = {
            "type": "object",
            "properties": {one["name"]: _old_schema(one) for one in fields},
            **({"required": needed} if needed else {}),
        }
        encoding = dict[str, Any]()
        for one in fields:
            style, explode = _COLLECTIONS.get(text_of(one.get("collectionFormat")), ("form", False))
            if one.get("type") == "array":
                encoding[one["name"]] = {"style": style, "explode": explode}
        return media, node.within(schema), {"encoding": encoding}, bool(needed), ""

    def _members(
        self, schema: Node, media: str, needed: bool, taken: Mapping[str, Any]
    ) -> dict[str, str] | None:
        """The members of a body as arguments, by argument; `None` if the body is one argument as a whole."""
        if not (_is_json(media) or _is_form(media)):
            return None
        found = list[str]()
        for count, one in enumerate(self._schemas.flat(schema)):
            table = one.value
            closed = {"properties", "type", "required", "allOf"}
            opens = table.get("additionalProperties") not in (None, False)
            several = any(
                key in table for key in ("oneOf", "anyOf", "not", "patternProperties", "enum", "const")
            )
            several = several or (table.get("nullable") is True or "if" in table or "discriminator" in table)
            if count > 50 or opens or several or table.get("type", "object") != "object":
                return None
            if not closed & table.keys():
                continue
            if not needed and list_of(table.get("required")):
                return None
            found += table_of(table.get("properties"))
        members = [*dict.fromkeys(found)]
        if not members or any(one in taken for one in members) or len(members) > 300:
            return None
        return {one: one for one in members}

    def _files(self, flat: Sequence[Node]) -> frozenset[str]:
        """The members of a form that are files."""
        found = set[str]()
        for one in flat:
            for name, value in table_of(one.value.get("properties")).items():
                part = table_of(of_documents(self._documents, one.within(value)).value)
                part = (
                    table_of(of_documents(self._documents, one.within(part.get("items", {}))).value) or part
                )
                if part.get("type") == "file" or part.get("format") == "binary" or "contentMediaType" in part:
                    found.add(name)
        return frozenset(found)

    # Servers, security, results

    def _servers(self, table: Mapping[str, Any], item: Node) -> tuple[str, ...]:
        if self._server:
            return (self._server.rstrip("/"),)
        if self._is_old:
            given = self._old_servers()
        else:
            places = (table, table_of(item.value), self._root)
            said = next((found for one in places if (found := list_of(one.get("servers")))), list[Any]())
            given = [url for one in said if (url := _server_url(table_of(one))) is not None]
        found = list[str]()
        for url in given or ["/"]:
            there = urljoin(self._base, url) if self._base else url
            if not is_web_address(there) or urlsplit(there).query or "@" in urlsplit(there).netloc:
                continue
            found.append(there.rstrip("/"))
        if not found:
            raise DocumentError(
                "the document names no server with an http or https address; name one with `server`"
            )
        return tuple(found)

    def _old_servers(self) -> list[str]:
        host, path = text_of(self._root.get("host")), text_of(self._root.get("basePath")) or "/"
        path = path if path.startswith("/") else f"/{path}"
        if not host:
            return [path]
        schemes = [one for one in list_of(self._root.get("schemes")) if one in ("http", "https")]
        here = urlsplit(self._base).scheme
        schemes = schemes or [here if here in ("http", "https") else "https"]
        return [f"{one}://{host}{path}" for one in sorted(schemes, reverse=True)]

    def _security_schemes(self) -> dict[str, Scheme]:
        parts = self._root if self._is_old else table_of(self._root.get("components"))
        named = table_of(parts.get("securityDefinitions" if self._is_old else "securitySchemes"))
        return {
            name: _scheme(name, table_of(of_documents(self._documents, self._start.within(one)).value))
            for name, one in named.items()
        }

    def _security(self, table: Mapping[str, Any]) -> tuple[tuple[str, ...], ...] | None:
        said = table.get("security", self._root.get("security"))
        if not isinstance(said, list):
            return None
        return tuple(tuple(table_of(one)) for one in list_of(cast("object", said)))

    def _accepts(self, table: Mapping[str, Any], node: Node) -> str:
        """The media types of the answers, JSON first."""
        found = dict[str, None]()
        if self._is_old:
            found |= dict.fromkeys(
                one
                for one in list_of(table.get("produces", self._root.get("produces")))
                if isinstance(one, str)
            )
        for answer in table_of(table.get("responses")).values():
            one = of_documents(self._documents, node.within(answer))
            found |= dict.fromkeys(table_of(table_of(one.value).get("content")))
        kinds = [one for one in found if _MEDIA.fullmatch(one)][:6]
        # Some APIs have versions in them, and answer in XML unless asked for JSON.
        kinds.sort(key=lambda one: not _is_json(one))
        return ", ".join([*kinds, "*/*;q=0.1"]) if kinds else "application/json, */*;q=0.8"


def _as_sent(place: str, name: str) -> str:
    return name.lower() if place == "header" else name


def _key(parameter: Node) -> tuple[str, str]:
    """The place and the name of a parameter; an empty name for one that no request can have."""
    table = table_of(parameter.value)
    name = text_of(table.get("name"))
    return text_of(table.get("in")), name if name.isprintable() else ""


FILE: Final = "A file: a path below the folder of files, or a data: URI."


def _file_schema(schema: JsonSchema) -> JsonSchema:
    said = text_of(schema.get("description"))
    text = f"{said} {FILE}".strip()
    if schema.get("type") == "array":
        return {"type": "array", "items": {"type": "string"}, "description": text}
    return {"type": "string", "description": text}


def _scheme(name: str, table: Mapping[str, Any]) -> Scheme:
    kind, how = table.get("type"), text_of(table.get("scheme")).lower()
    parameter = text_of(table.get("name"))
    if kind == "apiKey" and table.get("in") in ("query", "header", "cookie"):
        is_plain = _TOKEN.fullmatch(parameter) and parameter.lower() not in _HEADERS_OF_OTHERS - _OF_KEYS
        is_usable = is_plain or (parameter and table["in"] == "query")
        return Scheme(name, "apiKey" if is_usable else "other", table["in"], parameter)
    if kind == "basic" or (kind == "http" and how == "basic"):
        return Scheme(name, "basic")
    if kind in ("oauth2", "openIdConnect"):
        return Scheme(name, "token", parameter="Bearer")
    if kind == "http" and how in _TOKENS:
        return Scheme(name, "token", parameter="Bearer" if how == "bearer" else text_of(table.get("scheme")))
    return Scheme(name, "other")


def _server_url(table: Mapping[str, Any]) -> str | None:
    """The address of a server with the defaults of its variables; `None` if it has others."""
    url = text_of(table.get("url"))
    for name, said in table_of(table.get("variables")).items():
        default = table_of(said).get("default")
        if default is not None:
            url = url.replace("{" + name + "}", str(default))
    return None if "{" in url or not url else url


def _preferred(contents: Mapping[str, Any]) -> str:
    """The media type to send, of those that there are."""
    ranked = sorted(
        (one for one in contents if _MEDIA.fullmatch(one)),
        key=lambda one: (
            0 if _is_json(one) else 1 if _is_form(one) else 2,
            one.split(";")[0].strip() != "application/json",
            "merge-patch" in one,
            one.startswith("multipart/"),
        ),
    )
    found = next(iter(ranked), "")
    return "application/json" if found in ("*/*", "application/*") else found


def _is_json(media: str) -> bool:
    kind = media.split(";")[0].strip().lower()
    return kind.endswith(("/json", "+json")) or kind == "*/*"


def _is_form(media: str) -> bool:
    return media.split(";")[0].strip().lower() in ("application/x-www-form-urlencoded", "multipart/form-data")


def _old_schema(table: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a parameter of Swagger 2.0."""
    rest = ("name", "in", "required", "collectionFormat", "allowEmptyValue", "description")
    return {key: one for key, one in table.items() if key not in rest}


def _described(schema: JsonSchema, said: Mapping[str, Any], limit: int) -> JsonSchema:
    text = brief(text_of(said.get("description")), limit)
    return {**schema, "description": text} if text else schema


def _free(name: str, taken: Mapping[str, Any], place: str) -> str:
    """An argument for a name, which others may have taken."""
    found, number = name, 2
    if found in taken:
        found = f"{place}_{name}"
    while found in taken:
        found, number = f"{place}_{name}_{number}", number + 1
    return found


def _put_members(
    members: dict[str, str],
    made: JsonSchema,
    definitions: Mapping[str, JsonSchema],
    properties: dict[str, JsonSchema],
    required: list[str],
    *,
    needed: bool,
) -> None:
    """Make the members of a body arguments; what is read-only is none."""
    left, seen = [made], set[int]()
    found, wanted = dict[str, JsonSchema](), list[str]()
    while left:
        one = left.pop(0)
        if (reference := one.get("$ref")) is not None:
            one = definitions[cast("str", reference).removeprefix("#/$defs/")]
        if id(one) in seen:
            continue
        seen.add(id(one))
        for name, schema in one.get("properties", {}).items():
            found[name] = (
                {"allOf": [found[name], schema]} if name in found and found[name] != schema else schema
            )
        wanted += one.get("required", [])
        left += one.get("allOf", [])
    for name in [*members]:
        if name in found:
            properties[name] = found[name]
        else:
            del members[name]
    if needed:
        required += (one for one in wanted if one in members)


def _parts(encodings: Mapping[str, Any], flat: Sequence[Node]) -> dict[str, Written]:
    """The serialization of a form's members."""
    found = dict[str, Written]()
    for name in {name for one in flat for name in table_of(one.value.get("properties"))}:
        said = table_of(encodings.get(name))
        if {"style", "explode", "allowReserved"} & said.keys():
            style = said.get("style") if said.get("style") in _KNOWN_STYLES["query"] else "form"
            explode = said.get("explode", style == "form") is not False
            found[name] = Written(cast("str", style), explode, said.get("allowReserved") is True)
        elif _MEDIA.fullmatch(media := text_of(said.get("contentType")).split(",")[0].strip()):
            found[name] = Written(media=media)
    return found


# Names and texts


def names_of(said: Sequence[tuple[str, str, str]]) -> list[str]:
    """The names of tools for operations, each an id, a method and a path: unique, at most 64 characters."""
    wished = [_wished(*one) for one in said]
    counts = Counter(wished)
    names = list[str]()
    for (own, method, path), wish in zip(said, wished, strict=True):
        name = wish
        if counts[wish] > 1 or len(wish) > _NAME:
            plain = _legal(own) if own else f"{method}{_legal(path)}"
            name = plain if counts[wish] > 1 and plain != wish and len(plain) <= _NAME else wish
            if counts[name] > 1 or len(name) > _NAME:
                name = qualified(name, f"{method} {path}", _NAME)
        names.append(name)
    taken = Counter(names)
    return [
        name if taken[name] == 1 else qualified(name, f"{method} {path}", _NAME)
        for name, (_, method, path) in zip(names, said, strict=True)
    ]


def _wished(own: str, method: str, path: str) -> str:
    if not own:
        words = re.sub(r"\{([^{}]+)\}", r"by_\1", path)
        return _legal(f"{method}_{words}")
    # What FastAPI appends to the name of a function.
    plain = re.sub(r"\W", "_", path)
    generated = f"{plain}_{method}"
    if own.endswith(generated) and len(own) > len(generated):
        return _legal(own.removesuffix(generated))
    return _legal(own)


def _legal(text: str) -> str:
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", text)).strip("_") or "operation"


def _description(method: str, path: str, table: Mapping[str, Any]) -> str:
    """The text for a model: a first sentence of at most 80 characters, and more."""
    summary = brief(text_of(table.get("summary")), 2000)
    about = brief(text_of(table.get("description")), _DESCRIPTION)
    whole = summary or about
    if not whole:
        # A path that is long is cut.
        first, rest = brief(f"{method.upper()} {path}", _FIRST - 1), ""
    else:
        first, rest = _sentence(whole)
        rest = " ".join(filter(None, (rest, about if summary and about != summary else "")))
    parts = [first if first[-1:] in ".!?…" else f"{first}."]
    if rest:
        parts.append(brief(rest, _DESCRIPTION))
    if table.get("deprecated") is True:
        parts.append("Deprecated.")
    return "\n".join(parts)


def _sentence(text: str) -> tuple[str, str]:
    """The first sentence of a text, in 80 characters at most, and the rest."""
    end = re.search(r"[.!?](?=\s|$)", text)
    first = text[: end.end()] if end is not None else text
    if len(first) <= _FIRST - (end is None):
        return first, text[len(first) :].strip()
    return brief(text, _FIRST), text


def _hints(method: str) -> dict[str, Any]:
    if method in ("get", "head", "options"):
        return {"readOnlyHint": True, "openWorldHint": True}
    hints: dict[str, Any] = {"readOnlyHint": False, "openWorldHint": True}
    if method in ("put", "delete"):
        hints["idempotentHint"] = True
    if method in ("put", "delete", "patch"):
        hints["destructiveHint"] = True
    return hints
