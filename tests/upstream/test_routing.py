"""Which session a request takes follows what is known of the server, as it is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.bounds import bounds

from mcp_toolset.config.tables import Era
from mcp_toolset.context.connection import ServedClient
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, METHOD_NOT_FOUND, MCPError
from mcp_toolset.upstream.routing import MODERN, Routing, SessionKey, SessionOptions, credentials_digest
from mcp_toolset.upstream.target import link_to

pytestmark = pytest.mark.anyio

ASKED = {"elicitation": {}}


@dataclass
class Caller:
    """What the rule looks at of a request."""

    era: Era = "legacy"
    carried: dict[str, Any] = field(default_factory=lambda: dict(ASKED))
    client_key: str = "one"
    principal: str | None = None
    authorization: str | None = None
    answers: bool = True

    def __post_init__(self) -> None:
        self.client = ServedClient(self.client_key, self.carried)
        self.modern = self.era == "modern"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MCP_TOOLSET_CACHE", str(tmp_path))
    return tmp_path


def routing(*, forwards: bool = False, **options: Any) -> Routing:
    link = link_to("http://127.0.0.1:1/mcp" if forwards else ["server"], name="up")
    return Routing(link, SessionOptions(**options), forwards=forwards)


def key(known: Routing, caller: Caller, name: str = "") -> SessionKey | None:
    return known.key(caller, name)  # pyright: ignore[reportArgumentType]


async def test_a_client_takes_its_own_era_until_the_server_refuses_it() -> None:
    known, old = routing(), Caller()
    known.listens_in("modern")
    assert known.is_modern and known.settled and not known.lists_apart
    assert key(known, Caller("modern")) is None
    own = SessionKey("legacy", '{"elicitation":{}}', client="one")
    assert key(known, old) == own == known.route_of(old.client)
    assert known.legacy_failed(MCPError(METHOD_NOT_FOUND, "no initialize"))
    assert known.facts.legacy is False and key(known, old) is None and known.route_of(old.client) == MODERN


async def test_silence_in_the_legacy_era_is_taken_for_a_refusal_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known, old = routing(), Caller()
    known.listens_in("modern")
    assert known.legacy_failed(None)
    assert known.facts.legacy is None and key(known, old) is None
    bounds(monkeypatch, second_trial=-1.0)
    assert known.legacy_failed(None)
    assert key(known, old) is not None


async def test_a_legacy_session_that_fails_where_there_were_some_refuses_no_era() -> None:
    known = routing()
    known.listens_in("modern")
    known.learn({"legacy": True})
    assert not known.legacy_failed(MCPError(INTERNAL_ERROR, "broken"))
    assert not known.legacy_failed(None) and known.facts.legacy is True


async def test_a_legacy_server_is_shared_by_those_who_can_be_asked_nothing() -> None:
    known = routing()
    known.listens_in("legacy")
    assert key(known, Caller(carried={})) is None and key(known, Caller("modern", {})) is None
    assert key(known, Caller()) == SessionKey("legacy", '{"elicitation":{}}', client="one")


async def test_a_client_counts_until_it_leaves() -> None:
    known, old, told = routing(), Caller(), list[str]()
    known.on_clients = lambda: told.append("changed")
    known.listens_in("legacy")
    own = key(known, old)
    assert own is not None and told == ["changed"]
    assert key(known, old) is own and told == ["changed"]
    assert known.all_in({own.shelf}) and not known.all_in(set())
    old.client.gone()
    assert told == ["changed", "changed"] and known.all_in(set())


async def test_what_was_found_out_is_recalled_in_the_next_run() -> None:
    writes: list[Callable[[], object]] = []
    first, shelf = routing(), ("legacy", "{}", "")
    first.start = lambda run, work: writes.append(work)
    first.listens_in("legacy")
    first.note_same(shelf)
    for write in writes:
        write()
    second = routing()
    assert not second.same(shelf)
    await second.recall()
    assert second.facts.modern is False and second.facts.legacy is True and second.same(shelf)


async def test_forwarded_credentials_are_told_apart_by_a_digest() -> None:
    known = routing(forwards=True)
    known.listens_in("legacy")
    one, other = (key(known, Caller(authorization=token)) for token in ("secret-1", "secret-2"))
    assert one != other and one is not None and one.credentials == credentials_digest("secret-1")
    assert "secret" not in repr(one) and credentials_digest(None) == ""
