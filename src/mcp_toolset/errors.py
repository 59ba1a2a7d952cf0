"""Every error this package raises, in one small tree.

```
ToolsetError                     catch this to catch all
├── DefinitionError              a tool or toolset is declared wrongly (the host's mistake)
│   ├── NameConflictError        two tools have the same name
│   └── UnknownNameError         a hook, a middleware or a verb names a tool that does not exist
├── ConfigError                  a configuration file cannot be read or used
├── TargetError                  a command-line target names nothing that can be served
├── CallError                    one call cannot continue; becomes a result that the model can act on
│   ├── UnknownToolError         the tool does not exist, or this caller may not use it
│   │   └── ToolNotReadyError    a mounted server that may have the tool is starting or offline
│   ├── InvalidArgumentsError    the arguments do not fit the tool's schema
│   ├── InvalidOutputError       the tool's result does not fit its own output schema
│   ├── PermissionDeniedError    a policy refused the call
│   ├── GrantError               a deferred tool was called without a valid grant
│   ├── CannotAskError           the client cannot be asked, or did not answer
│   ├── ClientCapabilityError    the client lacks a capability that the tool needs; the client is told
│   ├── RequestStateError        the state of a repeated request was altered, expired or belongs elsewhere
│   ├── RetrySuggestedError      the tool cannot do it now; says after how many seconds to retry
│   └── ToolExecutionError       the tool itself failed
├── UpstreamError                a mounted server failed; names it
│   ├── UpstreamUnavailableError it cannot be reached now
│   │   └── LoginRequiredError   a person has to log in to it first; says how
│   ├── UpstreamTimeoutError     it did not answer in time
│   └── UpstreamProtocolError    it answered with a protocol error, kept with its code and data
├── StoreError                   an asynchronous store failed or gave no answer; names it
│   └── GrantStoreError          the store of grants cannot be opened, read or written
├── SecretError                  a secret or credential cannot be read or kept; says which
├── CapabilityError              a tool used a capability that it was not granted
├── AuditError                   the audit log cannot be opened, read or continued; names its file
├── CallerError                  a request has a user that the server cannot identify
├── InvalidTokenError            an access token is not valid; the message holds no part of it
├── TokenCheckError              an access token cannot be checked now
├── ToolMismatchError            a call was decoded or completed by another tool than the one it calls
├── RoundError                   a round was committed or advanced wrongly; the round is unchanged
└── StateError                   an object is used before it is opened, or after it is closed
    ├── StaleStateError          a state belongs to another generation than the current one
    └── InvalidStateError        a saved state cannot be read or written; names the file
```

A message says what failed, where, why and what to do. `CallError` and `UpstreamError` may reach a
model, so they never carry secrets, tracebacks or another caller's data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

__all__ = [
    "CallError",
    "ConfigError",
    "DefinitionError",
    "GrantError",
    "InvalidArgumentsError",
    "LoginRequiredError",
    "PermissionDeniedError",
    "RetrySuggestedError",
    "RoundError",
    "SecretError",
    "StateError",
    "StoreError",
    "ToolExecutionError",
    "ToolsetError",
    "UnknownToolError",
    "UpstreamError",
    "UpstreamProtocolError",
    "UpstreamTimeoutError",
]


def sole(fault: BaseException) -> BaseException:
    """The single exception inside nested groups; a group of several exceptions is returned unchanged."""
    if not isinstance(fault, BaseExceptionGroup):
        return fault
    group = cast("BaseExceptionGroup[BaseException]", fault)
    return group if len(group.exceptions) > 1 else sole(next(iter(group.exceptions)))


def innermost(fault: BaseException, *first: type[BaseException]) -> BaseException:
    """The exception to report from nested groups: one of a type in `first`, else the first exception."""
    if not isinstance(fault, BaseExceptionGroup):
        return fault
    group = cast("BaseExceptionGroup[BaseException]", fault)
    leaves = [innermost(inner, *first) for inner in group.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, first)), leaves[0])


class ToolsetError(Exception):
    """Root of every error that this package raises."""


class DefinitionError(ToolsetError):
    """A tool or toolset is declared wrongly; raised where it is defined."""


class NameConflictError(DefinitionError):
    """Two tools have the same public name; the message names both places and the remedy."""


class UnknownNameError(DefinitionError):
    """A hook, a middleware or a verb names a tool that does not exist; the message has close matches."""


class ConfigError(ToolsetError):
    """A configuration file is missing, malformed, or asks for something impossible.

    Attributes:
        steps: The keys and indices that lead to the mistake in the file; empty for the whole file.
        alone: The message without the number of further mistakes.
    """

    def __init__(self, message: str, *, steps: tuple[str | int, ...] = (), alone: str | None = None) -> None:
        """State the mistake; `alone` is the message if not given."""
        super().__init__(message)
        self.steps = steps
        self.alone = message if alone is None else alone


class TargetError(ToolsetError):
    """A command-line target names nothing that can be served or inspected."""


class CallError(ToolsetError):
    """One call cannot continue; served as an `isError` result so that the model can act on it."""


class UnknownToolError(CallError):
    """The tool does not exist for this caller.

    The same error answers names that do not exist and names that this caller may not use, so that it
    reveals nothing about hidden tools.
    """

    def __init__(self, name: str, hint: str = "") -> None:
        """Name the tool as the caller wrote it; `hint` is for the host only."""
        super().__init__(f"Unknown tool: {name}{hint}")
        self.name = name


class ToolNotReadyError(UnknownToolError):
    """The tool is unknown so far, and a mounted server that may have it is starting or offline."""

    def __init__(self, name: str, reason: str, hint: str = "") -> None:
        """Name the tool as the caller wrote it; `reason` says which server is in which state, and why."""
        super().__init__(name, hint)
        self.args = (f"{name} is not available: {reason}{hint}",)
        self.reason = reason


class InvalidArgumentsError(CallError):
    """The arguments do not fit the tool's input schema; nothing ran."""


