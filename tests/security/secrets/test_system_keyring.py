"""A real keyring: a Secret Service (gnome-keyring) on a bus of its own, unlocked without a user.

Where its programs are missing, these tests are skipped; the stand-in of the other tests
(`vaults.MemoryBackend`) then shows what does not depend on the backend.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commandline import SOURCE

PROGRAMS = ("dbus-run-session", "dbus-send", "gnome-keyring-daemon")
LACKING = [name for name in PROGRAMS if shutil.which(name) is None] + [
    name for name in ("keyring", "secretstorage") if importlib.util.find_spec(name) is None
]
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"no real keyring without {' and '.join(LACKING)}")

READY = """
until dbus-send --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.GetNameOwner \\
    string:org.freedesktop.secrets >/dev/null 2>&1; do :; done
exec "$@"
"""
UNLOCKED = f"printf %s password | gnome-keyring-daemon --unlock --components=secrets >/dev/null {READY}"
LOCKED = f"gnome-keyring-daemon --start --components=secrets >/dev/null {READY}"
SESSION = """
import anyio, json, os, sys
import keyring
from mcp_toolset.cli.main import main
from mcp_toolset.security.credential_store import CredentialKey
from mcp_toolset.security.vault import Vault

KEY = CredentialKey("github", "https://idp.example", "alice")

async def kept():
    await Vault().credentials.save(KEY, {"access_token": "tok3nTok3n"})
    return dict(await Vault().credentials.load(KEY))

found = {"backend": type(keyring.get_keyring()).__module__}
found["set"] = main(["secret", "set", "github", "--stdin"])
found["kept"] = keyring.get_password("mcp-toolset", "github")
found["list"] = main(["secret", "list"])
found["credential"] = anyio.run(kept)
found["called"] = main(["call", "mcp.json", "up_length"])
found["removed"] = main(["secret", "remove", "github"])
found["left"] = keyring.get_password("mcp-toolset", "github")
print(json.dumps(found), file=sys.stderr)
"""
LENGTH = """
import os
from mcp_toolset import serve, tool

@tool
def length() -> int:
    return len(os.environ["A"])

serve(length)
"""


def run(folder: Path, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command where the bus is, with a home of its own; the daemon ends with the bus."""
    hidden = (
        "PYTHON_KEYRING_BACKEND XDG_DATA_HOME XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS DISPLAY "
        "MCP_TOOLSET_CREDENTIALS MCP_TOOLSET_KEY"
    ).split()
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    environ = {**kept, "HOME": str(folder), "PYTHONPATH": str(SOURCE)}
    words = ["dbus-run-session", "--", *command]
    return subprocess.run(
        words, cwd=folder, env=environ, input=stdin, capture_output=True, text=True, timeout=120
    )


def test_i7_a_secret_service_keeps_secrets_and_the_key_of_credentials(tmp_path: Path) -> None:
    (tmp_path / "length.py").write_text(LENGTH)
    (tmp_path / "session.py").write_text(SESSION)
    entry = {"command": sys.executable, "args": ["length.py"], "env": {"A": "${keyring:github}"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"up": entry}}))
    done = run(tmp_path, "sh", "-c", UNLOCKED, "sh", sys.executable, "session.py", stdin="tok3nTok3n\n")
    found = json.loads(done.stderr.splitlines()[-1])
    assert found == {
        "backend": "keyring.backends.SecretService",
        "set": 0,
        "kept": "tok3nTok3n",
        "list": 0,
        "credential": {"access_token": "tok3nTok3n"},
        "called": 0,
        "removed": 0,
        "left": None,
    }
    said = done.stdout.splitlines()
    assert said[0] == "github is kept in the system's keyring; refer to it as ${keyring:github}"
    assert said[1:] == ["NAME    KEPT IN", "github  the system's keyring", "10", "github is removed"]
    folder = tmp_path / ".local/share/mcp-toolset/credentials"
    assert not (folder / "key").exists()
    assert not any(b"tok3n" in path.read_bytes() for path in folder.iterdir())


def test_i7_a_locked_secret_service_is_one_message(tmp_path: Path) -> None:
    # Nobody can be asked for the password here, so the keyring stays locked.
    words = [sys.executable, "-m", "mcp_toolset", "secret", "set", "github"]
    done = run(tmp_path, "sh", "-c", LOCKED, "sh", *words, stdin="tok3nTok3n")
    assert done.returncode == 1 and "tok3n" not in done.stderr + done.stdout
    # The daemon writes there as well.
    (said,) = (each for each in done.stderr.splitlines() if each.startswith("mcp-toolset: "))
    assert said.startswith("mcp-toolset: the system's keyring ")
    assert said.endswith("; unlock it, or set MCP_TOOLSET_KEY to keep secrets in encrypted files")
    assert not list(tmp_path.glob("**/*.secret"))
