"""Credentials in encrypted files: bound to their key, private, and unreadable without the master key."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio
import pytest
from tests.security.secrets.vaults import MemoryBackend, key, vault

from mcp_toolset.errors import SecretError
from mcp_toolset.security.credential_store import CredentialKey, CredentialStore
from mcp_toolset.security.named_secrets import NamedSecrets
from mcp_toolset.security.vault import Vault

pytestmark = pytest.mark.anyio

GITHUB = CredentialKey("github", "https://idp.example", "alice")
LINEAR = CredentialKey("linear", "https://idp.example", "alice")
TOKENS = {"access_token": "s3cretS3cret", "expires_at": 1.5, "scopes": ["a", "b"], "issuer": {"x": None}}


@pytest.fixture(params=["memory", "variable", "keyring", "key file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CredentialStore:
    match request.param:
        case "memory":
            return Vault({"MCP_TOOLSET_CREDENTIALS": "off"}).credentials
        case "variable":
            return vault(tmp_path, keys=key()).credentials
        case "keyring":
            return vault(tmp_path, MemoryBackend()).credentials
        case _:
            return vault(tmp_path).credentials


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.credential"))


async def test_i7_every_store_keeps_one_credential_for_each_key(store: CredentialStore) -> None:
    others = [CredentialKey(*parts) for parts in (("github", "", "bob"), ("github", "https://idp.example"))]
    assert await store.load(GITHUB) is None and await store.list() == ()
    await store.save(GITHUB, TOKENS)
    assert await store.load(GITHUB) == TOKENS
    assert [await store.load(other) for other in (LINEAR, *others)] == [None] * 3
    await store.save(GITHUB, {"a": 1})
    await store.save(LINEAR, TOKENS)
    assert await store.load(GITHUB) == {"a": 1}
    assert await store.list() == (GITHUB, LINEAR)
    await store.remove(GITHUB)
    await store.remove(GITHUB)
    assert await store.load(GITHUB) is None and await store.list() == (LINEAR,)


async def test_i7_the_lock_of_a_key_is_held_by_one_task_at_a_time(store: CredentialStore) -> None:
    held, refused, order = anyio.Event(), anyio.Event(), list[str]()

    async def second() -> None:
        await held.wait()
        async with store.locked(LINEAR):
            order.append("another key")
        with pytest.raises(SecretError, match="'github' has been in use elsewhere for 0.1 s; try again"):
            async with store.locked(GITHUB, timeout=0.1):
                raise AssertionError
        order.append("refused")
        refused.set()
        async with store.locked(GITHUB):
            order.append("second")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(second)
            async with store.locked(GITHUB):
                held.set()
                await refused.wait()
                order.append("first")
    assert order == ["another key", "refused", "first", "second"]


async def test_i7_a_lock_is_free_again_after_a_cancelled_holder_and_waiter(store: CredentialStore) -> None:
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group, store.locked(GITHUB):
            group.start_soon(_held, store)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        async with store.locked(GITHUB):
            pass


async def _held(store: CredentialStore) -> None:
    async with store.locked(GITHUB):
        raise AssertionError


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
async def test_i7_files_are_private_and_show_neither_their_key_nor_their_content(tmp_path: Path) -> None:
    folder = tmp_path / "of" / "mine"
    store = vault(folder).credentials
    assert await store.load(GITHUB) is None and not folder.exists()
    await store.save(GITHUB, TOKENS)
    async with store.locked(GITHUB):
        modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {0o600} and stat.S_IMODE(folder.stat().st_mode) == 0o700
    told = b"".join(path.read_bytes() + path.name.encode() for path in folder.iterdir())
    assert not any(word in told for word in (b"github", b"alice", b"idp", b"s3cret"))
    assert not list(folder.glob("*.tmp"))


def damaged(path: Path, other: Path) -> dict[str, bytes]:
    data = path.read_bytes()
    return {
        "empty": b"",
        "truncated": data[:-20],
        "changed": data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
        "foreign": b'{"access_token": "x"}',
        "binary": bytes(range(256)),
        "huge": b"x" * 2_000_000,
        "swapped": other.read_bytes(),
    }


@pytest.mark.needs("upstream_access")
@pytest.mark.parametrize("fault", ["empty", "truncated", "changed", "foreign", "binary", "huge", "swapped"])
async def test_i7_a_file_that_cannot_be_used_is_an_error_that_names_its_upstream(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = vault(tmp_path).credentials
    await store.save(GITHUB, TOKENS)
    (path,) = files(tmp_path)
    await store.save(LINEAR, {"access_token": "0therT0ken"})
    (other,) = set(files(tmp_path)) - {path}
    path.write_bytes(damaged(path, other)[fault])
    with pytest.raises(SecretError, match="the credential of 'github'") as told:
        await store.load(GITHUB)
    assert "s3cret" not in str(told.value) and "0ther" not in str(told.value)
    assert fault == "huge" or "log in again with `mcp-toolset login`" in told.value.mend
    assert LINEAR in await store.list()
    await store.save(GITHUB, TOKENS)
    assert await store.load(GITHUB) == TOKENS
    path.write_bytes(b"damaged again")
    await store.remove(GITHUB)
    assert await store.load(GITHUB) is None


async def test_i7_another_master_key_reads_nothing_and_the_error_says_so(tmp_path: Path) -> None:
    await vault(tmp_path, keys=key(1)).credentials.save(GITHUB, TOKENS)
    with pytest.raises(SecretError, match="'github' cannot be decrypted: damaged, or written with another"):
        await vault(tmp_path, keys=key(2)).credentials.load(GITHUB)
    assert await vault(tmp_path, keys=key(2)).credentials.list() == ()


async def test_i7_a_key_is_replaced_by_writing_the_new_one_before_the_old_one(tmp_path: Path) -> None:
    await vault(tmp_path, keys=key(1)).credentials.save(GITHUB, TOKENS)
    both = vault(tmp_path, keys=f"{key(2)} {key(1)}").credentials
    assert await both.load(GITHUB) == TOKENS
    await both.save(GITHUB, TOKENS)
    assert await vault(tmp_path, keys=key(2)).credentials.load(GITHUB) == TOKENS


async def test_i7_what_the_key_file_encrypted_is_read_after_a_keyring_appears(tmp_path: Path) -> None:
    await vault(tmp_path).credentials.save(GITHUB, TOKENS)
    backend = MemoryBackend()
    with_keyring = vault(tmp_path, backend).credentials
    assert await with_keyring.load(GITHUB) == TOKENS
    await with_keyring.save(GITHUB, TOKENS)
    (tmp_path / "key").unlink()
    assert await vault(tmp_path, backend).credentials.load(GITHUB) == TOKENS


@pytest.mark.parametrize("written", ["x", "c2hvcnQ=", "é" * 44, f"{key()} x"])
async def test_i7_a_variable_that_holds_no_key_is_an_error_without_it(tmp_path: Path, written: str) -> None:
    with pytest.raises(SecretError, match="the variable MCP_TOOLSET_KEY holds no key of 32 bytes") as told:
        await vault(tmp_path, keys=written).credentials.save(GITHUB, TOKENS)
    assert written not in str(told.value) and "openssl rand -base64 32" in told.value.mend


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
async def test_i7_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    await vault(tmp_path).credentials.save(GITHUB, TOKENS)
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(SecretError, match=r"other users can read the key .*; chmod 600"):
        await vault(tmp_path).credentials.load(GITHUB)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
async def test_i7_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    await anyio.Path(tmp_path).chmod(0o777)
    with pytest.raises(
        SecretError, match="of 'github' cannot be written to or read from .* can write to it; make it yours"
    ):
        await vault(tmp_path).credentials.save(GITHUB, TOKENS)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
async def test_i7_what_others_could_have_replaced_is_not_read(tmp_path: Path) -> None:
    await vault(tmp_path).credentials.save(GITHUB, TOKENS)
    await anyio.Path(tmp_path).chmod(0o777)
    with pytest.raises(SecretError, match="can write to it; make it yours, mode 700"):
        await vault(tmp_path).credentials.load(GITHUB)
    with pytest.raises(SecretError, match="can write to it; make it yours, mode 700"):
        NamedSecrets(vault(tmp_path)).places()


async def test_i7_a_folder_that_cannot_be_made_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        SecretError, match="'github' cannot be written to or read from .*MCP_TOOLSET_CREDENTIALS"
    ):
        await vault(tmp_path / "file" / "below").credentials.save(GITHUB, TOKENS)


async def test_i7_an_error_shows_the_origin_of_an_address_alone(tmp_path: Path) -> None:
    key = CredentialKey("https://me:passw0rd@h.example/s/tok3nTok3n/mcp?k=v4lue", "")
    store = vault(tmp_path).credentials
    await store.save(key, TOKENS)
    files(tmp_path)[0].write_bytes(b"damaged")
    with pytest.raises(SecretError, match="the credential of 'https://h.example/…' cannot be") as told:
        await store.load(key)
    assert not [part for part in ("passw0rd", "tok3n", "v4lue") if part in str(told.value)]
