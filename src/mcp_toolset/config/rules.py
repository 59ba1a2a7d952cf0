"""The words by which a configuration says how a server is reached and treated."""

from __future__ import annotations

from typing import Literal, TypeAlias

Transport: TypeAlias = Literal["stdio", "http", "sse"]
"""How a server is reached; `http` is streamable HTTP."""

ChangePolicy: TypeAlias = Literal["accept", "warn", "quarantine"]
"""What is done with a definition that differs from its pin."""

HiddenTextPolicy: TypeAlias = Literal["strip", "flag", "refuse"]
"""What is done with invisible and control characters."""

SessionRule: TypeAlias = Literal["auto", "shared", "capabilities", "client", "call"]
"""Which callers of a server share a session with it; see docs/sessions.md."""

ProtocolRule: TypeAlias = Literal["auto", "legacy", "modern"]
"""The era of the protocol to use with a server: up to 2025-11-25, from 2026-07-28, or the server's newest."""

Era: TypeAlias = Literal["legacy", "modern"]
"""The revisions up to 2025-11-25, which have sessions, or those from 2026-07-28, which have none."""

StartRule: TypeAlias = Literal["lazy", "background", "eager"]
"""When a mounted server is started: by its first call, or with the hub; for `eager` ones lists wait."""

ArgumentRule: TypeAlias = Literal["strict", "lenient"]
"""What is done with arguments that do not fit the schema: refuse, or repair where that is unambiguous."""

UnlistedRule: TypeAlias = Literal["refuse", "pass"]
"""What is done with calls of tools and prompts that a server does not list; see docs/adopting.md."""

Asked: TypeAlias = Literal["elicitation", "roots", "sampling"]
"""What a server may ask its client for; see docs/sessions.md."""
