"""What the tests keep is not kept where the user's own things are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from platformdirs import user_data_path

from mcp_toolset.security.vault import Vault

ASKED = "from mcp_toolset.security.vault import Vault; print(Vault().folder)"


@pytest.mark.needs("approvals")
def test_i7_tests_read_and_write_no_folder_of_the_user(session_credentials: Path) -> None:
    from mcp_toolset.extensions.approvals.extension import approvals_path

    folder = Vault().folder
    assert folder is not None and folder.parent == session_credentials
    assert not folder.is_relative_to(user_data_path("mcp-toolset", appauthor=False))
    assert not Vault().has_own_key and approvals_path() is None
    assert os.environ["MCP_TOOLSET_CACHE"] == "off"


def test_i7_processes_of_tests_have_the_folder_of_their_test() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(Vault().folder)
