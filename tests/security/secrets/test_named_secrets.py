"""Secrets by names: in the keyring, or in encrypted files; never in both, and never lost on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.security.secrets.vaults import MemoryBackend, key, vault

from mcp_toolset.errors import SecretError
from mcp_toolset.security.named_secrets import IN_KEYRING, Keyring, KeyringMissingError, NamedSecrets, is_name
from mcp_toolset.security.vault import Vault


class Broken(MemoryBackend):
    """A backend whose every question fails, as a locked one may."""

    def __init__(self, fault: Callable[[], Exception]) -> None:
        super().__init__()
        self._fault = fault

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        raise self._fault()

    def set_password(self, service: str, username: str, password: str) -> None:
        self.asked += 1
        raise self._fault()


def test_i7_a_secret_is_in_the_keyring_and_listed_without_its_value(tmp_path: Path) -> None:
    backend = MemoryBackend()
    assert NamedSecrets(vault(tmp_path, backend)).set("github", "tok3n") == (IN_KEYRING,)
    again = NamedSecrets(vault(tmp_path, backend))
    assert again.get("github") == "tok3n" and backend.kept == {"github": "tok3n"}
    assert again.places() == {"github": IN_KEYRING}
    assert not any(b"tok3n" in path.read_bytes() for path in tmp_path.iterdir())
    assert again.remove("github") and not again.remove("github")
    assert again.get("github") is None and again.places() == {} and backend.kept == {}


def test_i7_without_a_keyring_a_secret_is_in_an_encrypted_file(tmp_path: Path) -> None:
    place, where = NamedSecrets(vault(tmp_path)).set("github", "tok3n")
    assert place == f"an encrypted file in {tmp_path}"
    assert where == f"the file {tmp_path / 'key'}, which protects backups without that file, " + (
        "and nothing else"
    )
    again = NamedSecrets(vault(tmp_path))
    assert again.get("github") == "tok3n" and again.places() == {"github": place}
    assert not any(b"tok3n" in path.read_bytes() for path in tmp_path.iterdir())
    assert again.remove("github") and again.get("github") is None and again.places() == {}


def test_i7_a_long_secret_is_in_an_encrypted_file_with_its_key_in_the_keyring(tmp_path: Path) -> None:
    backend = MemoryBackend()
    secrets = NamedSecrets(vault(tmp_path, backend))
    secrets.set("pem", "short")
    assert secrets.set("pem", "x" * 5000)[1] == IN_KEYRING
    assert secrets.get("pem") == "x" * 5000 and "pem" not in backend.kept
    assert secrets.set("pem", "short again") == (IN_KEYRING,)
    assert secrets.get("pem") == "short again" and not list(tmp_path.glob("*.secret"))


def test_i7_with_a_key_in_the_environment_the_keyring_is_not_needed(tmp_path: Path) -> None:
    backend = MemoryBackend()
    secrets = NamedSecrets(vault(tmp_path, backend, key()))
    assert secrets.set("a", "tok3n")[1] == "the variable MCP_TOOLSET_KEY"
    assert secrets.get("a") == "tok3n" and secrets.remove("a")
    assert backend.asked == 0 and backend.kept == {}


def test_i7_what_a_keyring_program_has_set_is_found(tmp_path: Path) -> None:
    backend = MemoryBackend()
    backend.kept["github"] = "tok3n"
    assert NamedSecrets(vault(tmp_path / "none", backend)).get("github") == "tok3n"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("fault", [RuntimeError, OSError, type("InitError", (Exception,), {})])
def test_i7_every_failure_of_a_keyring_is_one_message_and_is_asked_for_once(
    tmp_path: Path, fault: type[Exception]
) -> None:
    backend = Broken(lambda: fault("no bus for tok3n"))
    secrets = NamedSecrets(vault(tmp_path, backend))
    says = rf"the system's keyring failed \({fault.__name__}\); unlock it, or set MCP_TOOLSET_KEY to keep"
    for _ in range(3):
        with pytest.raises(SecretError, match=says) as told:
            secrets.get("github")
        assert "tok3n" not in str(told.value)
    with pytest.raises(SecretError, match=says):
        secrets.set("github", "x")
    assert backend.asked == 1
    assert not (tmp_path / "key").exists()


def test_i7_a_keyring_that_does_not_answer_ends_with_its_deadline(tmp_path: Path) -> None:
    answer = threading.Event()

    class Silent(MemoryBackend):
        def get_password(self, service: str, username: str) -> str | None:
            answer.wait(600)
            return "late"

    silent = Vault({"MCP_TOOLSET_CREDENTIALS": str(tmp_path)}, Keyring(Silent, timeout=0.05))
    try:
        with pytest.raises(SecretError, match=r"keyring gave no answer within 0.05 s; unlock it"):
            NamedSecrets(silent).get("github")
    finally:
        answer.set()
        for thread in threading.enumerate():
            if thread.name == "mcp-toolset keyring":
                thread.join(60)


def test_i7_a_secret_in_a_file_is_read_while_the_keyring_is_locked(tmp_path: Path) -> None:
    NamedSecrets(vault(tmp_path)).set("github", "tok3n")
    assert NamedSecrets(vault(tmp_path, Broken(RuntimeError))).get("github") == "tok3n"


def test_i7_two_processes_agree_on_the_key_that_they_make(tmp_path: Path) -> None:
    backend = MemoryBackend()
    vaults = [vault(tmp_path, backend) for _ in range(8)]
    threads = [
        threading.Thread(target=NamedSecrets(one).set, args=(f"n{number}", "x" * 2000))
        for number, one in enumerate(vaults)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    again = NamedSecrets(vault(tmp_path, backend))
    assert [again.get(f"n{number}") for number in range(8)] == ["x" * 2000] * 8
    assert len(again.places()) == 8


def test_i7_names_that_are_damaged_are_an_error_with_the_way_out(tmp_path: Path) -> None:
    secrets = NamedSecrets(vault(tmp_path, MemoryBackend()))
    secrets.set("github", "tok3n")
    (tmp_path / "keyring-names").write_text("{")
    with pytest.raises(SecretError, match=r"keyring-names, the names in the keyring, .*\(no JSON\); remove"):
        secrets.places()
    assert secrets.get("github") == "tok3n"


def test_i7_where_nothing_is_kept_nothing_can_be_set() -> None:
    off = Vault({"MCP_TOOLSET_CREDENTIALS": "off"}, Keyring(MemoryBackend))
    with pytest.raises(SecretError, match="nothing is kept, as MCP_TOOLSET_CREDENTIALS says so"):
        NamedSecrets(off).set("a", "b")
    assert NamedSecrets(off).get("a") is None


@pytest.mark.parametrize("backend", ["keyring.backends.fail.Keyring", "keyring.backends.null.Keyring"])
def test_i7_a_backend_that_does_not_encrypt_is_refused(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    keyring = pytest.importorskip("keyring", reason="the extra `keyring` is not installed")
    from keyring.core import load_keyring

    monkeypatch.setattr(keyring, "get_keyring", lambda: load_keyring(backend))
    with pytest.raises(KeyringMissingError, match=f"no keyring that encrypts .*{backend}"):
        Keyring().get("a")


def test_i7_an_accepted_backend_is_taken_out_of_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = pytest.importorskip("keyring", reason="the extra `keyring` is not installed")
    from keyring.backends.chainer import ChainerBackend

    accepted = type("Keyring", (MemoryBackend,), {"__module__": "keyring.backends.SecretService"})
    plain = type("PlaintextKeyring", (MemoryBackend,), {"__module__": "keyrings.alt.file"})

    chained = [plain(), accepted()]
    monkeypatch.setattr(ChainerBackend, "backends", chained)
    monkeypatch.setattr(keyring, "get_keyring", ChainerBackend)
    Keyring().set("a", "b")
    assert [backend.kept for backend in chained] == [{}, {"a": "b"}]


@pytest.mark.parametrize(
    ("name", "fits"),
    [("github", True), ("a/b@c.d-e_1", True), ("", False), ("-a", False), ("a b", False), ("a:b", False)]
    + [("é", False), ("a" * 100, True), ("a" * 101, False), ("key of encrypted files", False)],
)
def test_i7_names_of_secrets(name: str, fits: bool) -> None:
    assert is_name(name) is fits
