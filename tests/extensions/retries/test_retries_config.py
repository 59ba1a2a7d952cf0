"""`retries` and `breaker` of a server's entry are read where they hold; a mistake is one line."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.config import config_of
from tests.test_config import server, server_refusal

from mcp_toolset import RemoteToolset, load_toolset

GIT = {"command": "git-server"}


def stated(entry: dict[str, Any]) -> list[Any]:
    """What the mount of an entry has of retries and breakers."""
    mount: Any = load_toolset(config_of({"mcpServers": {"git": entry}})).sources()[0]
    return [(one.stated.retries, one.stated.breaker) for one in mount.connection.extensions]


def test_p9_retries_and_breaker_of_an_entry_are_those_of_its_mount():
    retrying = server({**GIT, "retries": 2, "breaker": {"failures": 3}})
    assert stated({**GIT, "retries": 2, "breaker": {"failures": 3}}) == [(2, (3, 30.0))]
    assert retrying.reached() == server(GIT).reached()
    assert stated(GIT) == []


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"retries": -1}, "write `retries` as a whole number from 0 to 10"),
        ({"retries": 11}, "write `retries` as a whole number from 0 to 10"),
        ({"retries": 1.5}, "write `retries` as a whole number from 0 to 10"),
        ({"retries": True}, "write `retries` as a whole number from 0 to 10"),
        ({"retires": 2}, "did you mean `retries`?"),
        ({"breaker": 5}, 'write `breaker` as {"failures": 5, "recover_after": 30}'),
        ({"breaker": {"failures": 0}}, "breaker.failures"),
        ({"breaker": {"recover_after": -1}}, "write `recover_after` as a positive number of seconds"),
        ({"breaker": {"failuers": 1}}, "did you mean `failures`?"),
    ],
)
def test_p9_retries_and_breakers_that_cannot_be_used_are_told(entry: dict[str, Any], told: str):
    assert told in server_refusal({**GIT, **entry})


def test_p9_null_is_no_key_and_a_breaker_without_numbers_has_its_defaults():
    assert stated({**GIT, "retries": None, "breaker": None}) == []
    assert stated({**GIT, "breaker": {}}) == [(0, (5, 30.0))]


def test_p9_a_keyword_that_no_extension_has_is_a_type_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'retires'"):
        RemoteToolset(["true"], name="git", retires=2)  # type: ignore[call-arg]
