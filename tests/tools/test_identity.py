"""The authenticated caller as a value: what tells two callers apart, and what is shown of one (I1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import Identity
from mcp_toolset.rounds import RoundContext

_PART = st.none() | st.text(max_size=8)


@given(st.tuples(_PART, _PART, _PART), st.tuples(_PART, _PART, _PART))
def test_i1_two_callers_have_one_key_only_if_client_subject_and_issuer_are_equal(
    one: tuple[str | None, ...], other: tuple[str | None, ...]
) -> None:
    assert (Identity.of(*one).key == Identity.of(*other).key) == (one == other)


def test_i1_the_name_is_the_subject_else_the_client_else_the_key() -> None:
    assert Identity.of("app", "ann", "https://idp").name == "ann"
    assert Identity.of("ci").name == "ci"
    assert Identity("key").name == Identity("key").display_name == "key"
    assert Identity("key").is_authenticated


def test_i7_an_identity_does_not_show_its_claims() -> None:
    assert "ann@example.com" not in repr(Identity.of("app", claims={"email": "ann@example.com"}))


def test_i1_a_loop_passes_a_name_or_an_identity() -> None:
    ann = Identity.of("app", "ann", roles={"admin"})
    assert (RoundContext(principal=ann).principal, RoundContext(principal=ann).identity) == (ann.key, ann)
    assert (RoundContext(principal="ann").principal, RoundContext(principal="ann").identity) == ("ann", None)
