"""What each key of the parts of a configuration means, with an example: permissions, limits, logins, HTTP.

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

LIMITS: Final[Mapping[str, Meaning]] = {
    "rate": Meaning(
        "Calls per `s`, `min`, `hour` or `day`; the whole number may come at once (token bucket).", "60/min"
    ),
    "calls": Meaning(
        "Calls per day, or for example `100/hour`; the count starts again with each day or hour.", 1000
    ),
    "concurrency": Meaning("Calls that run at the same time; further calls wait.", 4),
    "timeout": Meaning("Seconds for one call.", 30),
    "result_bytes": Meaning("Bytes of one result in JSON; longer text is cut.", 100_000),
    "for": Meaning(
        "Limits for some callers; they are checked before the general ones.",
        [{"roles": ["guest"], "rate": "5/min"}],
    ),
}

BREAKER: Final[Mapping[str, Meaning]] = {
    "failures": Meaning("Failures in a row after which the server is not called.", 5),
    "seconds": Meaning("Seconds for which the server is not called.", 30),
}

LOG: Final[Mapping[str, Meaning]] = {
    "folder": Meaning(
        "The folder of the log, in that of the configuration; by default the user's folder for logs.", "logs"
    ),
    "level": Meaning("The least level of the lines that are kept.", "debug"),
}

SUSPENDED: Final[Mapping[str, Meaning]] = {
    "path": Meaning("The file; one in the user's folder for state if left out.", "suspended.sqlite3"),
    "patience": Meaning("Seconds for which a call waits for its answer.", 604_800),
    "grants": Meaning(
        "Seconds for which [grants](grants.md) hold at least, so that runs of code can wait as long.", 604_800
    ),
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
    "token": Meaning("The token; write a reference instead of the token itself.", "${CI_TOKEN}"),
    "roles": Meaning("The caller's roles.", ["robot"]),
    "scopes": Meaning("The caller's scopes.", ["tools:call"]),
}

JWT: Final[Mapping[str, Meaning]] = {
    "issuer": Meaning("The claim `iss` of its tokens.", "https://idp.example.com"),
    "audience": Meaning("The value of the claim `aud` for this server.", "https://tools.example.com/mcp"),
    "jwks_url": Meaning(
        "The address of the issuer's keys; if left out, it is read from the issuer's metadata.",
        "https://idp.example.com/jwks",
    ),
    "algorithms": Meaning("The algorithms that are accepted.", ["RS256", "ES256"]),
    "secret": Meaning("The shared secret, for `HS256`, `HS384` and `HS512`.", "${JWT_SECRET}"),
    "roles_claim": Meaning("The claim of the roles, or a path to it.", "realm_access.roles"),
    "leeway": Meaning("Seconds by which the clocks of issuer and server may differ.", 30),
}

LOGIN: Final[Mapping[str, Meaning]] = {
    "type": Meaning("The kind of login.", "oauth"),
    "scopes": Meaning("The scopes to request.", ["read"]),
    "client_id": Meaning("The id of a client that is registered already.", "desktop"),
    "client_secret": Meaning("The secret of that client.", "${CLIENT_SECRET}"),
    "client_metadata_url": Meaning(
        "The address of your client ID metadata document.", "https://you.example.com/client.json"
    ),
    "issuer": Meaning(
        "The authorization server; a login at any other one is refused.", "https://idp.example.com"
    ),
    "redirect_port": Meaning("The port of `http://127.0.0.1:PORT/callback`; 0 takes a free one.", 8123),
    "per_user": Meaning("Whether [each caller](per-user-credentials.md) logs in separately.", True),
    "callback": Meaning(
        "The address to which a caller's browser returns after the login.",
        "https://tools.example.com/oauth/callback",
    ),
    "private_key": Meaning("The private key (PEM) of the client, instead of a secret.", "${PRIVATE_KEY}"),
    "algorithm": Meaning("The algorithm of signatures with `private_key`.", "ES256"),
    "idp_token_endpoint": Meaning(
        "The token endpoint of the identity provider.", "https://idp.example.com/token"
    ),
    "idp_client_id": Meaning("The id of the client at the identity provider.", "tools"),
    "id_token": Meaning("The user's ID token.", "${ID_TOKEN}"),
    "token_url": Meaning("The token endpoint; or give `issuer`.", "https://idp.example.com/token"),
    "audience": Meaning(
        "The server for which tokens are requested, by a name that the authorization server knows.", "crm"
    ),
    "resource": Meaning(
        "The server for which tokens are requested, by its address.", "https://crm.example.com/mcp"
    ),
    "client_authentication": Meaning(
        "How the client secret is sent to the token endpoint.", "client_secret_post"
    ),
}
