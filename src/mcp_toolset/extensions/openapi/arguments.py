"""`OperationArguments`: the arguments of one operation, and where each of them goes in the request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.extensions.openapi.reading import DocumentError, Documents, Node, list_of, table_of, text_of
from mcp_toolset.extensions.openapi.schemas import JsonSchema, Schemas, brief, is_plain_object

Place = Literal["path", "query", "header", "cookie", "body"]

MEDIA: Final = re.compile(r"[\w.+*-]+/[\w.+*-]+(?:; ?[\w-]+=\"?[\w.:/-]+\"?)*", re.ASCII)
TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
HEADERS_OF_OTHERS: Final = frozenset(
    (
        "accept",
        "accept-encoding",
        "content-type",
        "authorization",
        "host",
        "cookie",
        "content-length",
        "transfer-encoding",
    )
) | {"connection", "te", "trailer", "upgrade", "expect", "keep-alive", "proxy-authorization", "forwarded"}
"""Header parameters that count for nothing (OpenAPI, Parameter Object), or that would change the request."""

_PARAMETER: Final = 300  # characters of a description
_MEMBERS: Final = 300  # members of a body that are arguments themselves
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
"""How Swagger 2.0 writes lists, as style and `explode`."""

_NO_SCHEMA: Final = ("name", "in", "required", "collectionFormat", "allowEmptyValue", "description")
"""Members of a parameter of Swagger 2.0 that are no keywords of its schema."""

_TEMPLATE: Final = re.compile(r"\{([^{}/]+)\}")
_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_FILE: Final = "A file: a path below the folder of files, or a data: URI."


@dataclass(frozen=True, slots=True)
class Written:
    """The form in which a value is written."""

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
        members: The members that are arguments.
        parts: How single members of a form are written.
        files: The members of a form that are files, or "" for the body itself.
    """

    media: str
    argument: str = ""
    members: tuple[str, ...] = ()
    parts: Mapping[str, Written] = field(default_factory=dict[str, Written])
    files: frozenset[str] = frozenset()
    required: bool = False


class _BodyContent(NamedTuple):
    """A body as the document describes it."""

    media: str
    schema: Node
    encodings: Mapping[str, Any]
    required: bool
    about: str


