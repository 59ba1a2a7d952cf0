"""Which tools a configuration takes and leaves out, in the words of every client; none of them is ignored."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
from tests.support.config import config_of

from mcp_toolset.config.models import HubConfig


def read(**keys: Any) -> HubConfig:
    return config_of({"mcpServers": {"files": {"command": "x", **keys}}}, source="mcp.json", environ={})


def taken(config: HubConfig) -> list[str]:
    (server,) = config.servers
    assert not server.fault
    assert not config.warnings
    return [
        name
        for name in ("read", "delete", "read[1]")
        if any(fnmatchcase(name, one) for one in server.include or ("*",))
        and not any(fnmatchcase(name, one) for one in server.exclude)
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"disabled_tools": ["delete", "read[1]"]},
        {"enabled_tools": ["read"]},
        {"enabled_tools": ["read", "delete"], "disabled_tools": ["delete"]},
        {"tools": ["read"]},
        {"tools": ["*"], "include": ["read"]},
    ],
)
def test_u14_lists_of_codex_and_copilot_are_obeyed(keys: dict[str, Any]) -> None:
    assert taken(read(**keys)) == ["read"]


def test_u14_a_star_of_copilot_takes_every_tool() -> None:
    assert taken(read(tools=["*"])) == ["read", "delete", "read[1]"]


@pytest.mark.parametrize("key", ["include", "includeTools", "enabled_tools", "tools"])
def test_u14_a_list_of_tools_to_take_without_a_tool_takes_none(key: str) -> None:
    assert taken(read(**{key: []})) == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("blockedTools", "exclude"),
        ("deny", "exclude"),
        ("ignore_tools", "exclude"),
        ("Blacklist", "exclude"),
        ("allowedTools", "include"),
        ("only", "include"),
        ("enabledTools", "enabled_tools"),
        ("disableTools", "disabledTools"),
    ],
)
def test_u14_another_word_for_leaving_out_is_an_error_with_ours(key: str, meant: str) -> None:
    (server,) = read(**{key: ["delete"]}).servers
    assert f"{key}: unknown key; did you mean `{meant}`?" in server.fault


@pytest.mark.parametrize("key", ["disabledPrompts", "disabledResources"])
def test_u14_a_key_that_protects_and_is_not_obeyed_is_a_warning(key: str) -> None:
    (warning,) = read(**{key: ["secret"]}).warnings
    assert f"`{key}`" in warning


@pytest.mark.parametrize("key", ["alwaysAllow", "autoApprove", "trust", "description"])
def test_u14_keys_of_clients_that_hide_nothing_are_silent(key: str) -> None:
    config = read(**{key: []})
    assert not config.warnings
    assert not config.servers[0].fault


def test_u14_tools_of_another_form_are_told() -> None:
    (server,) = read(tools={"delete": {"enabled": False}}).servers
    assert "tools" in server.fault
    assert "list of strings" in server.fault
