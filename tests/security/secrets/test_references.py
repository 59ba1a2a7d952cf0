"""`${keyring:NAME}` and `${file:PATH}` wherever a configuration has references."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.security.secrets.vaults import MemoryBackend, vault

from mcp_toolset import load_toolset
from mcp_toolset.config import load_config
from mcp_toolset.config.models import HubConfig, ServerConfig
from mcp_toolset.security.named_secrets import NamedSecrets

ROOT = Path(__file__).parents[3]


class Folder:
    """A configuration beside its secrets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backend = MemoryBackend()
        self.vault = vault(path / "kept", self.backend)

    def config(self, entry: Mapping[str, Any], *, name: str = "mcp.json") -> HubConfig:
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"mcpServers": {"up": entry}}))
        return load_config(file, environ={"HOME": str(self.path / "home")}, vault=self.vault)

    def server(self, entry: Mapping[str, Any]) -> ServerConfig:
        (server,) = self.config(entry).servers
        return server

    def file(self, name: str, data: bytes | str, mode: int = 0o600) -> Path:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        path.chmod(mode)
        return path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_i7_a_secret_stands_in_every_place_where_a_variable_does(folder: Folder) -> None:
    NamedSecrets(folder.vault).set("one/two", "tok3nTok3n")
    folder.file("s/key.txt", "fil3Fil3\n")
    both = "a-${keyring:one/two}-${file:s/key.txt}-z"
    expanded = "a-tok3nTok3n-fil3Fil3-z"
    local = folder.server({"command": both, "args": [both], "env": {"A": both}, "cwd": both})
    assert (local.command, local.args, local.env) == (expanded, (expanded,), {"A": expanded})
    assert local.cwd == str(folder.path / expanded)
    web = folder.server({"url": f"https://h.example/{both}", "headers": {"A": both}})
    assert (web.url, web.headers) == (f"https://h.example/{expanded}", {"A": expanded})
    for server in (local, web):
        assert set(server.secrets) == {"tok3nTok3n", "fil3Fil3"}
        assert "tok3n" not in repr(server) and "fil3" not in repr(server)


@pytest.mark.parametrize(
    ("text", "data", "value"),
    [
        ("${file:k}", "v", "v"),
        ("${file:./k}", "v\n", "v"),
        ("${file:k}", "v\r\n", "v"),
        ("${file:k}", "two\nlines\n\n", "two\nlines\n"),
        ("${file:k}", b"\xef\xbb\xbfv", "v"),
        ("${file:~/k}", None, "of home"),
        ("${file:none:-d}", None, "d"),
        ("${file:none:-}", None, ""),
        ("${keyring:none:-d}", None, "d"),
        # What a shell means is left to it.
        ("${file%.*} ${file:0:3} ${file:-x}", None, "${file%.*} ${file:0:3} x"),
        ("${keyring:?no}", None, "${keyring:?no}"),
    ],
)
def test_i7_how_references_are_read(folder: Folder, text: str, data: bytes | str | None, value: str) -> None:
    folder.file("home/k", "of home")
    if data is not None:
        folder.file("k", data)
    server = folder.server({"command": "x", "args": [text]})
    assert (server.fault, server.args) == ("", (value,))
    assert server.secrets == ((value,) if data is not None or value == "of home" else ())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${keyring:none}", "no secret 'none' is kept; run `mcp-toolset secret set none`"),
        ("${keyring:a:b}", "${keyring:a:b} is no name of a secret; use letters, digits and _, and"),
        ("${keyring:a b}", "${keyring:a b} is no name of a secret"),
        ("${file:none}", "none cannot be read (No such file or directory); correct the path"),
        ("${file:.}", "is no regular file; correct"),
        ("${file:pipe}", "pipe is no regular file; correct"),
        ("${file:/dev/zero}", "/dev/zero is no regular file; correct"),
        ("${file:empty}", "empty is empty; correct"),
        ("${file:big}", "big has more than 65536 bytes, too many for a secret"),
        ("${file:binary}", "binary is not UTF-8 text; correct"),
    ],
)
def test_i7_a_reference_that_leads_nowhere_misconfigures_its_server_with_the_mend(
    folder: Folder, text: str, says: str
) -> None:
    os.mkfifo(folder.path / "pipe")
    folder.file("empty", "\n")
    folder.file("big", "s3cret" * 20_000)
    folder.file("binary", b"s3cret\xff")
    fault = folder.server({"command": "x", "env": {"A": text}}).fault
    assert fault.startswith(f"{folder.path / 'mcp.json'}: mcpServers.up.env.A: ") and says in fault
    assert "s3cret" not in fault and "\n" not in fault


