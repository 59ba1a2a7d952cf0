"""Profiles in a file: what they become, and which mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.config import config_of

from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError
from mcp_toolset.extensions.profiles.settings import Profile

EXAMPLES = Path(__file__).parents[3] / "examples" / "profiles"
GIT = {"command": "git-server"}


def profiles_of(section: Any, **more: Any) -> dict[str, Profile]:
    read = config_of({"toolset": {"profiles": section, **more}, "mcpServers": {"git": GIT}})
    return dict(read.extensions["profiles"].profiles)


def test_k4_the_examples_are_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_config(EXAMPLES / "mcp.json").extensions["profiles"].profiles
    assert [*found] == ["reading", "triage"]
    triage = found["triage"].options
    assert (triage.tools, triage.defers) == (("github/*", "readOnly:notes/*"), True)
    assert triage.permissions is not None and triage.permissions.general.ask == ("destructive:*",)
    assert triage.settings["limits"].limits["*"].rate == "30/min"
    for name in ("ANN_TOKEN", "CI_TOKEN"):
        monkeypatch.setenv(name, f"{name}-of-32-characters-0123456789abc")
    found = load_config(EXAMPLES / "logins.json").extensions["profiles"].profiles
    assert (found["oncall"].callers.roles, found["ci"].callers.principals) == (("oncall",), ("ci",))


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("work", "profiles: must be an object such as"),
        ({"Work": {}}, "profiles.Work: is no name of a profile"),
        ({"work": []}, "profiles.work: must be an object"),
        ({"work": {"tools": []}}, "profiles.work.tools: "),
        (
            {"work": {"tools": ["gti/*"]}},
            "profiles.work.tools[0]: there is no server `gti`; did you mean `git/*`?",
        ),
        ({"work": {"tools": ["git/{a,b}"]}}, "profiles.work.tools[0]: "),
        ({"work": {"tool": ["git/*"]}}, "profiles.work.tool: unknown option; did you mean `tools`?"),
        (
            {"work": {"names": {"git_a": "b", "git_b": "b"}}},
            "profiles.work.names.git_b: is called `b`, as `git_a` is",
        ),
        ({"work": {"names": {"git_a": "no name"}}}, "profiles.work.names.git_a: "),
        ({"work": {"surface": "lists"}}, "profiles.work.surface: "),
        ({"work": {"limits": {"*": {"rat": "1/min"}}}}, 'profiles.work.limits["*"].rat: unknown limit'),
        ({"work": {"permissions": {"deny": []}}}, "profiles.work.permissions.deny: is empty"),
        ({"work": {"auth": {}}}, "profiles.work.auth: does not say for which callers it is"),
        ({"work": {"tools": [3]}}, "profiles.work.tools[0]: "),
        (
            {"work": {"names": {"git_a": "search_tools"}}},
            "profiles.work.names.git_a: is called `search_tools`, which is a name of the bridge's own tools",
        ),
        (
            {"work": {"names": {"git_a": "jot"}, "permissions": {"deny": ["jot"]}}},
            "profiles.work.permissions: `jot` fits the new name `jot`",
        ),
        (
            {"work": {"names": {"git_a": "jot"}, "permissions": {"for": [{"roles": ["a"], "ask": ["jo*"]}]}}},
            "profiles.work.permissions: `jo*` fits the new name `jot`",
        ),
        (
            {"work": {"names": {"git_a": "jot"}, "limits": {"destructive:jot": {"calls": 1}}}},
            "profiles.work.limits: `destructive:jot` fits the new name `jot`",
        ),
        (
            {"work": {"names": {"git_a": "jot"}, "tools": ["jot"]}},
            "profiles.work.tools: `jot` fits the new name `jot`",
        ),
        (None, "profiles: "),
    ],
)
def test_k4_a_mistake_is_told_with_its_place(section: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        profiles_of(section)
    assert f"toolset.{told}" in str(caught.value)


@pytest.mark.parametrize(
    "profile",
    [
        {"names": {"git_a": "git_b", "git_b": "git_a"}, "permissions": {"deny": ["git_a"]}},
        {"names": {"git_a": "a"}, "permissions": {"deny": ["a", "*", "git/a"]}},
        {"names": {"git_a": "git_x"}, "tools": ["git_*", "git/*"], "limits": {"*": {"calls": 1}}},
    ],
)
def test_k4_a_rule_for_the_name_at_the_hub_is_none_for_a_new_name(profile: dict[str, Any]) -> None:
    assert [*profiles_of({"work": profile})] == ["work"]


@pytest.mark.parametrize("auth", [True, {"roles": ["a"]}])
def test_k4_a_login_needs_somebody_who_says_who_calls(auth: Any) -> None:
    read = config_of({"toolset": {"profiles": {"work": {"auth": auth}}}, "mcpServers": {"git": GIT}})
    with pytest.raises(ConfigError, match="is for some callers, and nothing says who calls"):
        read.check_callers()
