import re
import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mcp_toolset import Tool, Toolset
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.definition import (
    check_public_name,
    mounted_name,
    plain_prefix,
    prefix_from,
    public_name,
    qualified,
)

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")
ALPHABET = string.ascii_letters + string.digits + "_-"
any_names = st.text(st.characters(), min_size=1, max_size=200)
prefixes = st.text(ALPHABET, min_size=1, max_size=32)
legal = st.text(ALPHABET, min_size=1, max_size=64)


@given(any_names, st.just("") | prefixes)
@example("x" * 65, "")
def test_h23_every_public_name_fits_the_budget_and_the_alphabet(name: str, prefix: str):
    public = public_name(name, prefix=prefix)
    assert ACCEPTED.fullmatch(public)
    assert public == public_name(name, prefix=prefix)


@given(legal)
def test_h23_a_name_that_fits_stays_as_it_is(name: str):
    assert public_name(name) == name


@given(st.sets(any_names, min_size=2, max_size=30), st.just("") | prefixes)
@example({f"a{illegal}" for illegal in "._ äé"}, "")
@example({"x" * length + end for length in (62, 63, 64, 999) for end in "abc"}, "")
def test_h23_different_names_stay_different(names: set[str], prefix: str):
    assert len({public_name(name, prefix=prefix) for name in names}) == len(names)


@given(legal, any_names, any_names)
def test_f16_a_qualified_name_is_told_apart_by_its_identity(name: str, one: str, other: str):
    assume(one != other)
    assert ACCEPTED.fullmatch(qualified(name, one))
    assert qualified(name, one) != qualified(name, other)


@pytest.mark.parametrize("prefix", ["", "a b", "a.b", "x" * 33, "é", "gh\n"])
def test_p1_a_prefix_that_cannot_start_a_name_is_refused_with_what_it_may_be(prefix: str):
    with pytest.raises(DefinitionError, match="use 1 to 32 of"):
        Toolset().prefixed(prefix)


@given(any_names, any_names)
def test_h23_a_prefix_can_be_made_of_any_server_name_and_tells_servers_apart(one: str, other: str):
    assert Toolset().prefixed(prefix_from(one)).names() == []
    assert (prefix_from(one) == prefix_from(other)) == (one == other)


@pytest.mark.parametrize("name", ["a", "with.dot", "x" * 128, "A-b_9"])
def test_h9_names_that_the_protocol_allows_are_kept(name: str):
    assert Tool.from_schema(name, {}).name == name


@pytest.mark.parametrize("name", ["", "two words", "x" * 129, "größe", "a/b", "line\n"])
def test_h9_a_name_that_the_protocol_refuses_is_an_error_that_says_where(name: str):
    with pytest.raises(DefinitionError, match="a tool cannot be named .*1 to 128"):
        Tool.from_schema(name, {})


servers = st.text(ALPHABET, min_size=1, max_size=32).map(prefix_from) | any_names.map(prefix_from)
tricky = st.text("ab_-", min_size=1, max_size=6)


@given(st.sets(st.tuples(tricky.map(prefix_from), tricky), min_size=2, max_size=40))
def test_h23_f16_names_of_two_servers_of_a_hub_never_meet(pairs: set[tuple[str, str]]):
    owners: dict[str, str] = {}
    for prefix, name in sorted(pairs):
        assert owners.setdefault(mounted_name(prefix, name), prefix) == prefix


@given(servers, any_names)
def test_h23_a_name_in_a_hub_fits_every_client_and_is_made_of_its_own_two_parts(prefix: str, name: str):
    made = mounted_name(prefix, name)
    assert ACCEPTED.fullmatch(made) and made.startswith(prefix[:56])
    assert made == mounted_name(prefix, name)


@given(servers, st.sets(any_names, min_size=2, max_size=20))
def test_h23_tools_of_one_server_meet_only_where_one_repeats_its_name(prefix: str, names: set[str]):
    plain = {name for name in names if name[: len(prefix)].lower() != prefix.lower()}
    assert len({mounted_name(prefix, name) for name in plain}) == len(plain)


@pytest.mark.parametrize(
    ("prefix", "name", "made"),
    [
        ("git", "log", "git_log"),
        ("git", "git_log", "git_log"),
        ("GitHub", "github-search", "GitHub_search"),
        ("search", "search", "search_search"),
        ("git", "git_", "git_git_"),
        ("a", "b_c", "a_b_c"),
        ("a_b", "c", "a_b__c"),
        ("a", "b__c", "a__b__c"),
        ("a", "_c", "a___c"),
        ("my_git", "my_git_log", "my_git__log"),
        ("a-b", "c_d", "a-b_c_d"),
    ],
)
def test_h23_f16_names_in_a_hub_are_short_and_say_whose_they_are(prefix: str, name: str, made: str):
    assert mounted_name(prefix, name) == made


def test_f16_a_tool_cannot_be_given_the_name_of_one_that_has_a_digest():
    victim = mounted_name("a", "long" * 30)
    assert mounted_name("a", victim.removeprefix("a_")) != victim


@pytest.mark.parametrize(("written", "read"), [("gh", "gh"), ("gh_", "gh"), ("a__b", "a_b"), ("_x", "_x")])
def test_h23_a_prefix_that_somebody_chose_has_single_underscores(written: str, read: str):
    assert plain_prefix(written) == read


@pytest.mark.parametrize("prefix", ["", "___", "a.b"])
def test_h23_a_prefix_of_nothing_is_refused(prefix: str):
    with pytest.raises(DefinitionError, match="use 1 to 32 of"):
        plain_prefix(prefix)


@pytest.mark.parametrize("name", ["", "my.tool", "x" * 65, "a b"])
def test_h9_h23_a_name_that_somebody_chose_to_be_served_under_has_to_fit(name: str):
    with pytest.raises(DefinitionError, match="^here: a tool cannot be served as .*1 to 64"):
        check_public_name(name, "here")
    assert check_public_name("fine-1", "here") == "fine-1"
