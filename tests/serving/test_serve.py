"""What `serve` takes beside its target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.grants import GrantLedger
from mcp_toolset.serving.serve import server_of


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize(
    "option",
    [{"name": "other"}, {"grants": GrantLedger()}, {"client_prefix": "acme"}, {"state": "names.json"}],
    ids=lambda option: next(iter(option)),
)
def test_an_option_beside_a_finished_server_is_refused(option: dict[str, Any]) -> None:
    server = ToolsetServer(Toolset(add))
    assert server_of(server) is server
    with pytest.raises(DefinitionError, match="to ToolsetServer\\(…\\) instead"):
        server_of(server, **option)


def test_a_file_says_what_its_clients_put_before_names_unless_it_is_given(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {}, "toolset": {"client_prefix": "x" * 60}}))
    with pytest.raises(DefinitionError, match="leaves 4 of 64"):
        server_of(file)
    assert server_of(file, client_prefix="acme__").bindings() == []