class InvalidOutputError(CallError):
    """The tool ran, but its result does not fit the tool's output schema."""


class PermissionDeniedError(CallError):
    """A policy refused the call; nothing ran."""


class GrantError(CallError):
    """A deferred tool was called without a valid grant for this caller; nothing ran."""


class CannotAskError(CallError):
    """The client of a call cannot be asked, refused the request, or gave no answer in time."""

    def __init__(self, message: str, *, obstacle: str = "") -> None:
        """Tell the model why, and perhaps what to do; `obstacle` is the reason alone."""
        self.obstacle = obstacle or message
        super().__init__(message)


class ClientCapabilityError(CallError):
    """A tool needs a capability that the client does not declare (2026-07-28, basic/versioning)."""

    def __init__(self, capability: str) -> None:
        """Name the missing capability as the protocol does, such as `sampling`."""
        self.capability = capability
        super().__init__(f"this needs a client that declares {capability}, and this one does not")


class RequestStateError(CallError):
    """The state of a repeated request was altered, has expired, or belongs to another request."""


class RetrySuggestedError(CallError):
    """The tool cannot do it now, and a retry may succeed. `after` is in seconds."""

    def __init__(self, message: str, *, after: float) -> None:
        """Add when to retry to the message; `message` says why the tool cannot do it now."""
        super().__init__(f"{message}; try again in {after:g} s")
        self.after = after


class ToolExecutionError(CallError):
    """The tool ran and failed; the message is the tool's own."""


class UpstreamError(ToolsetError):
    """A mounted server failed. `upstream` is the name it is mounted under.

    `sent` is false if the call was certainly not sent, so that it has not happened.
    """

    def __init__(self, upstream: str, reason: str, *, sent: bool = True) -> None:
        super().__init__(f"{upstream}: {reason}")
        self.upstream = upstream
        self.reason = reason
        self.sent = sent


