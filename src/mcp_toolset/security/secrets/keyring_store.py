"""`Keyring`: the system's keyring, asked in a thread with a deadline; every failure is one `SecretError`.

The package `keyring` is an extra. It may choose a backend that writes plain text, so backends are accepted by
a list: Secret Service (GNOME, KeePassXC), KWallet, the Keychain of macOS, the Credential Manager of Windows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock, Thread
from typing import Final, Protocol, TypeVar, cast

from mcp_toolset.errors import SecretError
from mcp_toolset.security.secrets import KEY_VARIABLE

SERVICE: Final = "mcp-toolset"
"""The name under which a keyring shows our entries."""

PATIENCE: Final = 30.0
"""Seconds to wait for a keyring, which may ask the user to unlock it."""

AGAIN_AFTER: Final = 300.0
"""Seconds after which a keyring that failed is asked again: a file that is watched is read often."""

_ACCEPTED: Final = frozenset(
    f"keyring.backends.{name}" for name in ("SecretService", "libsecret", "kwallet", "macOS", "Windows")
)
_MEND: Final = f"unlock it, or set {KEY_VARIABLE} to keep secrets in encrypted files"
_T = TypeVar("_T")


class Backend(Protocol):
    """What is used of a backend of the package `keyring`."""

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...

    def delete_password(self, service: str, username: str) -> None: ...


class KeyringMissingError(SecretError):
    """The machine has no keyring that is accepted, so that encrypted files are used."""


class Keyring:
    """Names and secrets in the system's keyring; all methods may block for `patience` seconds, once.

    A keyring that failed is not asked again for five minutes; the same error is raised at once.
    """

    def __init__(self, find: Callable[[], Backend] | None = None, *, patience: float = PATIENCE) -> None:
        self._find = find or _system_keyring
        self._patience = patience
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
        """Remove a secret; whether it was there."""
        if self.get(name) is None:
            return False
        self._ask(lambda backend: backend.delete_password(SERVICE, name))
        return True

    def _ask(self, question: Callable[[Backend], _T]) -> _T:
        with self._asking:
            if self._failed is not None and time.monotonic() < self._failed[0]:
                raise type(self._failed[1])(self._failed[1].cause, self._failed[1].mend)
            try:
                return _bounded(lambda: question(self._found()), self._patience)
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


def _bounded(work: Callable[[], _T], patience: float) -> _T:
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
    thread.join(patience)
    if results:
        return results[0]
    raise (
        faults[0]
        if faults
        else SecretError(f"the system's keyring gave no answer within {patience:g} s", _MEND)
    )
