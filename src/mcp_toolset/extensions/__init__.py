"""The extensions that come with this package: each is a folder, and any folder can be deleted.

A folder declares the class of the extension as `EXTENSION`; `SETTINGS`, if a file can name it; `OPTION`, if
commands have an option for it; `MOUNT`, a class, if it has a part in mounted servers; `PART`, what the core
asks for by a `NAME`; `REFERENCES`, what looks up `${SCHEME:…}` in configurations, by scheme. Each is in the
module `extension`, `settings`, `option`, `mount`, `part` or `references`, or in another one of the folder,
such as the folder itself. The module `command` has its commands. What it says of how to mend errors of the
core is its `MENDS`.

`scripts/extensions` writes this table of what they declare. It has names only: nothing of an extension is
imported before it is used.
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
