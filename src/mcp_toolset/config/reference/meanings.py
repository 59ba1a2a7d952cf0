"""What each key of a configuration file means, with an example, for the reference page and the schema.

The texts are Markdown, and their links are relative to `docs/`. Types and defaults are not repeated here: the
tables and models that read the file have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp_toolset.config.tables import Meaning

_AS_SECTION: Final = "The default for every server; see the same key of a server."
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
    "task_wait": Meaning(
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
        "What happens to [changed definitions](pins.md); if left out, it depends on the change.",
        "quarantine",
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
    "deferred": Meaning(_AS_SECTION, True),
    "timeout": Meaning(_AS_SECTION, 20),
    "start_timeout": Meaning(_AS_SECTION, 60),
    "start": Meaning(_AS_SECTION, "lazy"),
    "idle_timeout": Meaning(_AS_SECTION, 600),
    "client_prefix": Meaning(
        "What the client puts before every tool name; long names are shortened accordingly.", "mcp__tools__"
    ),
    "list_patience": Meaning(
        "Seconds that the first list waits for [servers that start slowly](starting.md); 5 if left out.",
        10,
    ),
    "pins": Meaning(_AS_SECTION, "warn"),
    "new_tools": Meaning(_AS_SECTION, "accept"),
    "hidden_text": Meaning(_AS_SECTION, "flag"),
    "arguments": Meaning(_AS_SECTION, "strict"),
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
