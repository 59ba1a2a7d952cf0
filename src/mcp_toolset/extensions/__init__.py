"""The extensions of this package: each is a folder, and any folder can be deleted.

A folder declares constants: the class `EXTENSION`; `SETTINGS` and `SERVER_SETTINGS`, if files can configure
it; `OPTION` and others, if commands have options for it; the class `MOUNT`, if mounted servers have a part
of it; `PART`, an object that the core asks for by its `NAME`; `REFERENCES`, functions that look up
`${SCHEME:…}`, by scheme. Its commands are in the module `command`; `MENDS` has endings for error messages of
the core.

`scripts/extensions` writes `TABLE` from these declarations. The table has names only: an extension is
imported when it is used. A row has, where they apply:

- `modules`: the modules of constants that are not in the module of their name, such as `settings`.
- `key`: the keyword of a server and the key in the section `toolset`.
- `marks`: attributes of the extension and its settings, and its kinds of options.
- `needs`: other extensions that it imports.
- `mount`, `part`, `references`: its `MOUNT`, the name of its `PART`, its schemes.
- `keywords`, `entry`: the keywords of a mount, and the keys of a server's entry.
- `common`: those of `entry` that other clients use as well, so a misplaced one is no error.
- `reach`: a name, if its settings decide how a server is reached.
- `commands`: its commands.
- `carries`, `schemes`: the protocol extensions and the URI schemes that it passes on.
- `tells`, `below`, `synonyms`: keys and synonyms by which a misplaced or misspelt key is recognized.
- `mends`: its `MENDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TABLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "inbound_auth": {
        "modules": {"extension": "settings"},
        "key": "auth",
        "marks": "stated protects caller_option",
        "below": {
            "": "tokens jwt resource required_scopes",
            "jwt": "issuer audience jwks_url algorithms roles_claim leeway",
        },
        "mends": {"verifiers": "a StaticTokens, a JWT, or "},
    },
    "upstream_access": {
        "modules": {"part": ""},
        "reach": "access",
        "keywords": "forward_authorization forward",
        "entry": "auth oauth forward_authorization forward",
        "common": "auth oauth",
        "part": "access",
        "commands": "login logout",
        "mends": {"login": "mcp-toolset login"},
    },
    "suspended": {"key": "suspended", "marks": "keeps_calls stated"},
    "approvals": {
        "key": "approvals",
        "marks": "with_policy",
        "commands": "approvals",
        "mends": {"guards": " such as [PolicyGuard(policy)]"},
    },
    "audit": {
        "modules": {"option": ""},
        "key": "audit",
        "marks": "stays stated protects option",
        "commands": "audit",
        "tells": "max_bytes max_files",
    },
    "processes": {"key": "processes", "mends": {"processes": "ToolsetServer(…, processes=True)"}},
    "statistics": {"key": "stats", "marks": "served stays stated", "commands": "stats"},
    "telemetry": {
        "modules": {"option": ""},
        "key": "telemetry",
        "marks": "stays stated of_clients serve_option",
    },
    "large_results": {"modules": {"settings": ""}, "key": "large_results", "marks": "stated"},
    "learning": {"key": "learning", "marks": "stated search_option"},
    "limits": {
        "key": "limits",
        "marks": "stated adds protects by_pattern",
        "entry": "limits",
        "tells": "rate calls concurrency result_bytes",
        "synonyms": {
            "": "ratelimit ratelimiting throttle quota",
            "calls": "maxcalls",
            "concurrency": "maxconcurrency",
            "result_bytes": "maxresultbytes",
        },
    },
    "journal": {
        "key": "journal",
        "marks": "stated protects",
        "entry": "journal idempotency",
        "commands": "journal",
        "mends": {"effect": "a journal that records the tool: ToolsetServer(…, journal=True)"},
    },
    "sampler": {
        "modules": {"extension": "", "settings": "mount"},
        "key": "sampler",
        "mount": "sampler",
        "keywords": "sampler",
    },
    "code": {"modules": {"option": ""}, "key": "code", "marks": "deferred stated option"},
    "tasks": {"modules": {"extension": ""}, "key": "tasks", "marks": "always"},
    "task_handles": {"key": "task_after", "marks": "stated", "needs": "tasks"},
    "retries": {"mount": "retries", "keywords": "retries breaker", "entry": "retries breaker"},
    "kept_indexes": {"modules": {"part": ""}, "part": "indexes"},
    "model_loop": {
        "modules": {"part": "offering"},
        "part": "forms",
        "mends": {"export": "use ToolRound.of(message, export)"},
    },
    "sdk_mounts": {"modules": {"part": ""}, "part": "sdk"},
    "sdk_view": {"modules": {"part": ""}, "part": "lowlevel"},
    "sentence_models": {
        "modules": {"part": ""},
        "part": "scorer",
        "mends": {"scorer": " such as EmbeddingScorer(…)"},
    },
    "durable_rounds": {"needs": "journal model_loop"},
    "dynamic_tools": {},
    "result_cache": {},
    "single_mounts": {
        "modules": {"settings": ""},
        "reach": "single",
        "keywords": "single",
        "entry": "single",
        "common": "single",
    },
    "openapi": {"reach": "openapi", "entry": "openapi", "common": "openapi"},
    "preflight": {"commands": "preflight"},
    "secret_commands": {"references": "command"},
    "registries": {"key": "registry_url", "marks": "stated", "commands": "registry add"},
    "shell_skill": {"commands": "skill"},
    "pass_extensions": {
        "key": "pass_extensions",
        "marks": "carries stated protects",
        "entry": "pass_extensions",
        "carries": "*",
    },
    "skills": {
        "key": "skills",
        "marks": "carries stated",
        "carries": "io.modelcontextprotocol/skills",
        "schemes": "skill",
    },
    "server_card": {"key": "server_card", "marks": "stated"},
    "surface": {"modules": {"part": "fit"}, "key": "surface", "marks": "stated", "part": "fit"},
    "profiles": {"key": "profiles", "marks": "stated protects by_pattern view_option"},
}