def test_i7_a_default_stands_for_what_is_missing_and_for_no_other_fault(folder: Folder) -> None:
    folder.file("empty", "")
    assert "is empty" in folder.server({"command": "x", "args": ["${file:empty:-d}"]}).fault


def test_i7_a_secret_is_looked_up_when_needed_and_once(folder: Folder) -> None:
    folder.backend.kept["a"] = "tok3n"
    folder.server({"command": "x", "args": ["${keyring:a}"], "disabled": True})
    folder.server({"command": "x", "args": ["$a"]})
    assert folder.backend.asked == 0 and not (folder.path / "kept").exists()
    folder.server({"command": "${keyring:a}", "args": ["${keyring:a}"] * 20, "env": {"A": "${keyring:a}"}})
    assert folder.backend.asked == 1


def test_i7_a_file_is_of_the_folder_that_the_configuration_speaks_for(folder: Folder) -> None:
    folder.file("k", "v")
    (server,) = folder.config({"command": "x", "args": ["${file:k}"]}, name=".cursor/mcp.json").servers
    assert server.args == ("v",)


def test_i7_a_file_that_every_user_can_read_is_warned_of_once(folder: Folder) -> None:
    path = folder.file("k", "s3cretS3cret", 0o644)
    config = folder.config({"command": "x", "args": ["${file:k}", "${file:k}"]})
    assert config.warnings == (f"{path}: every user can read it, and it holds a secret; chmod 600 it",)
    path.chmod(0o640)
    assert folder.config({"command": "x", "args": ["${file:k}"]}).warnings == ()


def test_i7_files_of_secrets_are_watched_for_changes(folder: Folder) -> None:
    path = folder.file("k", "v")
    config = folder.config({"command": "x", "args": ["${file:k}", "${file:none:-}"]})
    toolset = load_toolset(config)
    assert {path, folder.path / "none"} <= set(toolset.watched())
    path.write_text("w")
    assert toolset.read().servers[0].args == ("w", "")


@pytest.mark.needs("inbound_auth")
def test_i7_a_file_with_the_token_of_a_caller_is_read_when_it_is_used_and_watched(folder: Folder) -> None:
    path = folder.file("token", "tok3n" * 8 + "\n")
    servers = {"mcpServers": {"up": {"command": "x"}}}
    auth = {"tokens": {"ci": {"token": "${file:token}"}, "me": {"token": "${keyring:me}"}}}
    folder.backend.kept["me"] = "s3cret" * 8
    file = folder.path / "mcp.json"
    file.write_text(json.dumps({**servers, "toolset": {"auth": auth}}))
    toolset = load_toolset(load_config(file, vault=folder.vault))
    assert folder.backend.asked == 0 and path not in toolset.watched()
    authenticator = toolset.authenticator()
    assert authenticator is not None and path in toolset.watched()
    assert "tok3n" not in repr((toolset.config, authenticator)) and "s3cret" not in repr(toolset.config)


def test_i7_what_is_missing_is_looked_for_again_by_the_next_reading(folder: Folder) -> None:
    entry = {"command": "x", "args": ["${keyring:a}"]}
    assert "no secret 'a' is kept" in folder.server(entry).fault
    NamedSecrets(folder.vault).set("a", "tok3n")
    assert folder.server(entry).args == ("tok3n",)


def test_i7_the_example_of_the_page_says_what_is_missing_and_reads_what_is_there(folder: Folder) -> None:
    entries = json.loads((ROOT / "examples" / "config" / "secrets.json").read_text())["mcpServers"]
    fault = folder.server(entries["github"]).fault
    assert "headers.Authorization: no secret 'github' is kept; run `mcp-toolset secret set github`" in fault
    NamedSecrets(folder.vault).set("github", "tok3nTok3n")
    assert folder.server(entries["github"]).headers == {"Authorization": "Bearer tok3nTok3n"}
    folder.file("secrets/client.pem", "one\ntwo\n")
    env = {**entries["database"]["env"], "DATABASE_PASSWORD": "x"}
    read = folder.server({**entries["database"], "env": env}).env
    assert (read["DATABASE_CERTIFICATE"], read["DATABASE_USER"]) == ("one\ntwo", "reader")
