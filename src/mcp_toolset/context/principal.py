"""`identity_of`: the caller of an HTTP request; `PendingLogin`: a login that a mounted server waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from mcp_toolset.errors import CallerError
from mcp_toolset.tools.core.identity import Identity, identity_of_token

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


_MEND: Final = (
    "have the authentication middleware set scope['user'] to a starlette.authentication.BaseUser whose "
    "`is_authenticated` is True or False and whose `display_name` is a text that no other user has"
)


def principal_of(scope: Mapping[str, Any]) -> str | None:
    """The key of the identity of a request; `None` for an anonymous one."""
    identity = identity_of(scope)
    return None if identity is None else identity.key


def identity_of(scope: Mapping[str, Any]) -> Identity | None:
    """Who a request is from, or `None` for an anonymous one.

    `scope["user"]` is an `Identity`, or a user as Starlette has them. Without one, or with one whose
    `is_authenticated` is `False`, the request is anonymous. Users of access tokens are told apart by their
    tokens, all others by `display_name`; these have the scopes of `scope["auth"]`.
    """
    user: Any = scope.get("user")
    if user is None or isinstance(user, Identity):
        return user
    try:
        is_authenticated: object = user.is_authenticated
        if is_authenticated is False:
            return None
        identity = identity_of_token(getattr(user, "access_token", None))
        name: object = identity.key if identity else user.display_name
    # The user is an object of the application, whose properties may raise anything.
    except Exception as fault:
        raise CallerError(
            f"the user of a request ({_kind(user)}) cannot be read: {fault!r}; {_MEND}"
        ) from fault
    if is_authenticated is not True or not isinstance(name, str) or not name:
        found = f"is_authenticated={is_authenticated!r} and display_name={name!r}"
        raise CallerError(f"the user of a request ({_kind(user)}) has {found}; {_MEND}")
    scopes: Iterable[str] = getattr(scope.get("auth"), "scopes", ())
    return identity or Identity(name, subject=name, scopes=frozenset(scopes))


def _kind(user: object) -> str:
    return f"{type(user).__module__}.{type(user).__qualname__}"
