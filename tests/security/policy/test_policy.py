"""Which tools exist for a caller: sections in order, the strictest pattern of the first section that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_toolset import Identity, ToolBinding, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.policy import Policy

ALICE = Identity.of(None, "alice", roles=["admin"], scopes=["read"])
BOB = Identity.of(None, "bob")


def binding(name: str, server: str = "", own: str = "", hints: dict[str, bool] | None = None) -> ToolBinding:
    """A tool of a server, or a local one."""

    @tool(name=own or name)
    def made() -> None: ...

    bound = made.bind()
    definition = replace(bound.definition, annotations=hints)
    return replace(bound, name=name, source=server, definition=definition)


def kinds(policy: Policy, *bindings: ToolBinding, caller: Identity | None = None) -> list[str]:
    return [policy.decide(one, caller).kind for one in bindings]


def test_i3_without_a_rule_a_tool_is_allowed():
    assert Policy().decide(binding("a"), ALICE).kind == "allow"
    assert not Policy()


def test_i8_deny_outweighs_ask_and_ask_outweighs_allow():
    policy = Policy(allow=["*"], ask=["*_delete"], deny=["repo_*"])
    assert kinds(policy, binding("a"), binding("x_delete"), binding("repo_delete")) == [
        "allow",
        "ask",
        "deny",
    ]


def test_i8_an_allow_list_is_closed():
    policy = Policy(allow=["read_*"], ask=["pay"])
    assert kinds(policy, binding("read_a"), binding("write_a"), binding("pay")) == ["allow", "deny", "ask"]
    assert kinds(Policy(allow=[]), binding("read_a")) == ["deny"]


def test_i8_a_verdict_names_the_rule_that_decided():
    policy = Policy(deny=["*_secret"], roles={"admin": Policy(allow=["read_*"])})
    assert policy.decide(binding("a_secret"), BOB).rule == "policy.deny: *_secret"
    assert policy.decide(binding("read_secret"), ALICE).rule == "policy.roles['admin'].allow: read_*"
    assert "policy.roles['admin'].allow" in policy.decide(binding("other"), ALICE).rule
    assert policy.decide(binding("other"), BOB).rule == ""


def test_i3_sections_for_callers_are_asked_before_those_of_servers_and_the_general_one():
    policy = Policy(
        allow=["*"],
        deny=["github/*"],
        servers={"github": Policy(ask=["read"])},
        scopes={"read": Policy(deny=["gh_list"])},
        roles={"admin": Policy(allow=["gh_*"])},
        principals={"al*": Policy(ask=["gh_pay"])},
    )
    read, write, listing, pay = (
        binding(f"gh_{name}", "github", name) for name in ("read", "w", "list", "pay")
    )
    assert kinds(policy, read, write, listing, pay, caller=BOB) == ["ask", "deny", "deny", "deny"]
    assert kinds(policy, read, write, listing, pay, caller=ALICE) == ["allow", "allow", "allow", "ask"]
    assert kinds(policy, read, write, caller=None) == ["ask", "deny"]


def test_i3_an_allow_list_of_a_server_closes_that_server_alone():
    policy = Policy(servers={"github": Policy(allow=["read"])})
    tools = [binding("gh_read", "github", "read"), binding("gh_w", "github", "w"), binding("w", "files", "w")]
    assert kinds(policy, *tools) == ["allow", "deny", "allow"]


@pytest.mark.parametrize(
    "pattern", ["github/delete_repo", "github/*", "*/delete_repo", "gh_delete_repo", "*_repo"]
)
def test_i8_a_pattern_is_compared_with_the_public_name_and_with_the_servers_own(pattern: str):
    tool = binding("gh_delete_repo", "github", "delete_repo")
    assert kinds(Policy(deny=[pattern]), tool) == ["deny"]
    assert kinds(Policy(deny=[pattern]), binding("other", "files", "other")) == ["allow"]


def test_i8_a_tool_that_had_to_take_another_name_is_still_the_hosts():
    tool = replace(binding("read_1f2e", "github", "read"), asked="read")
    assert kinds(Policy(deny=["read"]), tool) == ["deny"]


def test_i8_own_names_alone_allow_in_the_section_of_their_server_only():
    tool = binding("gh_read", "github", "read")
    assert kinds(Policy(allow=["read"]), tool) == ["deny"]
    assert kinds(Policy(servers={"github": Policy(allow=["read"])}), tool) == ["allow"]


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        (Policy(deny=["read"]), "deny"),
        (Policy(deny=["re*"]), "deny"),
        (Policy(deny=["destructive:read"]), "deny"),
        (Policy(deny=["read"], allow=["*"]), "deny"),
        (Policy(ask=["read"]), "ask"),
        (Policy(ask=["read"], allow=["*"]), "ask"),
        (Policy(ask=["read"], allow=["github/*"]), "ask"),
        (Policy(ask=["read"], deny=["gh_*"]), "deny"),
        (Policy(ask=["read"], allow=["other"]), "deny"),
        (Policy(ask=["read"], servers={"github": Policy(deny=["*"])}), "deny"),
        (Policy(deny=["read"], servers={"github": Policy(allow=["*"])}), "allow"),
        (Policy(deny=["read_all"]), "allow"),
    ],
)
def test_u73_a_tools_own_name_denies_and_asks_at_every_server_and_loosens_nothing(
    policy: Policy, verdict: str
):
    assert kinds(policy, binding("gh_read", "github", "read")) == [verdict]


HINTED: list[tuple[str, dict[str, bool], bool]] = [
    ("destructive", {}, True),
    ("destructive", {"readOnlyHint": True}, False),
    ("destructive", {"destructiveHint": False}, False),
    ("destructive", {"readOnlyHint": True, "destructiveHint": True}, True),
    ("readOnly", {}, False),
    ("readOnly", {"readOnlyHint": True}, True),
    ("readOnly", {"readOnlyHint": True, "destructiveHint": True}, False),
    ("idempotent", {}, False),
    ("idempotent", {"idempotentHint": True}, True),
    ("openWorld", {}, True),
    ("openWorld", {"openWorldHint": False}, False),
]


@pytest.mark.parametrize(("hint", "annotations", "holds"), HINTED)
def test_i8_hints_count_as_the_protocol_says_where_they_are_missing(
    hint: str, annotations: dict[str, bool], holds: bool
):
    policy = Policy(deny=[f"{hint}:a*"])
    assert kinds(policy, binding("a", hints=annotations)) == ["deny" if holds else "allow"]
    assert kinds(policy, binding("b", hints=annotations)) == ["allow"]


def test_i8_the_annotations_of_a_tool_may_change_under_one_policy():
    policy = Policy(deny=["destructive:*"])
    read = binding("a", hints={"readOnlyHint": True})
    assert kinds(policy, read, binding("a"), read) == ["allow", "deny", "allow"]


def test_i3_a_key_is_compared_as_it_is_written_and_never_as_a_pattern():
    policy = Policy(principals={BOB.key: Policy(deny=["*"])})
    assert BOB.key.startswith("[")
    assert kinds(policy, binding("a"), caller=BOB) == ["deny"]
    # As a set of characters the key would fit the name `b`.
    assert kinds(policy, binding("a"), caller=Identity.of(None, "b")) == ["allow"]
    assert kinds(policy, binding("a"), caller=Identity.of(None, "bob", "https://idp")) == ["allow"]


def test_i3_callers_of_one_group_are_told_apart_by_nothing():
    policy = Policy(roles={"admin": Policy(deny=["a"])}, scopes={"write": Policy(deny=["b"])})
    writer = Identity.of(None, "w", scopes=["write"])
    assert policy.group(BOB) == policy.group(None) == policy.group(Identity.of("x"))
    assert len({policy.group(BOB), policy.group(ALICE), policy.group(writer)}) == 3
    assert policy.varies
    assert not Policy(deny=["a"]).varies


def test_i8_a_pattern_that_names_nothing_is_refused():
    wrong: list[Any] = [{"deny": [""]}, {"ask": ["destructive:"]}, {"allow": ["readonly:*"]}, {"deny": "*"}]
    told: list[str] = []
    for one in wrong:
        with pytest.raises(DefinitionError) as refused:
            Policy(**one)
        told.append(str(refused.value))
    assert "policy.deny" in told[0]
    assert "names no tool" in told[1]
    assert "did you mean `readOnly:*`?" in told[2]
    assert "takes a list of patterns" in told[3]


def test_i8_rules_for_callers_do_not_nest():
    with pytest.raises(DefinitionError, match="rules for some callers"):
        Policy(roles={"a": Policy(scopes={"b": Policy()})})


@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_u75_patterns_that_can_be_read_once_apply(kind: str) -> None:
    once: Any = {kind: (pattern for pattern in ["pay"])}

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    assert kinds(Policy(**once), pay.bind()) == [kind]


def test_u75_rules_for_callers_that_are_no_policy_are_refused() -> None:
    wrong: Any = {"admin": {"deny": ["pay"]}}
    with pytest.raises(DefinitionError, match=r"policy.roles\['admin'\] takes a Policy"):
        Policy(roles=wrong)


def test_i3_each_kind_that_a_section_names_has_to_match():
    from mcp_toolset.security.patterns import Permissions, Section

    section = Section("for[0]", deny=("*",), principals=("alice", "bob"), roles=("admin",))
    policy = Policy.of(Permissions(callers=(section,)))
    assert kinds(policy, binding("a"), caller=ALICE) == ["deny"]
    assert kinds(policy, binding("a"), caller=BOB) == ["allow"]
    assert kinds(policy, binding("a"), caller=None) == ["allow"]
