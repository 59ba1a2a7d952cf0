"""Several processes use the same credentials: none is lost, and no reader sees half of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import anyio
import pytest
from hypothesis import settings
from tests.security.secrets.vaults import key
from tests.support.warm import Warm

from mcp_toolset.errors import SecretError
from mcp_toolset.security.credential_store import CredentialKey
from mcp_toolset.security.vault import Vault

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.name != "posix", reason="forks")]

WRITES = 2 * settings().max_examples
"""Of each process; 2,000 in the profile that searches."""
GITHUB = CredentialKey("github", "https://idp.example", "alice")
COUNT = f"""
import json, sys
import anyio
from mcp_toolset.security.credential_store import CredentialKey
from mcp_toolset.security.vault import Vault

async def main():
    store = Vault().credentials
    key = CredentialKey({GITHUB.upstream!r}, {GITHUB.issuer!r}, {GITHUB.user!r})
    torn = 0
    for turn in range(int(sys.argv[1])):
        async with store.locked(key):
            kept = await store.load(key) or {{"count": 0, "padding": ""}}
            torn += len(kept["padding"]) != kept["count"] % 97
            count = kept["count"] + 1
            await store.save(key, {{"count": count, "padding": "x" * (count % 97)}})
    print(json.dumps(torn))

anyio.run(main)
"""
HOLD = f"""
import sys
import anyio
from mcp_toolset.security.credential_store import CredentialKey
from mcp_toolset.security.vault import Vault

async def main():
    key = CredentialKey({GITHUB.upstream!r}, {GITHUB.issuer!r}, {GITHUB.user!r})
    async with Vault().credentials.locked(key):
        print("held", flush=True)
        await anyio.sleep(600)

anyio.run(main)
"""


def started(warm: Warm, folder: Path, program: str, *words: str) -> subprocess.Popen[str]:
    path = folder / "program.py"
    path.write_text(program)
    environ = {**os.environ, "MCP_TOOLSET_CREDENTIALS": str(folder / "kept"), "MCP_TOOLSET_KEY": key()}
    command = warm.command(str(path), *words)
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def opened(folder: Path) -> Vault:
    return Vault({"MCP_TOOLSET_CREDENTIALS": str(folder / "kept"), "MCP_TOOLSET_KEY": key()})


async def test_i7_two_processes_that_write_at_once_lose_nothing(tmp_path: Path, warm: Warm) -> None:
    store = opened(tmp_path).credentials
    processes = [started(warm, tmp_path, COUNT, str(WRITES)) for _ in range(2)]
    seen = 0
    # Whoever reads without the lock sees the old credential or the new one, and never an older one.
    with anyio.fail_after(300):
        while any(process.poll() is None for process in processes):
            kept = await store.load(GITHUB)
            count = 0 if kept is None else kept["count"]
            assert count >= seen
            seen = count
    outs = [process.communicate(timeout=60)[0] for process in processes]
    assert [json.loads(out) for out in outs] == [0, 0]
    kept = await store.load(GITHUB)
    assert kept is not None and kept["count"] == 2 * WRITES


async def test_i7_the_lock_of_a_process_that_died_is_free(tmp_path: Path, warm: Warm) -> None:
    store = opened(tmp_path).credentials
    process = started(warm, tmp_path, HOLD)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(SecretError, match="in use elsewhere"):
        async with store.locked(GITHUB, timeout=0.1):
            raise AssertionError
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    with anyio.fail_after(60):
        async with store.locked(GITHUB):
            pass
