"""A compiled policy decides as a naive reading of its sections does, and rules never widen by a `deny`."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import Identity
from mcp_toolset.policy import Policy
from mcp_toolset.security.patterns import HINTS, Permissions, Section, ToolFacts

NAMES = ["a", "b", "a_b", "s/a", "[ab]", "b_a", ""]
PATTERNS = ["*", "a", "b", "a*", "*b", "s/*", "?/a", "s/a", "[ab]", "*_?", "destructive:*", "readOnly:a*"]
WHO = ["alice", "bob", "carol"]
ROLES = ["admin", "guest"]

patterns = st.lists(st.sampled_from(PATTERNS), max_size=3).map(tuple)
some = st.none() | st.lists(st.sampled_from(ROLES), min_size=1, max_size=2).map(tuple)


def sections(
    place: str, **of_callers: st.SearchStrategy[tuple[str, ...] | None]
) -> st.SearchStrategy[Section]:
    return st.builds(
        Section, st.just(place), allow=st.none() | patterns, ask=patterns, deny=patterns, **of_callers
    )


callers = sections(
    "for",
    principals=st.none() | st.lists(st.sampled_from([*WHO, "*l*"]), min_size=1, max_size=2).map(tuple),
    roles=some,
    scopes=some,
)
permissions = st.builds(
    Permissions,
    sections("general"),
    st.dictionaries(st.sampled_from(["s", "t"]), sections("server"), max_size=2),
    st.lists(callers, max_size=3).map(tuple),
)
tools = st.builds(
    ToolFacts,
    st.sampled_from(NAMES[:-1]),
    st.sampled_from(["", "a"]),
    st.sampled_from(["", "s", "t"]),
    st.sampled_from(["a", "b", "x/y"]),
    st.frozensets(st.sampled_from(sorted(HINTS))),
)
identities = st.none() | st.builds(
    lambda who, roles, scopes: Identity.of(None, who, roles=roles, scopes=scopes),
    st.sampled_from(WHO),
    st.frozensets(st.sampled_from(ROLES)),
    st.frozensets(st.sampled_from(ROLES)),
)


def fits(pattern: str, names: list[str], hints: frozenset[str]) -> bool:
    for hint in HINTS:
        if pattern.startswith(f"{hint}:"):
            return hint in hints and fits(pattern.removeprefix(f"{hint}:"), names, hints)
    return any(pattern == name or fnmatchcase(name, pattern) for name in names)


def concerns(section: Section, caller: Identity | None) -> bool:
    if caller is None:
        return False
    who, roles, scopes = section.principals, section.roles, section.scopes
    return (
        (who is None or any(fnmatchcase(caller.name, one) for one in who))
        and (roles is None or bool(set(roles) & caller.roles))
        and (scopes is None or bool(set(scopes) & caller.scopes))
    )


def naive(rules: Permissions, tool: ToolFacts, caller: Identity | None) -> str:
    asked = [section for section in rules.callers if concerns(section, caller)]
    own = rules.servers.get(tool.server)
    asked += [own] if own else []
    asked += [rules.general]
    for section in asked:
        names = [name for name in (tool.name, tool.asked) if name]
        names += [f"{tool.server}/{tool.own}"] if tool.server else []
        names += [tool.own] if section is own else []
        for kind, listed in (("deny", section.deny), ("ask", section.ask), ("allow", section.allow or ())):
            every = [*names, tool.own] if kind == "deny" else names  # a deny is for the own name, too
            if any(fits(pattern, every, tool.hints) for pattern in listed):
                return kind
    return "deny" if any(section.allow is not None for section in asked) else "allow"


@given(permissions, tools, identities)
def test_i3_a_compiled_policy_decides_as_a_naive_one(
    rules: Permissions, tool: ToolFacts, caller: Identity | None
):
    policy = Policy.of(rules)
    assert policy.decide_facts(tool, policy.group(caller)).kind == naive(rules, tool, caller)


@given(permissions, tools, identities, st.sampled_from(PATTERNS), st.integers(0, 5))
def test_i8_one_more_deny_never_shows_more(
    rules: Permissions, tool: ToolFacts, caller: Identity | None, pattern: str, at: int
):
    def denying(section: Section) -> Section:
        return Section(
            section.place,
            section.allow,
            section.ask,
            (*section.deny, pattern),
            section.principals,
            section.roles,
            section.scopes,
        )

    every = [*rules.callers, *rules.servers.values(), rules.general]
    chosen = every[at % len(every)]
    stricter = Permissions(
        denying(rules.general) if chosen is rules.general else rules.general,
        {name: denying(one) if one is chosen else one for name, one in rules.servers.items()},
        tuple(denying(one) if one is chosen else one for one in rules.callers),
    )
    before, after = Policy.of(rules), Policy.of(stricter)
    if before.decide_facts(tool, before.group(caller)).kind == "deny":
        assert after.decide_facts(tool, after.group(caller)).kind == "deny"


@given(permissions, tools, identities, identities)
def test_i3_callers_of_one_group_get_the_same_verdict(
    rules: Permissions, tool: ToolFacts, one: Identity | None, other: Identity | None
):
    policy = Policy.of(rules)
    if policy.group(one) == policy.group(other):
        assert naive(rules, tool, one) == naive(rules, tool, other)
    assert (policy.group(one) == policy.group(other)) == (
        [concerns(section, one) for section in rules.callers]
        == [concerns(section, other) for section in rules.callers]
    )


@given(permissions, tools, identities)
def test_i8_a_verdict_of_a_rule_names_it_and_the_looks_end_with_it(
    rules: Permissions, tool: ToolFacts, caller: Identity | None
):
    policy = Policy.of(rules)
    verdict = policy.decide_facts(tool, policy.group(caller))
    *before, last = policy.looks(tool, policy.group(caller))
    assert all(look.kind is None for look in before)
    if last.kind is None:
        assert verdict.kind == ("deny" if verdict.rule else "allow")
    else:
        assert verdict.rule == f"{last.section.place}.{last.kind}: {last.pattern}"
