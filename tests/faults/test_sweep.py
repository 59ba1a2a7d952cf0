"""A sample of the sweeps over hostile servers and clients; `scripts/sweep` runs all of the cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.sweep import clients, upstreams
from tests.faults.sweep.case import Case

pytestmark = pytest.mark.anyio

UPSTREAMS = [
    Case("stdio", False, "exit", 2),
    Case("stdio", False, "garbage", 4),
    Case("stdio", True, "half and exit", 1),
    Case("stdio", True, "result empty", 3),
    Case("stdio", True, "twice", 2),
    Case("http", False, "drop", 3),
    Case("http", False, "404", 4),
    Case("http", True, "half body", 2),
    Case("http", True, "events: garbage before", 2),
    Case("http", True, "wrong type", 3),
]


@pytest.mark.parametrize("case", UPSTREAMS, ids=str)
async def test_f8_f9_one_bad_message_of_a_server_is_one_bad_call(case: Case, tmp_path: Path) -> None:
    assert await upstreams.fell_short(case, tmp_path) == []


CLIENTS = [
    Case(transport, modern, fault, at)
    for at, (transport, modern, fault) in enumerate(
        (transport, modern, fault)
        for fault in ("garbage before", "twice", "params text", "deep", "leaves in a line", "cancels")
        for transport in ("stdio", "http")
        for modern in (False, True)
    )
    for at in [at % len(clients.session(modern=modern))]
]


@pytest.mark.parametrize("case", CLIENTS, ids=str)
async def test_f33_one_bad_message_of_a_client_spoils_nothing_else(case: Case, tmp_path: Path) -> None:
    assert await clients.fell_short(case, tmp_path) == []