class OperationArguments:
    """The arguments of one operation."""

    def __init__(self, documents: Documents, schemas: Schemas, fixed: frozenset[tuple[str, str]]) -> None:
        """Begin with none; a parameter of `fixed`, places and names, is configured and is none."""
        self._documents, self._schemas, self._fixed = documents, schemas, fixed
        self._properties = dict[str, JsonSchema]()
        self._required = list[str]()
        self.parameters = list[Parameter]()
        self.body: Body | None = None

    def read(self, path: str, item: Node, operation: Node) -> None:
        """Take those of an operation, and those that the item of its path has for all operations.

        Raises:
            DocumentError: the operation cannot be called.
        """
        said = [*self._said(item, operation)]
        self._take_parameters(path, said)
        is_old = self._documents.is_old
        content = self._old_content(operation, said) if is_old else self._content(operation)
        if content is not None:
            self._take_body(content)

    @property
    def schema(self) -> JsonSchema:
        """The schema of all arguments together."""
        schema: JsonSchema = {"type": "object", "properties": self._properties}
        if self._required:
            schema["required"] = [*dict.fromkeys(self._required)]
        return self._schemas.bounded({**schema, "additionalProperties": False})

    # Parameters

    def _said(self, item: Node, operation: Node) -> Iterator[Node]:
        """The parameters of an operation, and those of its path that it does not replace."""
        above, own = (
            [self._documents.end(one.within(each)) for each in list_of(table_of(one.value).get("parameters"))]
            for one in (item, operation)
        )
        keys = {_key(one) for one in own}
        kept = (one for one in above if _key(one) not in keys)
        yield from (one for one in (*kept, *own) if all(_key(one)))

    def _take_parameters(self, path: str, said: Sequence[Node]) -> None:
        templates = {*_TEMPLATE.findall(path)}
        # Those of the path keep their names.
        for one in sorted(said, key=lambda one: one.value.get("in") != "path"):
            place, name = one.value.get("in"), one.value["name"]
            if place not in _STYLES or (place == "path" and name not in templates):
                continue
            sent = as_sent(place, name)
            if (place == "header" and sent in HEADERS_OF_OTHERS) or (place, sent) in self._fixed:
                continue
            if place in ("header", "cookie") and not TOKEN.fullmatch(name):
                raise DocumentError(
                    f"the {place} {name[:80]!r} is no name of a {place}; correct the document"
                )
            templates -= {name} if place == "path" else set()
            written, schema = self._written(one)
            is_needed = place == "path" or one.value.get("required") is True
            self._take(name, place, written, _described(schema, one.value), is_needed=is_needed)
        # A document that forgets a parameter of its path is common.
        for name in sorted(templates):
            written = Written("simple", explode=False)
            self._take(name, "path", written, {"type": "string"}, is_needed=True)

    def _take(
        self, name: str, place: Place, written: Written, schema: JsonSchema, *, is_needed: bool
    ) -> None:
        argument = self._put(name, place, schema, is_needed=is_needed)
        self.parameters.append(Parameter(argument, name, place, written))

    def _put(self, name: str, place: str, schema: JsonSchema, *, is_needed: bool) -> str:
        """Add an argument under a name, which others may have taken; the name that it gets."""
        found, number = name, 2
        if found in self._properties:
            found = f"{place}_{name}"
        while found in self._properties:
            found, number = f"{place}_{name}_{number}", number + 1
        self._properties[found] = schema
        if is_needed:
            self._required.append(found)
        return found

    def _written(self, node: Node) -> tuple[Written, JsonSchema]:
        table, place = node.value, node.value["in"]
        if self._documents.is_old:
            style, explode = _COLLECTIONS.get(text_of(table.get("collectionFormat")), ("form", False))
            style = style if place == "query" else _STYLES[place]
            return Written(style, explode), self._schemas.of(node.within(_old_schema(table)))
        for media, said in table_of(table.get("content")).items():
            inner = self._documents.end(node.within(said))
            schema = self._schemas.of(inner.within(table_of(inner.value).get("schema", {})))
            return Written(media=media), schema
        style = text_of(table.get("style"))
        style = style if style in _KNOWN_STYLES[place] else _STYLES[place]
        explode = table.get("explode")
        explode = explode if isinstance(explode, bool) else style == "form"
        reserved = table.get("allowReserved") is True
        return Written(style, explode, reserved), self._schemas.of(node.within(table.get("schema", {})))

    # Bodies

    def _content(self, operation: Node) -> _BodyContent | None:
        if "requestBody" not in operation.value:
            return None
        body = self._documents.end(operation.within(operation.value["requestBody"]))
        said = table_of(body.value)
        contents = table_of(said.get("content"))
        media = _preferred(contents)
        if not media:
            if contents:
                raise DocumentError("its body has no media type that can be sent; correct the document")
            return None
        content = self._documents.end(body.within(contents.get(media, {})))
        table = table_of(content.value)
        schema = content.within(table.get("schema", {}))
        encodings, about = table_of(table.get("encoding")), text_of(said.get("description"))
        return _BodyContent(media, schema, encodings, said.get("required") is True, about)

    def _old_content(self, operation: Node, said: Sequence[Node]) -> _BodyContent | None:
        root = table_of(self._documents.start.value)
        named = list_of(operation.value.get("consumes", root.get("consumes")))
        consumes = [one for one in named if isinstance(one, str)]
        for one in said:
            if one.value.get("in") == "body":
                media = _preferred(dict.fromkeys(consumes or ["application/json"]))
                schema = one.within(one.value.get("schema", {}))
                needed, about = one.value.get("required") is True, text_of(one.value.get("description"))
                return _BodyContent(media, schema, {}, needed, about) if media else None
        fields = [one.value for one in said if one.value.get("in") == "formData"]
        if not fields:
            return None
        has_files = any(one.get("type") == "file" for one in fields)
        media = _MULTIPART if has_files or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
        needed = [one["name"] for one in fields if one.get("required") is True]
        made: JsonSchema = {"type": "object"}
        made["properties"] = {one["name"]: _old_schema(one) for one in fields}
        if needed:
            made["required"] = needed
        encodings = dict[str, Any]()
        for one in fields:
            style, explode = _COLLECTIONS.get(text_of(one.get("collectionFormat")), ("form", False))
            if one.get("type") == "array":
                encodings[one["name"]] = {"style": style, "explode": explode}
        return _BodyContent(media, operation.within(made), encodings, bool(needed), "")

    def _take_body(self, content: _BodyContent) -> None:
        media = content.media
        flat = [*self._schemas.flat(content.schema)]
        made = self._schemas.of(content.schema)
        if (is_json(media) or is_form(media)) and self._is_spread(flat, made, is_needed=content.required):
            properties, required = self._schemas.members(made)
            self._properties |= properties
            self._required += required if content.required else ()
            self.body = Body(media, members=tuple(properties), required=content.required)
        else:
            schema = _described(made, {"description": content.about})
            argument = self._put("body", "request", schema, is_needed=content.required)
            self.body = Body(media, argument, required=content.required)
        if is_form(media):
            files = self._files(flat)
            self.body = replace(self.body, parts=_parts(content.encodings, flat), files=files)
            for name in files & {*self.body.members}:
                self._properties[name] = _file_schema(self._properties[name])
        elif not is_json(media) and not media.startswith("text/"):
            self.body = replace(self.body, files=frozenset([""]))
            self._properties[self.body.argument] = {"type": "string", "description": _FILE}

    def _is_spread(self, flat: Sequence[Node], made: JsonSchema, *, is_needed: bool) -> bool:
        """True if the members of a body are arguments themselves."""
        if not is_plain_object(flat):
            return False
        if not is_needed and any(list_of(one.value.get("required")) for one in flat):
            return False
        members, _ = self._schemas.members(made)
        return len(members) <= _MEMBERS and not members.keys() & self._properties.keys()

    def _files(self, flat: Sequence[Node]) -> frozenset[str]:
        """The members of a form that are files."""
        found = set[str]()
        for one in flat:
            for name, value in table_of(one.value.get("properties")).items():
                part = self._documents.end(one.within(value))
                items = self._documents.end(part.within(table_of(part.value).get("items", {})))
                table = table_of(items.value) or table_of(part.value)
                is_file = table.get("type") == "file" or table.get("format") == "binary"
                if is_file or "contentMediaType" in table:
                    found.add(name)
        return frozenset(found)


