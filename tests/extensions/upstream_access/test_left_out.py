"""Without the folder of this extension, a mount that needs it says how to have it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.extensions.indexed import indexed
from tests.test_config import server_refusal

from mcp_toolset import RemoteToolset, _index
from mcp_toolset.auth import OAuth
from mcp_toolset.errors import DefinitionError


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"auth": OAuth()}, "mount 'up': logins are not part of this installation"),
        ({"forward": {"X-User": "identity.name"}}, "mount 'up': connections of single callers are not part"),
    ],
)
def test_a_mount_that_needs_a_login_or_callers_is_refused(options: Any, told: str) -> None:
    partless = {home: {**row, "part": ""} for home, row in _index.rows().items()}
    with indexed(partless), pytest.raises(DefinitionError, match=told):
        RemoteToolset("https://up.example/mcp", name="up", **options)
    RemoteToolset("https://up.example/mcp", name="up")


def test_an_entry_with_a_login_is_refused() -> None:
    with indexed({}):
        told = server_refusal({"url": "https://up.example/mcp", "auth": "oauth"})
    assert ".auth: is not part of this installation; install mcp-toolset again" in told
