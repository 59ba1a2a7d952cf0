"""The extensions that come with this package: each is a folder, and any folder can be deleted.

The tables have names only: nothing of an extension is imported before it is used. The folder of an extension
has the module `extension`, with its class as `EXTENSION`; the module `settings`, if a file can name it; and
the module `command`, if it has commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_FOLDERS: Final = {one.name for one in Path(__file__).parent.iterdir()}


def _there(table: Mapping[str, str]) -> Mapping[str, str]:
    return {name: folder for name, folder in table.items() if folder in _FOLDERS}


KEYS: Final = _there(
    {
        "audit": "audit",
        "processes": "processes",
        "stats": "statistics",
        "telemetry": "telemetry",
        "large_results": "large_results",
        "learning": "learning",
        "journal": "journal",
        "sampler": "sampler",
        "code": "code",
    }
)
"""The folder of each extension by its key: its keyword of a server, and its key in a file."""

UNSTATED: Final = frozenset(KEYS) & {"processes", "sampler"}
"""The extensions that a file cannot name: keywords only."""

OF_CLIENTS: Final = frozenset({"telemetry"})
"""Those of these keys that clients have in their files as well, for something else."""

SERVER_KEYS: Final = {
    name: key for name, key in {"journal": "journal", "idempotency": "journal"}.items() if key in KEYS
}
"""The extension of each key that an extension has in the entry of a server."""

COMMANDS: Final = _there(
    {"audit": "audit", "journal": "journal", "stats": "statistics", "learning": "learning"}
)
"""The folder of each command."""

OPTIONS: Final = _there({"audit": "audit", "code": "code"})
"""The folder of each option of `serve` that is an extension's; its module `option` has it as `OPTION`.

`install` has these options as well, and writes them into the entry.
"""

SERVE_OPTIONS: Final = _there({"telemetry": "telemetry"})
"""The same for options of `serve` alone."""

STAYING: Final = frozenset(KEYS) & {"audit", "stats", "telemetry"}
"""The extensions of the process that stays while a program is loaded again in others: they record calls."""

PROTECTING: Final = frozenset(KEYS) & {"audit"}
"""The extensions that a program is not served without, if it asks for them."""

SERVED: Final = frozenset(KEYS) & {"stats"}
"""The extensions that `serve` and the command line turn on unless told otherwise."""

DEFERRED: Final = frozenset(KEYS) & {"code"}
"""The extensions that are for tools behind search: `Toolset.deferred` can turn them on."""
