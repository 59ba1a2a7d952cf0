"""Tokens that an operator gives to programs: who holds one, and which are refused when a server is made."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from mcp_toolset.auth import StaticToken, StaticTokens
from mcp_toolset.errors import DefinitionError

pytestmark = pytest.mark.anyio

CI, ANN = "ci-0123456789abcdef", "ann-0123456789abcdef"


async def test_i1_a_token_stands_for_its_holder_with_roles_and_scopes() -> None:
    tokens = StaticTokens({"ci": CI, "ann": StaticToken(ANN, ["admin"], ["read", "write"])})
    ann = await tokens.verify(ANN)
    assert ann is not None
    assert (ann.name, ann.roles, ann.scopes, ann.expires) == ("ann", {"admin"}, {"read", "write"}, None)
    ci = await tokens.verify(CI)
    assert ci is not None and ci.key != ann.key and not ci.roles
    assert await tokens.verify(CI[:-1]) is None
    assert await tokens.verify(CI + "x") is None
    assert await tokens.verify("") is None


class Watched:
    """The module `hmac`, watched."""

    compared: list[bytes] = []

    @classmethod
    def compare_digest(cls, one: bytes, other: bytes) -> bool:
        cls.compared.append(one)
        return hmac.compare_digest(one, other)


async def test_i1_every_entry_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:

    tokens = StaticTokens({"ci": CI, "ann": ANN})
    monkeypatch.setattr("mcp_toolset.extensions.inbound_auth.verifiers.static_tokens.hmac", Watched)
    await tokens.verify(CI)
    assert [len(one) for one in Watched.compared] == [32, 32]


async def test_i1_tokens_are_read_from_the_environment() -> None:
    environ = {"CI_TOKEN": CI, "ANN_TOKEN": f" {ANN}\n"}
    tokens = StaticTokens.from_env("CI_TOKEN", "ann=ANN_TOKEN", roles=["robot"], environ=environ)
    found = [await tokens.verify(token) for token in (CI, ANN)]
    assert [one and (one.name, one.roles) for one in found] == [("CI_TOKEN", {"robot"}), ("ann", {"robot"})]


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ({}, "no token is given"),
        ({"ci": "short"}, "fewer than 16 characters"),
        ({" ": CI}, "has no name"),
        ({"ci": CI + " and more"}, "characters that no header takes"),
        ({"ci": CI + "\n"}, "characters that no header takes"),
        ({"ci": CI + "é"}, "characters that no header takes"),
        ({"ci": CI, "cd": CI}, "the tokens ci and cd are the same"),
    ],
)
def test_i1_a_token_that_protects_nothing_is_refused_without_being_shown(tokens: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=told) as refused:
        StaticTokens(tokens)
    assert not any(token in str(refused.value) for token in tokens.values())


@pytest.mark.parametrize("written", ["NOPE", "ci=NOPE", "EMPTY"])
def test_i1_a_variable_without_a_token_is_named(written: str) -> None:
    with pytest.raises(DefinitionError, match=r"variable (NOPE|EMPTY) is not set"):
        StaticTokens.from_env(written, environ={"EMPTY": ""})
    with pytest.raises(DefinitionError, match="given twice"):
        StaticTokens.from_env("a=CI", "a=ANN", environ={"CI": CI, "ANN": ANN})


def test_i1_no_repr_shows_a_token() -> None:
    assert CI not in repr(StaticToken(CI)) + repr(StaticTokens({"ci": CI}))
