"""The extensions that come with this package: each is a folder, and any folder can be deleted.

The tables have names only: nothing of an extension is imported before it is used. The folder of an extension
has the module `extension`, with its class as `EXTENSION`; the module `settings`, if a file can name it; and
the module `command`, if it has commands; and the
module `mount`, with a class as `MOUNT`, if it has a part in mounted servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_FOLDERS: Final = {one.name for one in Path(__file__).parent.iterdir()}


def _there(table: Mapping[str, str]) -> Mapping[str, str]:
    return {name: folder for name, folder in table.items() if folder in _FOLDERS}


_OF_TASKS: Final = {"handle_after": "task_handles"} if "tasks" in _FOLDERS else {}

KEYS: Final = _there(
    {
        "auth": "inbound_auth",
        "suspended": "suspended",
        "audit": "audit",
        "processes": "processes",
        "stats": "statistics",
        "telemetry": "telemetry",
        "large_results": "large_results",
        "learning": "learning",
        "limits": "limits",
        "approvals": "approvals",
        "journal": "journal",
        "sampler": "sampler",
        "code": "code",
        "tasks": "tasks",
        **_OF_TASKS,
    }
)
"""The folder of each extension by its key: its keyword of a server, and its key in a file."""

UNSTATED: Final = frozenset(KEYS) & {"approvals", "processes", "sampler", "tasks"}
"""The extensions that a file cannot name: keywords only."""

OF_CLIENTS: Final = frozenset({"telemetry"})
"""Those of these keys that clients have in their files as well, for something else."""

MOUNTS: Final = _there({"sampler": "sampler", "retries": "retries"})
"""The folder of each extension that has a part in mounted servers, by its key; it has the module `mount`."""

PARTS: Final = _there(
    {
        "lowlevel": "sdk_view",
        "scorer": "sentence_models",
        "indexes": "kept_indexes",
        "access": "upstream_access",
        "sdk": "sdk_mounts",
        "forms": "model_loop",
    }
)
"""The folder of what the core asks for by a name of its own; its module `part` has it as `PART`."""

REACHES: Final = _there({"access": "upstream_access", "single": "single_mounts"})
"""The folder of each extension that says how a server is reached, by the key of its `ServerSettings`."""

MOUNT_KEYWORDS: Final = {
    name: key
    for name, key in {
        "sampler": "sampler",
        "retries": "retries",
        "breaker": "retries",
        "single": "single",
        "forward": "access",
        "forward_authorization": "access",
    }.items()
    if key in MOUNTS or key in REACHES
}
"""The extension of each keyword of `RemoteToolset` that is an extension's."""

_RULE_KEYS: Final = {
    "limits": "limits",
    "journal": "journal",
    "idempotency": "journal",
    "retries": "retries",
    "breaker": "retries",
}
_REACH_KEYS: Final = {
    "auth": "access",
    "oauth": "access",
    "forward": "access",
    "forward_authorization": "access",
    "single": "single",
}
SERVER_KEYS: Final = {
    name: key
    for name, key in {**_RULE_KEYS, **_REACH_KEYS}.items()
    if key in KEYS or key in MOUNTS or key in REACHES
}
"""The extension of each key that an extension has in the entry of a server."""

RULE_KEYS: Final = frozenset(SERVER_KEYS) & {*_RULE_KEYS, "forward", "forward_authorization"}
"""Those of these keys that no other client knows, and that are missed where they stand elsewhere."""

MISSING_KEYS: Final = frozenset(_REACH_KEYS) - {*SERVER_KEYS}
"""The keys without which a server would be reached otherwise, and whose folder is not there."""

COMMANDS: Final = _there(
    {
        "login": "upstream_access",
        "logout": "upstream_access",
        "approvals": "approvals",
        "audit": "audit",
        "journal": "journal",
        "stats": "statistics",
        "learning": "learning",
    }
)
"""The folder of each command."""

OPTIONS: Final = _there({"audit": "audit", "code": "code"})
"""The folder of each option of `serve` that is an extension's; its module `option` has it as `OPTION`.

`install` has these options as well, and writes them into the entry.
"""

SERVE_OPTIONS: Final = _there({"telemetry": "telemetry"})
"""The same for options of `serve` alone."""

CALLER_OPTIONS: Final = _there({"auth": "inbound_auth"})
"""The same for those that say who may call over HTTP; the command receives them as one value of this key."""

KEEPING: Final = frozenset(KEYS) & {"suspended"}
"""The extensions that keep calls which wait: turned off, what replicas share keeps none either."""

STAYING: Final = frozenset(KEYS) & {"audit", "stats", "telemetry"}
"""The extensions of the process that stays while a program is loaded again in others: they record calls."""

PROTECTING: Final = frozenset(KEYS) & {"audit", "limits"}
"""The extensions that a program is not served without, if it asks for them."""

VERIFIERS: Final = ("StaticTokens", "JWT") if "auth" in KEYS else ()
"""The public names of what checks tokens of callers, for an error."""

STRICT: Final = frozenset(KEYS) & {"audit", "auth", "journal", "limits"}
"""The extensions whose misspelt key is never ignored, wherever it is in a file."""

SERVED: Final = frozenset(KEYS) & {"stats"}
"""The extensions that `serve` and the command line turn on unless told otherwise."""

ALWAYS: Final = frozenset(KEYS) & {"tasks"}
"""The extensions that each server has unless it is told otherwise."""

DEFERRED: Final = frozenset(KEYS) & {"code"}
"""The extensions that are for tools behind search: `Toolset.deferred` can turn them on."""

LATE: Final = frozenset(KEYS) & {"limits"}
"""The extensions that a file, or an entry alone, turns on at any time: they have no slot but `guard`.

Their guards stand before those of other extensions, as they refuse calls.
"""

WITH_POLICY: Final = frozenset(KEYS) & {"approvals"}
"""The extensions that a server has as soon as it has a policy, unless told otherwise; see `guard_of`."""