def as_sent(place: str, name: str) -> str:
    """A name in the form in which servers compare it: `X_Key` as `x-key`, `Key[]` in a query as `key`."""
    if place == "header":
        return name.lower().replace("_", "-")
    return name.lstrip("[").replace("]", "[").partition("[")[0].casefold()


def _key(parameter: Node) -> tuple[str, str]:
    """The place and the name of a parameter; an empty name for one that no request can have."""
    table = table_of(parameter.value)
    name = text_of(table.get("name"))
    return text_of(table.get("in")), name if name.isprintable() else ""


def _old_schema(table: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a parameter of Swagger 2.0."""
    return {key: one for key, one in table.items() if key not in _NO_SCHEMA}


def _described(schema: JsonSchema, said: Mapping[str, Any]) -> JsonSchema:
    text = brief(text_of(said.get("description")), _PARAMETER)
    return {**schema, "description": text} if text else schema


def _file_schema(schema: JsonSchema) -> JsonSchema:
    text = f"{text_of(schema.get('description'))} {_FILE}".strip()
    if schema.get("type") == "array":
        return {"type": "array", "items": {"type": "string"}, "description": text}
    return {"type": "string", "description": text}


def _parts(encodings: Mapping[str, Any], flat: Sequence[Node]) -> dict[str, Written]:
    """The forms in which the members of a form are written."""
    found = dict[str, Written]()
    for name in {name for one in flat for name in table_of(one.value.get("properties"))}:
        said = table_of(encodings.get(name))
        if {"style", "explode", "allowReserved"} & said.keys():
            style = said.get("style") if said.get("style") in _KNOWN_STYLES["query"] else "form"
            explode = said.get("explode", style == "form") is not False
            found[name] = Written(cast("str", style), explode, said.get("allowReserved") is True)
        elif MEDIA.fullmatch(media := text_of(said.get("contentType")).split(",")[0].strip()):
            found[name] = Written(media=media)
    return found


# Media types


def _preferred(contents: Mapping[str, Any]) -> str:
    """The media type to send, of those that there are."""
    ranked = sorted(
        (one for one in contents if MEDIA.fullmatch(one)),
        key=lambda one: (
            0 if is_json(one) else 1 if is_form(one) else 2,
            one.split(";")[0].strip() != "application/json",
            "merge-patch" in one,
            one.startswith("multipart/"),
        ),
    )
    found = next(iter(ranked), "")
    return "application/json" if found in ("*/*", "application/*") else found


def is_json(media: str) -> bool:
    kind = media.split(";")[0].strip().lower()
    return kind.endswith(("/json", "+json")) or kind == "*/*"


def is_form(media: str) -> bool:
    return media.split(";")[0].strip().lower() in (_FORM, _MULTIPART)
