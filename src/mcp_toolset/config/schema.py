"""`configuration_schema`: the JSON Schema of a configuration file, from the tables and models that read it.

Editors show its descriptions and complete its keys. The package contains it as a file (`published_schema`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from mcp_toolset._index import marked, others, part
from mcp_toolset.config import sections
from mcp_toolset.config.extensions import Settings, described, server_settings
from mcp_toolset.config.tables import Meaning, ServerEntry, Table, ToolsetSection, keys_of

FILE: Final = Path(__file__).with_name("mcp-toolset.schema.json")


def published_schema() -> str:
    """The schema from the file of the package; with extensions of other distributions, a new one."""
    if others():
        return schema_text()
    return FILE.read_text(encoding="utf-8")


_DEFAULT_OF_SERVERS: Final = "The default for every server; see the same key of a server."
_NAMED_TOOLS: Final = "Exact names of tools, as another client writes them."

SERVER: Final[Mapping[str, Meaning]] = {
    "command": Meaning("The program to start.", "uvx"),
    "args": Meaning("The program's arguments.", ["mcp-server-git", "-r", "."]),
    "env": Meaning(
        "Environment variables for the program. It inherits only a safe part of the bridge's variables.",
        {"LOG_LEVEL": "debug"},
    ),
    "envFile": Meaning("A file of `NAME=value` lines. A variable in `env` replaces one of the file.", ".env"),
    "cwd": Meaning("The folder in which the program starts.", "${workspaceFolder}"),
    "url": Meaning("The address of a server that runs elsewhere.", "https://host/mcp"),
    "serverUrl": Meaning("`url`, as Cursor and Windsurf write it.", "https://host/mcp"),
    "httpUrl": Meaning("`url`, as Gemini CLI writes it.", "https://host/mcp"),
    "type": Meaning(
        "The transport to the server: `stdio`, `http` or `sse`. If left out: `sse` for a URL whose path "
        "ends in `/sse`, else `http` or `stdio`.",
        "http",
    ),
    "transport": Meaning("`type`, as other clients write it.", "sse"),
    "headers": Meaning("Headers of every request to the server.", {"Authorization": "Bearer ${TOKEN}"}),
    "disabled": Meaning("Whether the server is left out.", True),
    "enabled": Meaning("The opposite of `disabled`, as other clients write it.", False),
    "deferred": Meaning(
        "Whether a model finds the tools by [search](search.md) instead of in the list.", True
    ),
    "prefix": Meaning(
        "What the tools' names begin with; `null`: the server's name; `false`: no prefix.", "gh"
    ),
    "names": Meaning(
        "Public names of single tools, by the server's names for them.", {"search": "find_issues"}
    ),
    "include": Meaning("Patterns of the tools to take; without the key, every tool.", ["read_*"]),
    "exclude": Meaning("Patterns of the tools to leave out, also of those in `include`.", ["delete_*"]),
    "includeTools": Meaning(f"Tools to take. {_NAMED_TOOLS}", ["read_file"]),
    "excludeTools": Meaning(f"Tools to leave out. {_NAMED_TOOLS}", ["delete_file"]),
    "disabledTools": Meaning(f"Tools to leave out. {_NAMED_TOOLS}", ["delete_file"]),
    "enabled_tools": Meaning(f"Tools to take. {_NAMED_TOOLS}", ["read_file"]),
    "disabled_tools": Meaning(f"Tools to leave out. {_NAMED_TOOLS}", ["delete_file"]),
    "tools": Meaning(f'Tools to take; `"*"` is every tool. {_NAMED_TOOLS}', ["*"]),
    "timeout": Meaning(
        "Seconds for one call, 60 if left out. A number from 10,000 on means milliseconds.", 20
    ),
    "start_timeout": Meaning("Seconds for connecting and listing, 30 if left out.", 60),
    "start": Meaning(
        "[When the server is started](starting.md#when-a-server-is-started): by its first call (`lazy`), "
        "with "
        "the bridge (`background`), or with the bridge while lists wait for it (`eager`).",
        "lazy",
    ),
    "task_timeout": Meaning(
        "Seconds that a client which knows no [tasks](tasks.md) waits for a tool that runs only as a task. "
        "Left out: 3600. With 0 such a call is refused if the client speaks 2026-07-28.",
        600,
    ),
    "idle_timeout": Meaning(
        "Seconds without a call after which the server is stopped until the next call. Left out: 300 with "
        "`lazy`, else it is never stopped.",
        600,
    ),
    "pins": Meaning(
        "What happens to [changed definitions](pins.md); if left out, it depends on the change.", "quarantine"
    ),
    "new_tools": Meaning("What happens to new tools of a [pinned](pins.md) server.", "quarantine"),
    "hidden_text": Meaning("What happens to invisible characters in [definitions](pins.md).", "refuse"),
    "arguments": Meaning(
        "What happens to [arguments that do not fit the schema](typed-calls.md#repair-arguments): `lenient` "
        "repairs them where their meaning is clear.",
        "strict",
    ),
    "sessions": Meaning("Which callers [share a session](sessions.md) with the server.", "client"),
    "declare": Meaning(
        "The client capabilities that the bridge declares to the server, so that the server lists all "
        "its tools.",
        ["sampling"],
    ),
    "protocol": Meaning(
        "The [era](sessions.md#two-eras-of-the-protocol) of the protocol that the bridge speaks to the "
        "server.",
        "legacy",
    ),
    "eras": Meaning(
        "The [era](sessions.md#two-eras-of-the-protocol) that single tools need, by the server's names for "
        "them.",
        {"ask": "legacy"},
    ),
    "permissions": Meaning(
        "Which tools of the server exist for a caller, and which need an [approval](policies.md).",
        {"deny": ["delete_*"]},
    ),
    "unlisted": Meaning(
        "Whether calls of tools and prompts that the server does not list are "
        "[passed on](adopting.md#one-server-unnoticed); for the only server of a file.",
        "pass",
    ),
}

TOOLSET: Final[Mapping[str, Meaning]] = {
    "name": Meaning("The name of the bridge, as clients see it.", "tools"),
    "deferred": Meaning(_DEFAULT_OF_SERVERS, True),
    "timeout": Meaning(_DEFAULT_OF_SERVERS, 20),
    "start_timeout": Meaning(_DEFAULT_OF_SERVERS, 60),
    "start": Meaning(_DEFAULT_OF_SERVERS, "lazy"),
    "idle_timeout": Meaning(_DEFAULT_OF_SERVERS, 600),
    "client_prefix": Meaning(
        "What the client puts before every tool name; long names are shortened accordingly.", "mcp__tools__"
    ),
    "list_timeout": Meaning(
        "Seconds that the first list waits for [servers that start slowly](starting.md); 5 if left out.", 10
    ),
    "pins": Meaning(_DEFAULT_OF_SERVERS, "warn"),
    "new_tools": Meaning(_DEFAULT_OF_SERVERS, "accept"),
    "hidden_text": Meaning(_DEFAULT_OF_SERVERS, "flag"),
    "arguments": Meaning(_DEFAULT_OF_SERVERS, "strict"),
    "lock": Meaning(
        "The lock file with the [pins](pins.md); if left out, `mcp.lock.json` beside `mcp.json`.", "pins.json"
    ),
    "permissions": Meaning(
        "Which tools exist for which caller, and which need an [approval](policies.md).",
        {"allow": ["readOnly:*"], "ask": ["destructive:*"]},
    ),
    "ready": Meaning(
        "What must work for [`/ready`](starting.md#monitor-over-http) to say so; if left out, nothing.",
        {"servers": ["github"]},
    ),
    "http": Meaning(
        "[Limits on clients over HTTP](http.md#limits), and the proxies in front of the server.",
        {"trusted_proxies": ["10.0.0.0/8"]},
    ),
    "egress": Meaning(
        "Where mounted servers may [send the bridge](upstream-login.md#where-a-server-can-send-the-bridge), "
        "beside public addresses.",
        {"allow": ["login.corp", "10.0.0.0/8"]},
    ),
    "log": Meaning(
        "The [log](observing.md#logs) of each process that serves the file: `false` for none; an object has "
        "its level and folder.",
        {"level": "debug"},
    ),
}


_Json = dict[str, Any]
_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")
_TEXTS: Final[_Json] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_VALUES: Final[_Json] = {"type": "object", "additionalProperties": {"type": ["string", "number", "null"]}}


class FilePart(NamedTuple):
    """The keys of one part of a file."""

    heading: str  # the heading of the part on the page
    schema: _Json  # its JSON Schema; its properties have descriptions, examples and defaults
    meanings: Mapping[str, Meaning]  # the meanings of its keys


def configuration_schema() -> _Json:
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


def parts() -> dict[str, FilePart]:
    """The parts of a configuration file, by the names of their definitions in the schema."""
    access = part("access")
    kinds: Mapping[str, type[Table]] = {} if access is None else access.logins()
    return {
        "server": FilePart("A server", _server(), server_meanings()),
        "toolset": FilePart("The `toolset` section", _toolset(), toolset_meanings()),
        "input": _part("An entry of `inputs`", sections.InputEntry),
        **{
            f"login_{name}": FilePart(f"`auth` of a server, `{name}`", _login(name, kind), _meanings_of(kind))
            for name, kind in kinds.items()
        },
        "server_permissions": _part("`permissions` of a server", sections.SectionPermissions),
        "permissions": FilePart(
            "`permissions` of `toolset`", _permissions(), _meanings_of(sections.GeneralPermissions)
        ),
        "callers": _part("The callers of a `for`", sections.CallersEntry),
        **{
            name: _part(f"`{name}`", table)
            for kind in server_settings()
            for name, table in kind.parts.items()
        },
        **{name: part for key, kind in described() for name, part in _of_extension(key, kind)},
        "egress": _part("`egress`", sections.EgressEntry),
        "http": _part("`http`", sections.HttpEntry),
        "ready": _part("`ready`", sections.ReadyEntry),
        "log": _part("`log`", sections.LogEntry),
    }


def server_meanings() -> Mapping[str, Meaning]:
    """The meanings of the keys of a server, those of extensions included."""
    of_extensions = {key: one for kind in server_settings() for key, one in _meanings_of(kind).items()}
    return {**SERVER, **of_extensions}


def toolset_meanings() -> Mapping[str, Meaning]:
    """The meanings of the keys of the section `toolset`, those of extensions included."""
    return {**TOOLSET, **{key: kind.says for key, kind in described()}}


def _server() -> _Json:
    schema = _schema_of(ServerEntry, SERVER)
    for kind in server_settings():
        schema["properties"] |= _schema_of(kind, _meanings_of(kind))["properties"]
        known = keys_of(kind)
        for name in kind.parts:
            if known[name].published is None:
                _set_type(schema, name, **_ref(name))
    _set_type(schema, "permissions", **_ref("server_permissions"))
    _set_type(schema, "prefix", anyOf=[{"type": ["string", "null"]}, {"const": False}])
    _set_type(schema, "env", **_VALUES)
    _set_type(schema, "headers", **_VALUES)
    return schema


def _toolset() -> _Json:
    """The section `toolset`, with a key for each extension: a boolean, a text, an object or several."""
    schema = _schema_of(ToolsetSection, TOOLSET)
    _set_type(schema, "permissions", **_ref("permissions"))
    _set_type(schema, "ready", **_ref("ready"))
    _set_type(schema, "http", **_ref("http"))
    for name, kind in described():
        known = keys_of(kind)
        needs_settings = kind.words or kind.below_pattern or kind.object_only
        needs_settings = needs_settings or any(one.required for one in known.values())
        forms: list[_Json] = [] if needs_settings else [{"type": "boolean"}]
        if known:
            if kind.words:
                forms.append({"type": "string"})
            if kind.short:
                forms.append(_generated(cast("Any", known[kind.short].schema)))
            named: _Json = {"type": "object", "additionalProperties": _ref(name)}
            forms.append(named if kind.below_pattern else _ref(name))
        form = forms[0] if len(forms) == 1 else {"anyOf": forms}
        default = {"default": name in marked("served")} if forms[0] == {"type": "boolean"} else {}
        schema["properties"][name] = form | default | _description(kind.says)
    _set_type(schema, "egress", **_ref("egress"))
    return schema


def _login(name: str, kind: type[Table]) -> _Json:
    schema = _schema_of(kind, _meanings_of(kind))
    schema["properties"]["type"] |= {"const": name, "examples": [name]}
    if name != "oauth":
        del schema["properties"]["type"]["default"]
        schema["required"] = ["type", *schema.get("required", ())]
    return schema


def _permissions() -> _Json:
    schema = _schema_of(sections.GeneralPermissions, _meanings_of(sections.GeneralPermissions))
    some = _schema_of(sections.CallersPermissions, _meanings_of(sections.CallersPermissions))
    _set_type(schema, "for", type="array", items=some)
    return schema


def _of_extension(name: str, kind: type[Settings]) -> Iterator[tuple[str, FilePart]]:
    """The parts of an extension: its table, and those within; or the table for each of its patterns."""
    if not keys_of(kind):
        return
    if kind.below_pattern is None:
        yield name, _part(f"`{name}` of `toolset`", kind)
        yield from ((below, _part(heading, table)) for below, (heading, table) in kind.parts.items())
        return
    part = _part(f"A pattern of `{name}`", kind.below_pattern)
    if "for" in (known := part.schema["properties"]):
        own = {key: schema for key, schema in known.items() if key != "for"}
        who = {
            key: {**_TEXTS, **_description(meaning)}
            for key, meaning in _meanings_of(sections.CallersEntry).items()
        }
        some = {"type": "object", "properties": {**own, **who}, "additionalProperties": False}
        _set_type(part.schema, "for", type="array", items=some)
    yield name, part


def _part(heading: str, table: type[Table]) -> FilePart:
    return FilePart(heading, _schema_of(table, _meanings_of(table)), _meanings_of(table))


def _generated(core: Any) -> _Json:
    """The JSON Schema of a schema of pydantic-core."""
    from pydantic.json_schema import GenerateJsonSchema

    return GenerateJsonSchema().generate(core, mode="validation")


def _schema_of(table: type[Table], meant: Mapping[str, Meaning]) -> _Json:
    """The schema of a table, with the defaults of its fields."""
    named = {one.alias or name: (name, one.schema) for name, one in keys_of(table).items()}
    core: Any = {
        "type": "typed-dict",
        "fields": {
            key: {"type": "typed-dict-field", "schema": schema, "required": False}
            for key, (_, schema) in named.items()
        },
    }
    made = _generated(core)["properties"]
    defaults = {one.name: one.default for one in fields(cast("Any", table))}
    published = {name: one.published for name, one in keys_of(table).items()}
    properties = {
        key: dict(published[name] or _plain(made[key])) | _default(defaults[name]) | _description(meant[key])
        for key, (name, _) in named.items()
    }
    closed: _Json = {"additionalProperties": False} if table.unknown == "forbid" else {}
    needed = [one.alias or name for name, one in keys_of(table).items() if one.required]
    required: _Json = {"required": needed} if needed else {}
    return {"type": "object", "properties": properties, **required, **closed}


def _meanings_of(table: type[Table]) -> dict[str, Meaning]:
    """The meanings that the keys of a table state."""
    return {one.alias or name: one.meaning for name, one in keys_of(table).items() if one.meaning}


def _plain(schema: _Json) -> _Json:
    """A generated schema without titles, descriptions, defaults, and the null of an absent key."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
    choices = [one for one in kept.pop("anyOf", ()) if one != {"type": "null"}]
    return kept | (choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {})


def _default(value: object) -> _Json:
    """The member for a default value; none for an empty one."""
    if value is None or value is MISSING or value in ([], {}):
        return {}
    return {"default": int(value) if isinstance(value, float) and value.is_integer() else value}


def _description(meaning: Meaning) -> _Json:
    """The members for a meaning: its text without links, and its example."""
    return {"description": _LINK.sub(r"\1", meaning.text), "examples": [meaning.example]}


def _set_type(schema: _Json, key: str, **kind: Any) -> None:
    """Replace the type of one property, and keep its description, examples and default."""
    kept = ("description", "examples", "default")
    before = schema["properties"][key]
    schema["properties"][key] = {**kind, **{name: before[name] for name in kept if name in before}}


def _ref(name: str) -> _Json:
    return {"$ref": f"#/$defs/{name}"}
