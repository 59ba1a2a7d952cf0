"""A token that was written where its holder's name belongs is not quoted in the error (I1, I7)."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_toolset.auth import StaticTokens
from mcp_toolset.errors import DefinitionError

pytestmark = pytest.mark.needs("inbound_auth")

TOKEN = "a-token-of-twenty-four-c"


@pytest.mark.parametrize("given", ["ci", {"client_id": "ci", "scopes": ["read"]}, None, 17])
def test_i7_an_entry_the_other_way_round_is_an_error_that_does_not_show_the_token(given: Any) -> None:
    with pytest.raises(DefinitionError, match="the other way round") as raised:
        StaticTokens({TOKEN: given})
    assert TOKEN not in str(raised.value)
