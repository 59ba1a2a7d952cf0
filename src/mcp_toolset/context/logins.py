"""The data of a login of a caller at a mounted server, for the login pages of this server."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

LOGIN_PATH = "/oauth/login/"
CALLBACK_PATH = "/oauth/callback"


class PendingLogin(Protocol):
    """A login that waits for a person and a browser.

    Attributes:
        server: The name of the mounted server.
        caller: The name of the caller whose account at the server it will use.
        caller_key: The key of that caller.
        browser: What tells the browser that began it; empty so far.
    """

    server: str
    caller: str
    caller_key: str
    browser: str

    def begin(self, browser: str) -> str | None:
        """The address of the authorization server, for the first browser that asks; else `None`."""
        ...

    async def arrive(self, address: str) -> bool:
        """Take the address that the browser was sent back to, once; whether the caller has tokens then."""
        ...


@runtime_checkable
class LoginSource(Protocol):
    """A mounted source whose callers log in by themselves."""

    def login_of(self, ticket: str) -> PendingLogin | None:
        """The login of a ticket, or of the `state` of its authorization request."""
        ...
