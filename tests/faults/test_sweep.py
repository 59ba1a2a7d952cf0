"""A sample of the sweeps over hostile servers and clients; `scripts/sweep` runs all of the cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.sweep import clients, upstreams

pytestmark = pytest.mark.anyio

UPSTREAMS = [
    upstreams.Case("stdio", False, "exit", 2),
    upstreams.Case("stdio", False, "garbage", 4),
    upstreams.Case("stdio", True, "half and exit", 1),
    upstreams.Case("stdio", True, "result empty", 3),
    upstreams.Case("stdio", True, "twice", 2),
    upstreams.Case("http", False, "drop", 3),
    upstreams.Case("http", False, "404", 4),
    upstreams.Case("http", True, "half body", 2),
    upstreams.Case("http", True, "events: garbage before", 2),
    upstreams.Case("http", True, "wrong type", 3),
]


@pytest.mark.parametrize("case", UPSTREAMS, ids=str)
async def test_f8_f9_one_bad_message_of_a_server_is_one_bad_call(
    case: upstreams.Case, tmp_path: Path
) -> None:
    assert await upstreams.fell_short(case, tmp_path) == []


CLIENTS = [
    clients.Case(transport, modern, fault, at)
    for at, (transport, modern, fault) in enumerate(
        (transport, modern, fault)
        for fault in ("garbage before", "twice", "params text", "deep", "leaves in a line", "cancels")
        for transport in ("stdio", "http")
        for modern in (False, True)
    )
    for at in [at % len(clients.session(modern=modern))]
]


@pytest.mark.parametrize("case", CLIENTS, ids=str)
async def test_f33_one_bad_message_of_a_client_spoils_nothing_else(
    case: clients.Case, tmp_path: Path
) -> None:
    assert await clients.fell_short(case, tmp_path) == []
