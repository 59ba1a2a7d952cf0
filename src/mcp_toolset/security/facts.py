"""Facts about callers for logs and records, and texts without credentials."""

from __future__ import annotations

import re
from typing import Any, Final

from mcp_toolset.tools.call import Identity

BLANK: Final = "***"

_TOKEN: Final = re.compile(
    r"(?i)\b(bearer|basic|dpop)\s+(?=[\w~+/.=-]*[\d.~+/=]|\w{20})[\w~+/.=-]+"
    r"|(?<![\w-])(?=[\w-]++\.)(?:[\w-]*-)?eyJ[\w-]{5,}(?:\.[\w-]*){1,4}|\b(?:gh[opsu]|sk|xox[abp])[-_][\w-]{16,}"
)
"""Forms of credentials: `Bearer …`, a JSON Web Token, the keys of well-known services.

Each run of letters is read a fixed number of times: a stranger chooses the text.
"""


def who_fields(identity: Identity | None, principal: str | None = None) -> dict[str, Any]:
    """The caller: name, roles, and the key that is unique to the caller."""
    if identity is None:
        return {"key": principal}
    return {"who": identity.name, "roles": sorted(identity.roles), "key": identity.key}


def without_credentials(text: str) -> str:
    return _TOKEN.sub(lambda found: f"{found[1]} {BLANK}" if found[1] else BLANK, text)
