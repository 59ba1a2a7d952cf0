"""`principal_of`: the principal of an HTTP request, from the user that authentication has found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_toolset.errors import CallerError

_MEND: Final = (
    "have the authentication middleware set scope['user'] to a starlette.authentication.BaseUser whose "
    "`is_authenticated` is True or False and whose `display_name` is a text that no other user has"
)


def principal_of(scope: Mapping[str, Any]) -> str | None:
    """The principal of a request: who it is from, or `None` for an anonymous one.

    `scope["user"]` is a user as Starlette has them. Without one, or with one whose `is_authenticated` is
    `False`, the request is anonymous. Users of access tokens are told apart by their tokens, all others by
    `display_name`.

    Raises:
        CallerError: a user is set that cannot be told apart from others.
    """
    user: Any = scope.get("user")
    if user is None:
        return None
    try:
        is_authenticated: object = user.is_authenticated
        if is_authenticated is False:
            return None
        name: object = _token_principal(getattr(user, "access_token", None)) or user.display_name
    # The user is an object of the application, whose properties may raise anything.
    except Exception as fault:
        raise CallerError(
            f"the user of a request ({_kind(user)}) cannot be read: {fault!r}; {_MEND}"
        ) from fault
    if is_authenticated is not True or not isinstance(name, str) or not name:
        found = f"is_authenticated={is_authenticated!r} and display_name={name!r}"
        raise CallerError(f"the user of a request ({_kind(user)}) has {found}; {_MEND}")
    return name


def _kind(user: object) -> str:
    return f"{type(user).__module__}.{type(user).__qualname__}"


def _token_principal(token: Any) -> str | None:
    """Whom an access token stands for: its client, issuer and subject; `None` without a token.

    The display name of the SDK's user is the client's id alone, which all users of a client share.
    """
    if token is None or not hasattr(token, "client_id"):
        return None
    claims: object = getattr(token, "claims", None)
    issuer = cast("dict[str, Any]", claims).get("iss") if isinstance(claims, dict) else None
    subject = getattr(token, "subject", None)
    return json.dumps([token.client_id, None if issuer is None else str(issuer), subject])
