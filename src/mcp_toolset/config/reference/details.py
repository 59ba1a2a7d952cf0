"""What each key of the parts of a configuration means, with an example: permissions, logins, HTTP.

The texts are Markdown, as in `meanings`, which has the keys of a server and of the section `toolset`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp_toolset.config.reference.meanings import Meaning

INPUT: Final[Mapping[str, Meaning]] = {
    "id": Meaning("The name in `${input:…}`.", "api-key"),
    "default": Meaning("The value if the variable `MCP_INPUT_…` is not set.", "none"),
}

CALLERS: Final[Mapping[str, Meaning]] = {
    "principals": Meaning(
        "Names or patterns of callers, or keys: `[client, issuer, subject]`, with `null` for a missing part.",
        ["ci", "*@example.com", ["desktop", "https://idp.example.com", "ann"]],
    ),
    "roles": Meaning("Callers with one of these roles.", ["intern"]),
    "scopes": Meaning("Callers with one of these scopes.", ["tools:read"]),
}

PERMISSIONS: Final[Mapping[str, Meaning]] = {
    "allow": Meaning(
        "Patterns of the tools that exist for a caller; without the key, every tool that is not denied.",
        ["readOnly:*"],
    ),
    "ask": Meaning("Patterns of the tools that need an [approval](approvals.md).", ["destructive:*"]),
    "deny": Meaning("Patterns of the tools that do not exist for a caller.", ["github/*_delete"]),
    "for": Meaning(
        "Rules for some callers; they are checked before the general rules.",
        [{"roles": ["intern"], "deny": ["crm/*"]}],
    ),
}

LOG: Final[Mapping[str, Meaning]] = {
    "folder": Meaning(
        "The folder of the log, in that of the configuration; by default the user's folder for logs.", "logs"
    ),
    "level": Meaning("The least level of the lines that are kept.", "debug"),
}

READY: Final[Mapping[str, Meaning]] = {
    "servers": Meaning("Servers that must be up, by their names or patterns of names.", ["github", "erp-*"]),
    "store": Meaning("Whether the [store that replicas share](replicas.md) must answer.", True),
}

HTTP: Final[Mapping[str, Meaning]] = {
    "sessions": Meaning("Legacy sessions that may be open; the default is 2,000.", 20_000),
    "sessions_per_peer": Meaning("The same for one address; the default is 500.", 5_000),
    "unread": Meaning("Bytes of answers that clients have not read; the default is 256 MiB.", 536_870_912),
    "unread_per_peer": Meaning("The same for one address; the default is 40 MiB.", 83_886_080),
    "header_lines": Meaning("Header lines of one request; the default is 200.", 100),
    "kept": Meaning(
        "Bytes of events that are kept so that broken streams can be resumed; the default is 64 MiB.",
        33_554_432,
    ),
    "kept_per_session": Meaning("The same for one session; the default is 16 MiB.", 4_194_304),
    "trusted_proxies": Meaning(
        "Addresses or networks of proxies whose `X-Forwarded-For` says the client's address.", ["10.0.0.0/8"]
    ),
}

EGRESS: Final[Mapping[str, Meaning]] = {
    "allow": Meaning(
        "Hosts, all hosts below one (`*.corp`), IP addresses and networks.", ["login.corp", "10.0.0.0/8"]
    ),
}
