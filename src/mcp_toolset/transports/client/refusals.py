"""`refusal_of`: the error for a request over HTTP whose reply has the status of an error."""

from __future__ import annotations

from typing import Any, Final, cast

from mcp_toolset.errors import LoginRequiredError
from mcp_toolset.protocol.handshake import NoVerdictError
from mcp_toolset.protocol.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MCPError,
)
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.transports.client.carrier import Reply, redirect_of, shown
from mcp_toolset.transports.client.dispatcher import message_in

_NO_VERDICTS: Final = frozenset((403, 407, 408, 425, 429))
"""Statuses, beside 401, of requests that were not looked at: who asks, when and how often is refused."""

_OF_A_METHOD: Final = frozenset((INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS))
"""Errors that a server has for a method that it does not know, whatever status it sends them with."""


def is_good(status: int) -> bool:
    """Whether a reply of this status brings the answer to a request."""
    return 200 <= status < 300 and status != 202


def refusal_of(reply: Reply, body: bytes, kind: str, url: str) -> MCPError:
    """The server's own error, if it has sent one, else what its status says.

    Args:
        reply: The reply.
        body: Its body.
        kind: Its content type.
        url: The address that was asked.
    """
    if reply.status == 202:
        # The answer comes on this reply; 202 says that none will.
        return MCPError(INVALID_REQUEST, "server answered a request with 202 Accepted")
    target = redirect_of(reply, url)
    if target is not None:
        return MCPError(INVALID_REQUEST, _redirected(url, target))
    found = message_in(body) if kind.startswith("application/json") else None
    error: object = None if found is None else found.get("error")
    if type(error) is dict:
        fields = cast("dict[str, Any]", error)
        code, message = fields.get("code"), fields.get("message")
        if type(code) is int and type(message) is str:
            is_verdict = not _is_no_verdict(reply.status) or (reply.status >= 500 and code in _OF_A_METHOD)
            return (MCPError if is_verdict else NoVerdictError)(code, message, fields.get("data"))
    if reply.status == 404:
        # Without a session it is how a gateway spells that a method is not there.
        return MCPError(METHOD_NOT_FOUND, "Not Found")
    kind_of_error = NoVerdictError if _is_no_verdict(reply.status) else MCPError
    return kind_of_error(INTERNAL_ERROR, f"Server returned an error response: HTTP {reply.status}")


def _is_no_verdict(status: int) -> bool:
    return status in _NO_VERDICTS or status >= 500


def unauthorized(name: str, error: MCPError, *, sent: bool) -> LoginRequiredError:
    """The error for 401: it says nothing about the method, nor about the revision that the server speaks.

    Args:
        name: The name of the mount.
        error: The server's own error.
        sent: Whether the request had credentials.
    """
    said = f": {in_log(error.message)}" if error.code != INTERNAL_ERROR else ""
    if sent:
        return LoginRequiredError(
            name, f"it refuses the credentials that it was sent (HTTP 401{said}); renew them"
        )
    mend = 'give it `"auth": "oauth"` and log in, or `headers` with a token'
    return LoginRequiredError(name, f"it wants credentials (HTTP 401{said}); {mend}")


def _redirected(url: str, target: str) -> str:
    told = in_log(shown(target))
    if url.startswith("https:") and target.startswith("http:"):
        return (
            f"Redirect to {told} not followed: it would leave HTTPS for plain HTTP. The server is "
            "likely behind a proxy whose forwarded headers it does not trust; give the address with https "
            "or mend the settings of the proxy"
        )
    return f"Redirect to {told} not followed; use that URL as the endpoint if it is the intended server"
