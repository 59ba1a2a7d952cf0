"""A new kind of verifier is one file: it brings its key of `auth`, the check, the page and the callers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VERIFIER = """
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import TEXT_TABLE, key
from mcp_toolset.extensions.inbound_auth.verifiers import VerifierKind
from mcp_toolset.security.authenticator import RememberedVerifier
from mcp_toolset.tools.call import Identity


@dataclass(frozen=True)
class Badge:
    roles: tuple[str, ...] = ("guest",)
    scopes: tuple[str, ...] = ()


class Badges(RememberedVerifier):
    def __init__(self, names):
        self.names = names

    async def verify(self, token):
        return Identity.of(self.names[token]) if token in self.names else None


@dataclass(frozen=True)
class ByBadge(VerifierKind):
    key: ClassVar = "badges"
    knows_all: ClassVar = True
    entries: dict[str, str]

    @staticmethod
    def field_of_auth() -> Any:
        return key(TEXT_TABLE, "an object of names", {}, meaning="Badges of guests.", example={"b-1": "ann"})

    @classmethod
    def read(cls, said: Any, place: Place):
        return cls(said)

    @property
    def callers(self):
        return dict.fromkeys(self.entries.values(), Badge())

    def expanded(self, text):
        return ByBadge({badge: text(name, "badges", badge) for badge, name in self.entries.items()})

    def verifiers(self, place: Place):
        return [Badges(self.entries)]


KIND = ByBadge
"""

PROGRAM = """
import sys
import anyio
from mcp_toolset.extensions.inbound_auth import verifiers

verifiers.__path__.append(sys.argv[1])
from mcp_toolset import ToolsetServer, load_toolset
from mcp_toolset.config.hub import parse_config
from mcp_toolset.config.schema import parts
from mcp_toolset.errors import ConfigError

def read(auth):
    data = {"mcpServers": {}, "toolset": {"auth": auth}}
    return parse_config(data, source="mcp.json", environ={"WHO": "ann"})

config = read({"badges": {"badge-of-ann": "${WHO}"}})
assert [*config.callers.named] == ["${WHO}"]
auth = ToolsetServer(load_toolset(config)).auth
assert anyio.run(auth.identify, b"Bearer badge-of-ann").name == "ann"
assert anyio.run(auth.identify, b"Bearer another").status == 401
assert parts()["auth"].schema["properties"]["badges"]["description"] == "Badges of guests."
try:
    read({"badge": {}})
except ConfigError as fault:
    assert "did you mean `badges`?" in str(fault), fault
"""


def test_a_new_kind_of_verifier_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "badges.py").write_text(VERIFIER)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
