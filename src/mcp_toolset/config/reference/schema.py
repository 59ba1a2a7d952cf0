"""`configuration_schema`: the JSON Schema of a configuration file, from the tables and models that read it.

Editors show its descriptions and complete its keys. The package has it as a file; see `published`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from mcp_toolset._index import marked, part
from mcp_toolset.config.entries import ServerEntry, ToolsetSection
from mcp_toolset.config.extensions import Settings, described, server_settings
from mcp_toolset.config.permissions import CallersPermissions, GeneralPermissions, SectionPermissions
from mcp_toolset.config.reference import details, meanings
from mcp_toolset.config.reference.meanings import Meaning
from mcp_toolset.config.sections import (
    CallersEntry,
    EgressEntry,
    HttpEntry,
    InputEntry,
    LogEntry,
    ReadyEntry,
)
from mcp_toolset.config.tables import Table, keys_of

__all__ = ["Part", "configuration_schema", "parts", "schema_text"]

_Json = dict[str, Any]
_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")
_TEXTS: Final[_Json] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_VALUES: Final[_Json] = {"type": "object", "additionalProperties": {"type": ["string", "number", "null"]}}


class Part(NamedTuple):
    """The keys of one part of a file.

    Attributes:
        heading: What the part is called on the page.
        schema: Its JSON Schema; its properties have descriptions, examples and defaults.
        meanings: What its keys mean.
    """

    heading: str
    schema: _Json
    meanings: Mapping[str, Meaning]


def configuration_schema() -> _Json:
    """The JSON Schema (draft 2020-12) of a whole file."""
    made = parts()
    servers: _Json = {"type": "object", "additionalProperties": {"$ref": "#/$defs/server"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of mcp-toolset",
        "description": "The servers of an MCP client, with the options of mcp-toolset beside them.",
        "type": "object",
        "properties": {
            "mcpServers": servers,
            "servers": servers,
            "mcp": {"type": "object", "properties": {"servers": servers}},
            "inputs": {"type": "array", "items": {"$ref": "#/$defs/input"}},
            "toolset": {"$ref": "#/$defs/toolset"},
        },
        "$defs": {name: part.schema for name, part in made.items()},
    }


def schema_text() -> str:
    """The JSON Schema as it is published."""
    return json.dumps(configuration_schema(), indent=1, ensure_ascii=False) + "\n"


def parts() -> dict[str, Part]:
    """The parts of a file by the names of their definitions."""
    kinds, told = _logins()
    return {
        "server": Part("A server", _server(), server_meanings()),
        "toolset": Part("The `toolset` section", _toolset(), toolset_meanings()),
        "input": Part("An entry of `inputs`", _of_model(InputEntry, details.INPUT), details.INPUT),
        **{
            f"login_{name}": Part(f"`auth` of a server, `{name}`", _login(name, kind, told), told)
            for name, kind in kinds.items()
        },
        "server_permissions": Part(
            "`permissions` of a server",
            _of_model(SectionPermissions, details.PERMISSIONS),
            details.PERMISSIONS,
        ),
        "permissions": Part("`permissions` of `toolset`", _permissions(), details.PERMISSIONS),
        "callers": Part(
            "The callers of a `for`",
            _of_model(CallersEntry, details.CALLERS),
            details.CALLERS,
        ),
        **{
            name: _part(f"`{name}`", table)
            for kind in server_settings()
            for name, table in kind.parts.items()
        },
        **{name: part for key, kind in described() for name, part in _of_extension(key, kind)},
        "egress": Part("`egress`", _of_model(EgressEntry, details.EGRESS), details.EGRESS),
        "http": Part("`http`", _of_model(HttpEntry, details.HTTP), details.HTTP),
        "ready": Part("`ready`", _of_model(ReadyEntry, details.READY), details.READY),
        "log": Part("`log`", _of_model(LogEntry, details.LOG), details.LOG),
    }


def server_meanings() -> Mapping[str, Meaning]:
    """What the keys of a server mean, those of extensions included."""
    own = {key: said for kind in server_settings() for key, said in _meant(kind).items()}
    return {**meanings.SERVER, **own}


def toolset_meanings() -> Mapping[str, Meaning]:
    """What the keys of the section `toolset` mean, those of extensions included."""
    return {**meanings.TOOLSET, **{key: kind.says for key, kind in described()}}


def _server() -> _Json:
    schema = _of_table(ServerEntry, meanings.SERVER)
    for kind in server_settings():
        schema["properties"] |= _of_table(kind, _meant(kind))["properties"]
        for name in kind.parts:
            _say(schema, name, **_ref(name))
    _say(schema, "permissions", **_ref("server_permissions"))
    _say(schema, "prefix", anyOf=[{"type": ["string", "null"]}, {"const": False}])
    _say(schema, "env", **_VALUES)
    _say(schema, "headers", **_VALUES)
    return schema


def _toolset() -> _Json:
    schema = _of_table(ToolsetSection, meanings.TOOLSET)
    _say(schema, "permissions", **_ref("permissions"))
    _say(schema, "ready", **_ref("ready"))
    _say(schema, "http", **_ref("http"))
    for name, kind in described():
        known = keys_of(kind)
        bare = not (kind.words or kind.below_pattern or kind.object_only)
        bare = bare and not any(one.required for one in known.values())
        forms: list[_Json] = [{"type": "boolean"}] if bare else []
        if known:
            if kind.words:
                forms.append({"type": "string"})
            if kind.short:
                forms.append(GenerateJsonSchema().generate(cast("Any", known[kind.short].schema)))
            named: _Json = {"type": "object", "additionalProperties": _ref(name)}
            forms.append(named if kind.below_pattern else _ref(name))
        form = forms[0] if len(forms) == 1 else {"anyOf": forms}
        default = {"default": name in marked("served")} if forms[0] == {"type": "boolean"} else {}
        schema["properties"][name] = form | default | _told(kind.says)
    _say(schema, "egress", **_ref("egress"))
    return schema


def _logins() -> tuple[Mapping[str, type[BaseModel]], Mapping[str, Meaning]]:
    """The kinds of login to a server, and what their keys mean."""
    access = part("access")
    return ({}, {}) if access is None else access.logins()


def _login(name: str, kind: type[BaseModel], meant: Mapping[str, Meaning]) -> _Json:
    schema = _of_model(kind, meant)
    schema["properties"]["type"] |= {"const": name, "examples": [name]}
    if name != "oauth":
        del schema["properties"]["type"]["default"]
        schema["required"] = ["type", *schema.get("required", ())]
    return schema


def _permissions() -> _Json:
    schema = _of_model(GeneralPermissions, details.PERMISSIONS)
    some = _of_model(CallersPermissions, {**details.PERMISSIONS, **details.CALLERS})
    _say(schema, "for", type="array", items=some)
    return schema


def _of_extension(name: str, kind: type[Settings]) -> Iterator[tuple[str, Part]]:
    """What a file can say of an extension, or what it can say for each pattern, and the tables below."""
    if not keys_of(kind):
        return
    if kind.below_pattern is None:
        yield name, _part(f"`{name}` of `toolset`", kind)
        yield from ((below, _part(heading, table)) for below, (heading, table) in kind.parts.items())
        return
    part = _part(f"A pattern of `{name}`", kind.below_pattern)
    if "for" in (known := part.schema["properties"]):
        own = {key: said for key, said in known.items() if key != "for"}
        who = {key: {**_TEXTS, **_told(meaning)} for key, meaning in details.CALLERS.items()}
        some = {"type": "object", "properties": {**own, **who}, "additionalProperties": False}
        _say(part.schema, "for", type="array", items=some)
    yield name, part


def _part(heading: str, table: type[Table]) -> Part:
    return Part(heading, _of_table(table, _meant(table)), _meant(table))


def _of_table(table: type[Table], meant: Mapping[str, Meaning]) -> _Json:
    """The schema of a table, with the defaults of its fields."""
    named = {one.alias or name: (name, one.schema) for name, one in keys_of(table).items()}
    core: Any = {
        "type": "typed-dict",
        "fields": {
            key: {"type": "typed-dict-field", "schema": schema, "required": False}
            for key, (_, schema) in named.items()
        },
    }
    made = GenerateJsonSchema().generate(core, mode="validation")["properties"]
    defaults = {one.name: one.default for one in fields(cast("Any", table))}
    said = {name: one.published for name, one in keys_of(table).items()}
    properties = {
        key: dict(said[name] or _plain(made[key])) | _default(defaults[name]) | _told(meant[key])
        for key, (name, _) in named.items()
    }
    closed: _Json = {"additionalProperties": False} if table.unknown == "forbid" else {}
    needed = [one.alias or name for name, one in keys_of(table).items() if one.required]
    required: _Json = {"required": needed} if needed else {}
    return {"type": "object", "properties": properties, **required, **closed}


def _meant(table: type[Table]) -> dict[str, Meaning]:
    """What the keys of a table say of themselves."""
    return {one.alias or name: one.meaning for name, one in keys_of(table).items() if one.meaning}


def _of_model(model: type[BaseModel], meant: Mapping[str, Meaning]) -> _Json:
    """The schema of a model; a field that may be null may be left out."""
    made = model.model_json_schema()
    properties = {
        key: _plain(schema) | _default(schema.get("default")) | _told(meant[key])
        for key, schema in made["properties"].items()
    }
    required: _Json = {"required": made["required"]} if "required" in made else {}
    closed: _Json = {} if model.model_config.get("extra") == "ignore" else {"additionalProperties": False}
    return {"type": "object", "properties": properties, **required, **closed}


def _plain(schema: _Json) -> _Json:
    """A schema without titles, remedies, and the null that stands for an absent key."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
    choices = [one for one in kept.pop("anyOf", ()) if one != {"type": "null"}]
    return kept | (choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {})


def _default(value: object) -> _Json:
    if value is None or value is MISSING or value in ([], {}):
        return {}
    return {"default": int(value) if isinstance(value, float) and value.is_integer() else value}


def _told(meaning: Meaning) -> _Json:
    return {"description": _LINK.sub(r"\1", meaning.text), "examples": [meaning.example]}


def _say(schema: _Json, key: str, **kind: Any) -> None:
    """Replace what one property has to be, and keep what is told about it."""
    kept = ("description", "examples", "default")
    told = schema["properties"][key]
    schema["properties"][key] = {**kind, **{name: told[name] for name in kept if name in told}}


def _ref(name: str) -> _Json:
    return {"$ref": f"#/$defs/{name}"}
