"""The configuration on the page of the journal can be read, and says what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_toolset.config import load_config

EXAMPLE = Path(__file__).parents[2] / "examples" / "journal" / "mcp.json"


@pytest.mark.needs("journal")
def test_j2_the_configuration_of_the_page_is_read() -> None:
    found = load_config(EXAMPLE)
    [server] = found.servers
    journal = found.extensions["journal"]
    assert journal.path == EXAMPLE.with_name("calls.sqlite3")
    assert dict(journal.tools) == {"idempotent:*": "repeat"}
    own = server.extensions["journal"]
    assert dict(own.modes) == {"refund": "once", "preview_*": "off"}
    assert dict(own.places) == {"charge": "arguments.request_id", "*": "_meta.idempotencyKey"}
    assert not server.fault and not found.warnings


@pytest.mark.needs("journal")
def test_j1_the_store_of_the_page_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLS", "postgresql://db/calls")
    found = load_config(EXAMPLE.with_name("store.json"))
    assert found.extensions["journal"].store == "postgresql://db/calls"
