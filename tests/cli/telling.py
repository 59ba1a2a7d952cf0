"""Every command line that tells of a configuration or of what is kept; a new command adds its lines here."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import pytest

from mcp_toolset import ToolsetError
from mcp_toolset.cli.main import cli
from mcp_toolset.errors import innermost

TARGET = "TARGET"
"""Stands for the configuration or program."""

COMMANDS = [
    line.split()
    for line in (
        "list TARGET --timeout 20",
        "list TARGET --timeout 20 --json",
        "list TARGET --timeout 20 -vv",
        "list TARGET --servers --timeout 20",
        "list TARGET --servers --timeout 20 --json",
        "search TARGET anything --timeout 20",
        "call TARGET child_tool --timeout 20",
        "call TARGET up_say a=b --timeout 20",
        "audit show audit.jsonl",
        "audit show audit.jsonl --json",
        "audit verify audit.jsonl",
        "login --list",
        "login --list --json",
        "logout up --config TARGET",
        "secret list",
        "secret list --json",
    )
]

TELLS_OF_SERVERS = ("list", "search", "call")
"""The commands that ask every server of the configuration."""


def said_by(
    words: Sequence[str], target: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> str:
    """All that a command line writes and logs, at every level, and the error that it ends with."""
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    given = [target if word == TARGET else word for word in words]
    fault = ""
    try:
        cli.main(given, prog_name="mcp-toolset", standalone_mode=False)
    except (ToolsetError, ExceptionGroup) as raised:
        fault = str(innermost(raised, ToolsetError))
    return "\n".join((*capfd.readouterr(), caplog.text, fault))


def shown(secrets: Sequence[str], said: str) -> list[str]:
    """The secrets that are shown; a short one may stand inside of another word."""
    return [secret for secret in secrets if secret in said and not _glued(secret, said)]


def _glued(secret: str, text: str) -> bool:
    return len(secret) < 8 and not re.search(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", text)
