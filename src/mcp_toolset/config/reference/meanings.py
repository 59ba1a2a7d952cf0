"""What each key of a configuration file means, with an example, for the reference page and the schema.

The texts are Markdown, and their links are relative to `docs/`. Types and defaults are not repeated here: the
tables and models that read the file have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Meaning(NamedTuple):
    """What a key does, and a value for it as a file may have it."""

    text: str
    example: Any


_AS_SECTION: Final = "The default for every server; see the same key of a server."
_NAMED_TOOLS: Final = "Exact names of tools, as another client writes them."

SERVER: Final[Mapping[str, Meaning]] = {
    "command": Meaning("The program to start.", "uvx"),
    "args": Meaning("The program's arguments.", ["mcp-server-git", "-r", "."]),
    "env": Meaning(
        "Environment variables for the program, which inherits only a safe part of the bridge's.",
        {"LOG_LEVEL": "debug"},
    ),
    "envFile": Meaning("A file of `NAME=value` lines; `env` is stronger.", ".env"),
    "cwd": Meaning("The folder in which the program starts.", "${workspaceFolder}"),
    "url": Meaning("The address of a server that runs elsewhere.", "https://host/mcp"),
    "serverUrl": Meaning("`url`, as Cursor and Windsurf write it.", "https://host/mcp"),
    "httpUrl": Meaning("`url`, as Gemini CLI writes it.", "https://host/mcp"),
    "type": Meaning("How the server is reached: `stdio`, `http` or `sse`; guessed if left out.", "http"),
    "transport": Meaning("`type`, as other clients write it.", "sse"),
    "headers": Meaning("Headers of every request to the server.", {"Authorization": "Bearer ${TOKEN}"}),
    "auth": Meaning(
        "How to [log in to it](upstream-login.md), once or [for each caller](per-user-credentials.md).",
        "oauth",
    ),
    "oauth": Meaning(
        "`auth`, as other clients write it: `clientId`, `clientSecret`, `scopes` and `callbackPort` count.",
        {"clientId": "desktop"},
    ),
    "disabled": Meaning("Keeps the entry, and does not start the server.", True),
    "enabled": Meaning("`disabled`, as other clients write the opposite.", False),
    "deferred": Meaning("Whether its tools are [searched for](search.md) instead of listed.", True),
    "prefix": Meaning(
        "What its tools' names begin with; `null` is the server's name, `false` nothing.", "gh"
    ),
    "names": Meaning(
        "Public names of single tools, by the server's names for them.", {"search": "find_issues"}
    ),
    "include": Meaning("Patterns of the tools to take; without the key, every tool.", ["read_*"]),
    "exclude": Meaning("Patterns of the tools to leave out; stronger than `include`.", ["delete_*"]),
    "includeTools": Meaning(f"Tools to take. {_NAMED_TOOLS}", ["read_file"]),
    "excludeTools": Meaning(f"Tools to leave out. {_NAMED_TOOLS}", ["delete_file"]),
    "disabledTools": Meaning(f"Tools to leave out. {_NAMED_TOOLS}", ["delete_file"]),
    "enabled_tools": Meaning(f"Tools to take. {_NAMED_TOOLS}", ["read_file"]),
    "disabled_tools": Meaning(f"Tools to leave out. {_NAMED_TOOLS}", ["delete_file"]),
    "tools": Meaning(f'Tools to take; `"*"` is every tool. {_NAMED_TOOLS}', ["*"]),
    "timeout": Meaning("Seconds for one call, 60 if left out; numbers from 10,000 on are milliseconds.", 20),
    "start_timeout": Meaning("Seconds for connecting and listing, 30 if left out.", 60),
    "start": Meaning(
        "[When the server is started](starting.md#when-a-server-is-started): by its first call, beside the "
        "bridge, or so that lists wait for it.",
        "lazy",
    ),
    "idle_timeout": Meaning(
        "Seconds without a call after which the server is stopped until the next one; 300 if it is `lazy`, "
        "else never.",
        600,
    ),
    "pins": Meaning(
        "What becomes of [definitions that change](pins.md); it depends on the change if left out.",
        "quarantine",
    ),
    "new_tools": Meaning("What becomes of tools that a [pinned](pins.md) server did not have.", "quarantine"),
    "hidden_text": Meaning("What becomes of invisible characters in [definitions](pins.md).", "refuse"),
    "arguments": Meaning(
        "What becomes of [arguments that do not fit](arguments.md): `lenient` repairs what is unambiguous.",
        "strict",
    ),
    "sessions": Meaning("Which callers [share a session](sessions.md) with the server.", "client"),
    "declare": Meaning("What is declared to the server, so that it lists all its tools.", ["sampling"]),
    "protocol": Meaning("The era of the protocol in which the server is spoken to.", "legacy"),
    "eras": Meaning("The era that single tools need, by the server's names for them.", {"ask": "legacy"}),
    "limits": Meaning(
        "How much callers may use of [its tools](limits.md), by pattern.", {"*": {"rate": "60/min"}}
    ),
    "retries": Meaning(
        "How often a call that may be repeated [is repeated](limits.md#repeat-calls) after a failure.", 2
    ),
    "breaker": Meaning(
        "After how many failures in a row the server is "
        "[not called](limits.md#stop-calling-a-server-that-fails), and for how long.",
        {"failures": 5, "seconds": 30},
    ),
    "permissions": Meaning(
        "Which of its tools exist, and which need an [approval](policies.md).", {"deny": ["delete_*"]}
    ),
    "forward_authorization": Meaning("Sends each caller's own `Authorization` on to the server.", True),
    "forward": Meaning(
        "Headers that tell the server [who calls](per-user-credentials.md).", {"X-User": "identity.name"}
    ),
}

TOOLSET: Final[Mapping[str, Meaning]] = {
    "name": Meaning("What the bridge calls itself.", "tools"),
    "deferred": Meaning(_AS_SECTION, True),
    "timeout": Meaning(_AS_SECTION, 20),
    "start_timeout": Meaning(_AS_SECTION, 60),
    "start": Meaning(_AS_SECTION, "lazy"),
    "idle_timeout": Meaning(_AS_SECTION, 600),
    "client_prefix": Meaning(
        "What the client puts before every name, so that names stay short enough.", "mcp__tools__"
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
        "Where [pins](pins.md) are kept; `mcp.lock.json` beside `mcp.json` if left out.", "pins.json"
    ),
    "limits": Meaning(
        "How much callers may use of [all tools](limits.md), by pattern.", {"*": {"rate": "60/min"}}
    ),
    "permissions": Meaning(
        "Which tools exist for which caller, and which need an [approval](policies.md).",
        {"allow": ["readOnly:*"], "ask": ["destructive:*"]},
    ),
    "audit": Meaning("The file of the [audit log](audit.md), or an object.", "audit.jsonl"),
    "auth": Meaning(
        "[Who may call](authentication.md) over HTTP.", {"tokens": {"ci": {"token": "${CI_TOKEN}"}}}
    ),
    "code": Meaning(
        "Whether models run [code](code-mode.md) that calls granted tools; an object has the limits.",
        {"seconds": 5},
    ),
    "large_results": Meaning(
        "Keeps [long results](large-results.md), and shows their beginning: `true`, or from how many "
        "characters, or an object.",
        20_000,
    ),
    "stats": Meaning("Whether calls and tokens are summed for [`mcp-toolset stats`](statistics.md).", False),
    "learning": Meaning(
        "Whether search [learns](search.md#learn-from-use) which tools each caller comes to use; an object "
        "has the bounds.",
        True,
    ),
}

INPUT: Final[Mapping[str, Meaning]] = {
    "id": Meaning("The name in `${input:…}`.", "api-key"),
    "default": Meaning("The value without the variable `MCP_INPUT_…`.", "none"),
}

CALLERS: Final[Mapping[str, Meaning]] = {
    "principals": Meaning("Names of callers, or patterns of them.", ["ci", "*@example.com"]),
    "roles": Meaning("Callers with one of these roles.", ["intern"]),
    "scopes": Meaning("Callers with one of these scopes.", ["tools:read"]),
}

PERMISSIONS: Final[Mapping[str, Meaning]] = {
    "allow": Meaning(
        "Patterns of the tools that exist; without the key, every tool that is not denied.", ["readOnly:*"]
    ),
    "ask": Meaning("Patterns of the tools that need an [approval](approvals.md).", ["destructive:*"]),
    "deny": Meaning("Patterns of the tools that do not exist.", ["github/*_delete"]),
    "for": Meaning(
        "Rules for some callers, which are asked before all others.",
        [{"roles": ["intern"], "deny": ["crm/*"]}],
    ),
}

LIMITS: Final[Mapping[str, Meaning]] = {
    "rate": Meaning("Calls per `s`, `min`, `hour` or `day`, at once or spread out.", "60/min"),
    "calls": Meaning("Calls per day, or as in `100/hour`, counted anew when the time begins.", 1000),
    "concurrency": Meaning("Calls that run at the same time; further calls wait.", 4),
    "timeout": Meaning("Seconds for one call.", 30),
    "result_bytes": Meaning("Bytes of one result in JSON; longer text is cut.", 100_000),
    "for": Meaning(
        "Limits for some callers, which are asked before these.", [{"roles": ["guest"], "rate": "5/min"}]
    ),
}

BREAKER: Final[Mapping[str, Meaning]] = {
    "failures": Meaning("Failures in a row after which the server is not called.", 5),
    "seconds": Meaning("How long it is not called.", 30),
}

AUDIT: Final[Mapping[str, Meaning]] = {
    "path": Meaning("The file.", "audit.jsonl"),
    "max_bytes": Meaning("The size from which a new file is begun.", 100_000_000),
    "keep": Meaning("How many full files are kept.", 10),
    "key": Meaning("The key by which the lines are chained; at least 16 characters.", "${AUDIT_KEY}"),
}

CODE: Final[Mapping[str, Meaning]] = {
    "seconds": Meaning("Seconds that one run may compute; waiting does not count; 10 if left out.", 5),
    "timeout": Meaning("Seconds of one run in all, but for waiting for a person; 60 if left out.", 120),
    "memory_mb": Meaning("Megabytes that the code may hold; 64 if left out.", 128),
    "calls": Meaning("Calls of tools in one run; 50 if left out.", 100),
    "suspensions": Meaning("How often code stops for a call, a wait or an import; 200 if left out.", 400),
    "parallel": Meaning("Calls of tools at the same time; further calls wait; 8 if left out.", 4),
    "printed": Meaning("Characters that the code may print; 20,000 if left out.", 10_000),
    "value": Meaning("Bytes of JSON that come back whole, else as a preview; 20,000 if left out.", 50_000),
    "workers": Meaning("Processes of the sandbox, and so runs at the same time; 8 if left out.", 2),
}

LEARNING: Final[Mapping[str, Meaning]] = {
    "path": Meaning("The file; one in the user's folder for data if left out.", "learnt.json"),
    "most": Meaning("What use adds to a score, from 0 to 1, at most.", 0.1),
    "half_life": Meaning("Seconds after which a use counts half.", 604_800),
    "tenants": Meaning("Callers that are remembered; the one that was idle longest goes first.", 20),
    "pairs": Meaning("Pairs of a word and a tool that are remembered for each caller.", 500),
}

LARGE_RESULTS: Final[Mapping[str, Meaning]] = {
    "limit": Meaning("Characters from which a result is kept and shown by its beginning.", 20_000),
    "preview": Meaning("Characters of the beginning that is shown.", 1_500),
    "memory": Meaning("Characters of all results that are kept.", 64_000_000),
    "lifetime": Meaning("Seconds for which a result is kept.", 3600),
}

AUTH: Final[Mapping[str, Meaning]] = {
    "tokens": Meaning(
        "Tokens that you have given to programs or people, by the caller's name.",
        {"ci": {"token": "${CI_TOKEN}", "roles": ["robot"]}},
    ),
    "jwt": Meaning(
        "Authorization servers whose tokens are accepted.",
        [{"issuer": "https://idp.example.com", "audience": "https://tools.example.com/mcp"}],
    ),
    "resource": Meaning("The URL of this server, as clients write it.", "https://tools.example.com/mcp"),
    "required_scopes": Meaning("Scopes without which no call is allowed.", ["tools:call"]),
}

TOKEN: Final[Mapping[str, Meaning]] = {
    "token": Meaning("The token; better a reference to it.", "${CI_TOKEN}"),
    "roles": Meaning("The caller's roles.", ["robot"]),
    "scopes": Meaning("The caller's scopes.", ["tools:call"]),
}

JWT: Final[Mapping[str, Meaning]] = {
    "issuer": Meaning("The claim `iss` of its tokens.", "https://idp.example.com"),
    "audience": Meaning("The claim `aud` that stands for this server.", "https://tools.example.com/mcp"),
    "jwks_url": Meaning(
        "Where its keys are; found through its metadata if left out.", "https://idp.example.com/jwks"
    ),
    "algorithms": Meaning("The algorithms that are accepted.", ["RS256", "ES256"]),
    "secret": Meaning("The shared secret of `HS256` and its like.", "${JWT_SECRET}"),
    "roles_claim": Meaning("The claim of the roles, or a path to it.", "realm_access.roles"),
    "leeway": Meaning("Seconds by which clocks may differ.", 30),
}

LOGIN: Final[Mapping[str, Meaning]] = {
    "type": Meaning("The kind of login.", "oauth"),
    "scopes": Meaning("Scopes to ask for.", ["read"]),
    "client_id": Meaning("The id of a client that is registered already.", "desktop"),
    "client_secret": Meaning("The secret of that client.", "${CLIENT_SECRET}"),
    "client_metadata_url": Meaning(
        "The address of a client ID metadata document of yours.", "https://you.example.com/client.json"
    ),
    "issuer": Meaning("The only authorization server to log in at.", "https://idp.example.com"),
    "redirect_port": Meaning("The port of `http://127.0.0.1:PORT/callback`; 0 takes a free one.", 8123),
    "per_user": Meaning("Whether [each caller](per-user-credentials.md) logs in.", True),
    "callback": Meaning(
        "Where the browsers of callers come back to.", "https://tools.example.com/oauth/callback"
    ),
    "private_key": Meaning("The private key (PEM) of the client, in place of a secret.", "${PRIVATE_KEY}"),
    "algorithm": Meaning("The algorithm to sign with.", "ES256"),
    "idp_token_endpoint": Meaning(
        "The token endpoint of the identity provider.", "https://idp.example.com/token"
    ),
    "idp_client_id": Meaning("The id of the client at the identity provider.", "tools"),
    "id_token": Meaning("The user's ID token.", "${ID_TOKEN}"),
    "token_url": Meaning("The token endpoint; or give `issuer`.", "https://idp.example.com/token"),
    "audience": Meaning("What the tokens are for, by a name that the authorization server knows.", "crm"),
    "resource": Meaning("What the tokens are for, by an address.", "https://crm.example.com/mcp"),
    "client_authentication": Meaning("How the secret is sent.", "client_secret_post"),
}
