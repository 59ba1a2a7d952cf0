"""The official conformance suite on a server made with this toolkit, and on the bridge in front of it."""

from __future__ import annotations

import pytest
from tests.peers.conformance import REVISIONS, Run, conform, difference, everything, everything_with_tokens
from tests.peers.conformance import bridge as bridged
from tests.peers.programs import node

SCENARIOS = {"2026-07-28": 37, "2025-11-25": 30}
"""How many scenarios for servers each revision requires: a run that skips some must not pass."""


NEWEST, OLDER = REVISIONS
RUNS = [("server", NEWEST), ("server", OLDER), ("bridge", NEWEST), ("tokens", OLDER)]
"""What is run; `scripts/conformance` runs the rest."""


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, str], Run]:
    node()
    with everything() as direct, bridged(direct) as through, everything_with_tokens() as guarded:
        return {
            (subject, revision): conform(["server", "--url", url], revision)
            for revision in REVISIONS
            for subject, url in (("server", direct), ("bridge", through), ("tokens", guarded))
            if (subject, revision) in RUNS
        }


@pytest.mark.parametrize("revision", REVISIONS)
def test_n10_a_server_of_this_toolkit_conforms(runs: dict[tuple[str, str], Run], revision: str) -> None:
    run = runs["server", revision]
    assert len(run.scored) == SCENARIOS[revision]
    assert run.failures() == []


@pytest.mark.parametrize("revision", [NEWEST])
def test_n9_p4_the_bridge_does_exactly_what_the_server_behind_it_does(
    runs: dict[tuple[str, str], Run], revision: str
) -> None:
    assert difference(runs["server", revision], runs["bridge", revision]) == []


@pytest.mark.parametrize("revision", [OLDER])
def test_n10_i1_a_server_that_wants_tokens_does_exactly_what_one_without_does(
    runs: dict[tuple[str, str], Run], revision: str
) -> None:
    assert len(runs["tokens", revision].scored) == SCENARIOS[revision]
    assert difference(runs["server", revision], runs["tokens", revision]) == []
