"""`NamedSecrets`: secrets by names, in the system's keyring, or in encrypted files where there is none.

`mcp-toolset secret` writes them and `${keyring:NAME}` in a configuration reads them. With `MCP_TOOLSET_KEY`
they are in encrypted files, and so are long ones, which not every keyring takes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from mcp_toolset.concurrency.atomic_file import locked
from mcp_toolset.errors import SecretError
from mcp_toolset.security.vault import FOLDER_VARIABLE, KEY_VARIABLE, Vault

if TYPE_CHECKING:
    from mcp_toolset.security.encrypted_file import EncryptedFiles, SecretFile

SERVICE: Final = "mcp-toolset"
"""The name under which a keyring shows our entries."""

TIMEOUT: Final = 30.0
"""Seconds to wait for a keyring, which may ask the user to unlock it."""

AGAIN_AFTER: Final = 300.0
"""Seconds after which a keyring that failed is asked again: a file that is watched is read often."""

_ACCEPTED: Final = frozenset(
    f"keyring.backends.{name}" for name in ("SecretService", "libsecret", "kwallet", "macOS", "Windows")
)
_MEND: Final = f"unlock it, or set {KEY_VARIABLE} to keep secrets in encrypted files"
_T = TypeVar("_T")


class Backend(Protocol):
    """The methods of a backend of the package `keyring` that are used."""

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...

    def delete_password(self, service: str, username: str) -> None: ...


class KeyringMissingError(SecretError):
    """The machine has no keyring that is accepted, so that encrypted files are used."""


class Keyring:
    """Names and secrets in the system's keyring; all methods may block for `timeout` seconds, once.

    A keyring that failed is not asked again for five minutes; the same error is raised at once.
    """

    def __init__(self, find: Callable[[], Backend] | None = None, *, timeout: float = TIMEOUT) -> None:
        self._find = find or _system_keyring
        self._timeout = timeout
        self._backend: Backend | None = None
        self._failed: tuple[float, SecretError] | None = None
        self._asking = Lock()

    @property
    def is_there(self) -> bool:
        try:
            self._ask(lambda backend: None)
        except KeyringMissingError:
            return False
        except SecretError:
            return True
        return True

    def get(self, name: str) -> str | None:
        return self._ask(lambda backend: backend.get_password(SERVICE, name))

    def set(self, name: str, secret: str) -> None:
        self._ask(lambda backend: backend.set_password(SERVICE, name, secret))

    def remove(self, name: str) -> bool:
        if self.get(name) is None:
            return False
        self._ask(lambda backend: backend.delete_password(SERVICE, name))
        return True

    def _ask(self, question: Callable[[Backend], _T]) -> _T:
        with self._asking:
            if self._failed is not None and time.monotonic() < self._failed[0]:
                raise type(self._failed[1])(self._failed[1].cause, self._failed[1].mend)
            try:
                return _bounded(lambda: question(self._found()), self._timeout)
            except SecretError as fault:
                self._failed = time.monotonic() + AGAIN_AFTER, fault
                raise

    def _found(self) -> Backend:
        if self._backend is None:
            self._backend = self._find()
        return self._backend


def _system_keyring() -> Backend:
    try:
        import keyring
        from keyring.backends.chainer import ChainerBackend
    except ImportError:
        raise KeyringMissingError(
            "the package `keyring` is not installed", "install mcp-toolset[keyring]"
        ) from None
    chosen = keyring.get_keyring()
    # The chainer asks several backends, and plain text may be among them.
    chained = chosen.backends if isinstance(chosen, ChainerBackend) else [chosen]
    backends = [backend for backend in chained if type(backend).__module__ in _ACCEPTED]
    if backends:
        return cast("Backend", backends[0])
    name = f"{type(chosen).__module__}.{type(chosen).__qualname__}"
    raise KeyringMissingError(
        f"this machine has no keyring that encrypts (the package `keyring` found {name})",
        f"start a Secret Service such as gnome-keyring, or set {KEY_VARIABLE}",
    )


def _bounded(work: Callable[[], _T], timeout: float) -> _T:
    """Do the work in a thread; a thread that hangs is left behind, and does not keep the process alive."""
    results: list[_T] = []
    faults: list[SecretError] = []

    def run() -> None:
        try:
            results.append(work())
        except SecretError as fault:
            faults.append(fault)
        # Backends are foreign and raise anything, `RuntimeError` and errors of D-Bus among others. A text of
        # theirs may quote an entry, so only the type is told.
        except Exception as fault:
            faults.append(SecretError(f"the system's keyring failed ({type(fault).__name__})", _MEND))

    thread = Thread(target=run, name="mcp-toolset keyring", daemon=True)
    thread.start()
    thread.join(timeout)
    if results:
        return results[0]
    raise (
        faults[0]
        if faults
        else SecretError(f"the system's keyring gave no answer within {timeout:g} s", _MEND)
    )


IN_KEYRING: Final = "the system's keyring"
NAMES: Final = "letters, digits and _, and after the first also . - / @, at most 100"
"""The characters of a name, for messages."""

LONGEST: Final = 1000
"""Characters of the longest secret that goes into a keyring: Windows takes 1,280."""

_NAME: Final = re.compile(r"\w[\w./@-]{0,99}", re.ASCII)
_INDEX: Final = "keyring-names"
_KIND: Final = "secret"
_TIMEOUT: Final = 30.0


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


class NamedSecrets:
    """Secrets by names. All methods may block, and raise `SecretError` if a store cannot be used."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def get(self, name: str) -> str | None:
        kept, failed = self._filed(name) if self._vault.has_own_key else None, None
        if kept is None:
            try:
                kept = self._vault.keyring.get(name)
            except KeyringMissingError:
                pass
            except SecretError as fault:
                failed = fault
        if kept is None:
            kept = self._filed(name)
        if kept is None and failed is not None:
            raise failed
        return kept

    def set(self, name: str, secret: str) -> tuple[str, ...]:
        """Keep a secret, in place of the one before; returns where, and then where the key is."""
        with self._changing() as (files, names):
            if not self._vault.has_own_key and len(secret) <= LONGEST:
                with suppress(KeyringMissingError):
                    self._vault.keyring.set(name, secret)
                    files.remove(_entry(name))
                    names.add(name)
                    return (IN_KEYRING,)
            files.save(_entry(name), {"secret": secret})
            if name in names:
                self._vault.keyring.remove(name)
                names.remove(name)
            return f"an encrypted file in {files.folder.path}", files.key.place

    def remove(self, name: str) -> bool:
        with self._changing() as (files, names):
            existed = name in names
            if existed or not self._vault.has_own_key:
                with suppress(KeyringMissingError):
                    existed = self._vault.keyring.remove(name) or existed
            names.discard(name)
            return files.remove(_entry(name)) or existed

    def places(self) -> dict[str, str]:
        files = self._files()
        filed = f"an encrypted file in {files.folder.path}"
        by_name = dict.fromkeys(_index(files), IN_KEYRING) | {name: filed for (name,) in files.entries(_KIND)}
        return dict(sorted(by_name.items()))

    def _filed(self, name: str) -> str | None:
        files = self._vault.files
        kept = None if files is None else files.load(_entry(name))
        return None if kept is None else str(kept["secret"])

    def _files(self) -> EncryptedFiles:
        if self._vault.files is None:
            raise SecretError(f"nothing is kept, as {FOLDER_VARIABLE} says so", f"unset {FOLDER_VARIABLE}")
        return self._vault.files

    @contextmanager
    def _changing(self) -> Generator[tuple[EncryptedFiles, set[str]]]:
        """The encrypted files and the names in the keyring; changes of the names are kept."""
        files = self._files()
        try:
            files.folder.make()
            with locked(files.folder.path / f".{_INDEX}.lock", _TIMEOUT):
                before = _index(files)
                names = set(before)
                yield files, names
                if names != before:
                    files.folder.write(_INDEX, json.dumps(sorted(names)).encode())
        except OSError as fault:
            why = fault.strerror or "another process holds its lock"
            raise SecretError(
                f"secrets cannot be kept in {files.folder.path} ({why})",
                f"mend that, or name another folder in {FOLDER_VARIABLE}",
            ) from None


def _index(files: EncryptedFiles) -> set[str]:
    path = files.folder.path / _INDEX
    try:
        names = json.loads(files.folder.read(_INDEX) or b"[]")
        if isinstance(names, list):
            return {str(name) for name in cast("list[object]", names)}
        why = "no list"
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "no JSON"
    raise SecretError(f"{path}, the names in the keyring, cannot be read ({why})", "remove it")


def _entry(name: str) -> SecretFile:
    from mcp_toolset.security.encrypted_file import SecretFile

    return SecretFile(
        _KIND, (name,), f"the secret {name!r}", f"keep it again with `mcp-toolset secret set {name}`"
    )
