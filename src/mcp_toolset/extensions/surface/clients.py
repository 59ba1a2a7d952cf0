"""`decided`: a plain list of tools or a search, for a client and a hub, by a table of clients.

docs/clients.md has the same table with the source of each row:

- Claude Code defers all tools of MCP servers from 2.1.7 on, above a share of the context; from 2.1.121 on an
  entry can say `alwaysLoad`, and a tool `anthropic/alwaysLoad`.
- Cursor shows a model the names of tools alone.
- Codex defers from 100 tools of MCP servers on.
- GitHub Copilot CLI defers for some models; an entry can say `deferTools`.
- VS Code takes 128 tools in a request, and Windsurf 100.

The names are those in `clientInfo`, as the programs send them (apify/mcp-client-capabilities).
"""

from __future__ import annotations

import re
from typing import Final, Literal

from mcp_toolset._records import dataclass
from mcp_toolset.tools.screen import counted

_NUMBERS: Final = re.compile(r"\d{1,9}")
_VIA: Final = re.compile(r" \(via [^()]*\)$")
"""The end of a client's name behind a proxy such as mcp-remote."""

_LONGEST: Final = 200  # characters of a name that are read

FEW_TOKENS: Final = 2_000
"""Tokens of definitions up to which all tools are listed: about the tokens that one search costs."""


@dataclass(frozen=True, slots=True)
class KnownClient:
    """The search and the limit of one client, from a version on.

    Attributes:
        title: Its name for people.
        names: Its names in `clientInfo`, in lower case.
        since: The first version to which the row applies; empty for every version.
        defers_from: The number of tools from which the client defers them behind its own search, if it does.
        loads_ours: True if the client lists our search tools at once even when it defers the others.
        most: The largest number of tools that the client accepts; `None` for any number.
    """

    title: str
    names: tuple[str, ...]
    since: tuple[int, ...] = ()
    defers_from: int | None = None
    loads_ours: bool = True
    most: int | None = None


CLIENTS: Final = (
    KnownClient("Claude Code", ("claude-code",), (2, 1, 121), defers_from=1),
    KnownClient("Claude Code", ("claude-code",)),
    KnownClient("Cursor", ("cursor-vscode", "cursor"), defers_from=1, loads_ours=False),
    KnownClient("Codex", ("codex-mcp-client", "codex"), defers_from=100),
    KnownClient("GitHub Copilot CLI", ("github-copilot-developer",), defers_from=1),
    KnownClient("VS Code", ("visual studio code", "visual-studio-code"), most=128),
    KnownClient("Windsurf", ("windsurf-client", "windsurf"), most=100),
)
"""The clients with a search or a limit of their own, the newest versions first."""

UNKNOWN: Final = KnownClient("another client", ())


@dataclass(frozen=True, slots=True)
class Decision:
    """A list of all tools, or a search for them; `why` is the reason, as the end of a sentence."""

    way: Literal["list", "search"]
    why: str


def client_of(name: str, version: str = "") -> KnownClient:
    """The row for a name and a version in `clientInfo`."""
    name = _VIA.sub("", name[:_LONGEST]).casefold()
    number = tuple(map(int, _NUMBERS.findall(version[:100])[:3]))
    rows = (client for client in CLIENTS if name in client.names and number >= client.since)
    return next(rows, UNKNOWN)


def decided(client: KnownClient, tools: int | None, tokens: int) -> Decision:
    """Decide between a list and a search.

    Args:
        client: The row of the client.
        tools: The number of tools of the hub; `None` if it is unknown, but not 0.
        tokens: The tokens of their definitions.
    """
    hub = f"{'tools' if tools is None else counted(tools, 'tool')} of about {tokens:,} tokens"
    if tools == 0:
        return Decision("search", "no server has listed its tools yet")
    if client.most is not None and tools is not None and tools > client.most:
        return Decision("search", f"{hub} are more than the {client.most} that {client.title} takes")
    if tokens <= FEW_TOKENS:
        return Decision("list", f"{hub} cost no more than a search, which takes one step more")
    defers = client.defers_from is not None and (tools or 1) >= client.defers_from
    if defers and not client.loads_ours:
        return Decision(
            "list", f"{client.title} has a search of its own, behind which ours would have to be found first"
        )
    own = f", and {client.title} lists the tools that search at once" if defers else ""
    return Decision("search", f"{hub} cost more than a search{own}")
