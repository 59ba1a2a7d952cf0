"""`permissions` of a configuration file: what is read, and what an error says (I8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.config import config_of

from mcp_toolset import Identity
from mcp_toolset.config.models import HubConfig
from mcp_toolset.errors import ConfigError
from mcp_toolset.policy import Policy
from mcp_toolset.security.patterns import Permissions, Section, ToolFacts


def read(toolset: Any = None, server: Any = None) -> HubConfig:
    entry = {"command": "x", **({} if server is None else {"permissions": server})}
    section = {} if toolset is None else {"permissions": toolset}
    return config_of({"mcpServers": {"github": entry}, "toolset": section}, source=Path("tools.json"))


def test_i8_permissions_are_read_with_their_places() -> None:
    config = read(
        {"allow": ["*"], "ask": ["*_delete"], "for": [{"roles": ["admin"], "scopes": ["w"], "deny": ["a"]}]},
        {"deny": ["secret"], "allow": []},
    )
    assert config.permissions == Permissions(
        Section("toolset.permissions", ("*",), ("*_delete",)),
        {"github": Section("mcpServers.github.permissions", (), (), ("secret",))},
        (Section("toolset.permissions.for[0]", deny=("a",), roles=("admin",), scopes=("w",)),),
    )


def test_i8_a_caller_is_named_by_the_parts_of_its_key() -> None:
    key = ["desktop", "https://idp.example", "Müller"]
    config = read({"for": [{"principals": [key, ["ci", None, None]], "deny": ["read"]}]})
    policy, tool = Policy.of(config.permissions), ToolFacts("read", "", "github", "read")
    named = Identity.of("desktop", issuer="https://idp.example", subject="Müller")
    for identity, decision in ((named, "deny"), (Identity.of("ci"), "deny"), (Identity.of("cd"), "allow")):
        assert policy.decide_facts(tool, policy.group(identity)).kind == decision


def test_i8_a_file_without_permissions_has_none() -> None:
    assert not read().permissions
    assert not read({}).permissions
    assert read({"allow": []}).permissions


def test_i8_permissions_of_a_server_start_nothing_anew() -> None:
    [before], [after] = read().servers, read(server={"deny": ["*"]}).servers
    assert before != after
    assert before.reached() == after.reached()


WRONG: list[tuple[Any, str, str]] = [
    ({"deney": ["a"]}, "toolset.permissions.deney: unknown option", "did you mean `deny`?"),
    ({"deny": "a"}, "toolset.permissions.deny: ", "write `deny` as a list of strings"),
    ({"deny": [""]}, "toolset.permissions.deny[0]: names no tool", "write a name or a pattern"),
    ({"ask": ["a", "destructive:"]}, "toolset.permissions.ask[1]: names no tool", "such as `*`"),
    ({"allow": ["readonly:*"]}, "toolset.permissions.allow[0]: ", "did you mean `readOnly:*`?"),
    (["a"], "toolset.permissions: must be an object", "write it as"),
    ({"for": {}}, "toolset.permissions.for: ", "write `for` as a list of objects"),
    ({"for": [{"deny": ["a"]}]}, "toolset.permissions.for[0]: does not say for which callers", "`roles`"),
    ({"for": [{"roles": ["a"]}]}, "toolset.permissions.for[0]: has no rules", "add `allow`"),
    ({"for": [{"roles": [], "deny": ["a"]}]}, "toolset.permissions.for[0].roles: ", "write `roles` as"),
    (
        {"for": [{"principals": [["a"]], "deny": ["b"]}]},
        "toolset.permissions.for[0].principals",
        "[client, issuer",
    ),
    ({"for": [{"role": ["a"], "deny": ["a"]}]}, "toolset.permissions.for[0].role: ", "did you mean `roles`?"),
    ({"for": [{"roles": ["a"], "deny": [""]}]}, "toolset.permissions.for[0].deny[0]: ", "names no tool"),
]


@pytest.mark.parametrize(("section", "where", "mend"), WRONG)
def test_i8_what_is_wrong_in_permissions_is_said_with_its_place(section: Any, where: str, mend: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(section)
    assert str(refused.value).startswith(f"tools.json: {where}")
    assert mend in str(refused.value)


@pytest.mark.parametrize("section", [{"deny": 1}, {"deney": []}, {"for": []}, {"ask": [""]}])
def test_i8_a_server_whose_permissions_are_wrong_is_not_served(section: Any) -> None:
    (server,) = read(server=section).servers
    assert "mcpServers.github.permissions" in server.fault


def test_i8_a_misspelt_key_of_a_server_is_no_permission() -> None:
    config = config_of(
        {"mcpServers": {"github": {"command": "x", "permission": {"deny": ["*"]}}}}, source=Path("tools.json")
    )
    assert "did you mean `permissions`?" in config.servers[0].fault