class UpstreamUnavailableError(UpstreamError):
    """The mounted server is down, starting or broken; the call was not sent, or was not answered."""


NEEDS_LOGIN: Final = "needs login: "
"""The beginning of the status of a server that needs a login; the command follows."""

REFUSES_CREDENTIALS: Final = "it refuses the credentials that it was sent"
WANTS_CREDENTIALS: Final = "it wants credentials"
"""How the status of a server begins that answered 401, with and without credentials."""


class LoginRequiredError(UpstreamUnavailableError):
    """The mounted server requires credentials that are missing, or no longer accepts the credentials it got.

    The message says how to log in. `for_more` is whether it lacks only scopes, for some of its tools;
    `scopes` are then all scopes that the next login must request.
    """

    def __init__(
        self, upstream: str, reason: str, *, for_more: bool = False, scopes: Iterable[str] = ()
    ) -> None:
        super().__init__(upstream, reason, sent=False)
        self.for_more = for_more
        self.scopes = tuple(scopes)


class UpstreamTimeoutError(UpstreamError):
    """The mounted server did not answer before the deadline; the request was cancelled."""


class UpstreamProtocolError(UpstreamError):
    """The mounted server answered with a JSON-RPC error; its code and data are kept for the caller."""

    def __init__(
        self, upstream: str, code: int, message: str, data: object = None, *, plain: bool = False
    ) -> None:
        """Keep the server's code, message and data; a `plain` message has no server's name before it."""
        super().__init__(upstream, message)
        if plain:
            self.args = (message,)
        self.code = code
        self.data = data


class StoreError(ToolsetError):
    """An asynchronous store failed, or gave no answer in time; the operation that needs it did not happen.

    The message names the store by its `name`, and may reach a model.
    """


class GrantStoreError(StoreError):
    """The store of grants cannot be opened, read or written; nothing is granted and nothing runs.

    When a file is opened the message names the file and the remedy; a later message may reach a model and
    names no file.
    """


class SecretError(ToolsetError):
    """A secret or credential cannot be read or kept; the message says which, and holds no part of it.

    `absent` says that it does not exist, so that the default of a reference may stand for it.
    """

    def __init__(self, cause: str, mend: str, *, absent: bool = False) -> None:
        super().__init__(f"{cause}; {mend}")
        self.cause = cause
        self.mend = mend
        self.absent = absent


class CapabilityError(ToolsetError):
    """A tool used a capability that it was not granted."""

    def __init__(self, capability: str, way: str = "") -> None:
        """Name the capability and how to grant it: by a server's option, unless `way` says otherwise."""
        how = f"(…, capabilities=[…, {capability!r}])"
        served = f"serve{how}, ToolsetServer{how} or Toolset.granting({capability!r})"
        super().__init__(f"capability {capability!r} was not granted; grant it with {way or served}")
        self.capability = capability


class ToolMismatchError(ToolsetError):
    """A call was decoded or completed by another tool than the one it calls; nothing has changed."""


class RoundError(ToolsetError):
    """A round was committed or advanced wrongly; the round is unchanged."""


class AuditError(ToolsetError):
    """The audit log cannot be opened, read or continued; the message names the file and the remedy."""


class CallerError(ToolsetError):
    """A request has a user that the server cannot identify; it is refused, and never treated as anonymous."""


class InvalidTokenError(ToolsetError):
    """An access token is not valid: the caller gets the reason (401); no message has a part of the token."""


class TokenCheckError(ToolsetError):
    """An access token cannot be checked now, because keys or a service do not answer (503)."""


class StateError(ToolsetError):
    """An object is used outside its `async with` block, or in a state that forbids it."""


class StaleStateError(StateError):
    """A state belongs to another generation than the one that it would change; nothing has changed."""


class InvalidStateError(StateError):
    """A saved state is corrupt, foreign, or cannot be read or written; the file is untouched."""
