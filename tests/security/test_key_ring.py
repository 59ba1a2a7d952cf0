"""What a ring of keys has sealed opens for its purpose and with what it is bound to alone."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.errors import SecretError
from mcp_toolset.shared import KeyRing

OLD, NEW = b"o" * 32, b"n" * 32


@given(st.binary(max_size=200), st.text(max_size=20), st.text(max_size=20))
def test_r3_what_is_sealed_opens_again(data: bytes, purpose: str, bound: str) -> None:
    ring = KeyRing([NEW])
    assert ring.open(purpose, ring.seal(purpose, data, bound=bound), bound=bound) == data


@given(st.binary(max_size=40), st.data())
def test_r3_a_token_that_was_altered_does_not_open(data: bytes, draw: st.DataObject) -> None:
    ring = KeyRing([NEW])
    raw = bytearray(base64.urlsafe_b64decode(ring.seal("a", data) + "=="))
    raw[draw.draw(st.integers(0, len(raw) - 1))] ^= draw.draw(st.integers(1, 255))
    assert ring.open("a", base64.urlsafe_b64encode(raw).rstrip(b"=").decode()) is None


def test_r3_a_token_opens_for_its_purpose_and_caller_alone() -> None:
    ring = KeyRing([NEW])
    token = ring.seal("session", b"x", bound="alice")
    assert ring.open("request", token, bound="alice") is None
    assert ring.open("session", token, bound="bob") is None
    assert KeyRing([OLD]).open("session", token, bound="alice") is None


def test_r3_keys_rotate() -> None:
    token = KeyRing([OLD]).seal("session", b"x")
    assert KeyRing([NEW, OLD]).open("session", token) == b"x"
    assert KeyRing([OLD]).open("session", KeyRing([NEW, OLD]).seal("session", b"x")) is None


@pytest.mark.parametrize("token", ["", "é", "A", "====", "A" * 200])
def test_r3_what_is_no_token_does_not_open(token: str) -> None:
    assert KeyRing([NEW]).open("session", token) is None


@pytest.mark.parametrize(
    ("text", "said"), [("", "has no key"), ("c2hvcnQ=", "fewer than 32 bytes"), ("!", "key 1 of the ring")]
)
def test_r3_keys_that_are_none_are_told(text: str, said: str) -> None:
    with pytest.raises(SecretError, match=said):
        KeyRing.of_text(text)


def test_r3_keys_are_read_from_a_variable() -> None:
    text = f"{base64.b64encode(NEW).decode()}, {base64.urlsafe_b64encode(OLD).decode()}"
    assert KeyRing.of_text(text).open("a", KeyRing([OLD]).seal("a", b"x")) == b"x"
