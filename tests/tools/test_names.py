import re
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.names import (
    MAX_NAME_LENGTH,
    check_name,
    check_prefix,
    prefix_from,
    public_name,
    qualified,
)

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")
ALPHABET = string.ascii_letters + string.digits + "_-"
any_names = st.text(st.characters(), min_size=1, max_size=200)
prefixes = st.text(ALPHABET, min_size=1, max_size=32)
legal = st.text(ALPHABET, min_size=1, max_size=MAX_NAME_LENGTH)


@given(any_names, st.just("") | prefixes)
def test_h23_every_public_name_fits_the_budget_and_the_alphabet(name: str, prefix: str):
    public = public_name(name, prefix=prefix)
    assert ACCEPTED.fullmatch(public)
    assert public == public_name(name, prefix=prefix)


@given(legal)
def test_h23_a_name_that_fits_stays_as_it_is(name: str):
    assert public_name(name) == name


@given(any_names)
def test_h23_making_a_name_public_twice_changes_nothing_more(name: str):
    assert public_name(public_name(name)) == public_name(name)


@given(st.sets(any_names, min_size=2, max_size=30), st.just("") | prefixes)
def test_h23_different_names_stay_different(names: set[str], prefix: str):
    assert len({public_name(name, prefix=prefix) for name in names}) == len(names)


@given(st.text("ab._", min_size=1, max_size=3), st.text("ab._", min_size=1, max_size=3))
def test_h23_names_that_differ_only_in_illegal_characters_stay_different(one: str, other: str):
    assume(one != other)
    assert public_name(one) != public_name(other)


@pytest.mark.parametrize("length", [63, 64, 65, 128, 1000])
def test_h23_long_names_that_differ_at_the_end_stay_different(length: int):
    names = {public_name("x" * (length - 1) + end) for end in "abc"}
    assert len(names) == 3
    assert all(len(name) <= MAX_NAME_LENGTH for name in names)


@given(legal, any_names, any_names)
def test_f16_a_qualified_name_is_told_apart_by_its_identity(name: str, one: str, other: str):
    assume(one != other)
    assert ACCEPTED.fullmatch(qualified(name, one))
    assert qualified(name, one) != qualified(name, other)


@pytest.mark.parametrize("prefix", ["", "a b", "a.b", "x" * 33, "é", "gh\n"])
def test_p1_a_prefix_that_cannot_start_a_name_is_refused_with_what_it_may_be(prefix: str):
    with pytest.raises(DefinitionError, match="use 1 to 32 of"):
        check_prefix(prefix)


@given(any_names, any_names)
def test_h23_a_prefix_can_be_made_of_any_server_name_and_tells_servers_apart(one: str, other: str):
    assert check_prefix(prefix_from(one)) == prefix_from(one)
    assert (prefix_from(one) == prefix_from(other)) == (one == other)


@pytest.mark.parametrize("name", ["a", "with.dot", "x" * 128, "A-b_9"])
def test_h9_names_that_the_protocol_allows_are_kept(name: str):
    assert check_name(name, "here") == name


@pytest.mark.parametrize("name", ["", "two words", "x" * 129, "größe", "a/b", "line\n"])
def test_h9_a_name_that_the_protocol_refuses_is_an_error_that_says_where(name: str):
    with pytest.raises(DefinitionError, match="^here: a tool cannot be named .*1 to 128"):
        check_name(name, "here")
