"""Every error this package raises, in one small tree.

```
ToolsetError                     catch this to catch all
├── DefinitionError              a tool or toolset is declared wrongly (the host's mistake)
│   ├── NameConflictError        two tools answer to one name
│   └── UnknownNameError         a hook, a middleware or a verb names a tool that does not exist
├── ConfigError                  a configuration file cannot be read or used
├── TargetError                  a command-line target names nothing that can be served
├── CallError                    one call cannot go on; becomes a result the model can act on
│   ├── UnknownToolError         no such tool, or none that this caller may know of
│   │   └── ToolNotReadyError    a mounted server that may have the tool is starting or offline
│   ├── InvalidArgumentsError    the arguments do not fit the tool's schema
│   ├── InvalidOutputError       the tool's result does not fit its own output schema
│   ├── PermissionDeniedError    a policy refused the call
│   ├── GrantError               a deferred tool was called without a live grant
│   ├── CannotAskError           nobody can be asked here, or nobody answered
│   ├── ClientCapabilityError    the client lacks what the tool needs; told to the client, not to the model
│   ├── RequestStateError        a repeated request's state was altered, has ended, or is another's
│   ├── RetrySuggestedError      the tool cannot do it now; says after how many seconds
│   └── ToolExecutionError       the tool itself failed
├── UpstreamError                a mounted server failed; names it
│   ├── UpstreamUnavailableError it cannot be reached now
│   ├── UpstreamTimeoutError     it did not answer in time
│   └── UpstreamProtocolError    it answered with a protocol error, kept with its code and data
├── GrantStoreError              the store of grants cannot be opened, read or written
├── CapabilityError              a tool asked for something that it was not granted
├── NextConsumedError            a middleware called `next` twice
├── ToolMismatchError            a call was decoded or completed by a tool that is not its own
├── RoundError                   a round was committed or advanced wrongly; nothing has changed
└── StateError                   an object is used before it is opened, or after it is closed
    ├── StaleStateError          a state is of another generation than the current one
    └── InvalidStateError        a saved state cannot be read or written; names the file
```

A message says what happened, where, and how to mend it. `CallError` and `UpstreamError` may reach a
model, so they never carry secrets, tracebacks or another caller's data.
"""

from __future__ import annotations

from typing import cast

__all__ = [
    "CallError",
    "CannotAskError",
    "CapabilityError",
    "ClientCapabilityError",
    "ConfigError",
    "DefinitionError",
    "GrantError",
    "GrantStoreError",
    "InvalidArgumentsError",
    "InvalidOutputError",
    "InvalidStateError",
    "NameConflictError",
    "NextConsumedError",
    "PermissionDeniedError",
    "RequestStateError",
    "RetrySuggestedError",
    "RoundError",
    "StaleStateError",
    "StateError",
    "TargetError",
    "ToolExecutionError",
    "ToolMismatchError",
    "ToolNotReadyError",
    "ToolsetError",
    "UnknownNameError",
    "UnknownToolError",
    "UpstreamError",
    "UpstreamProtocolError",
    "UpstreamTimeoutError",
    "UpstreamUnavailableError",
    "innermost",
    "sole",
]


def sole(fault: BaseException) -> BaseException:
    """The one exception inside nested groups; a group of several, or no group, as it is."""
    if not isinstance(fault, BaseExceptionGroup):
        return fault
    group = cast("BaseExceptionGroup[BaseException]", fault)
    return group if len(group.exceptions) > 1 else sole(next(iter(group.exceptions)))


def innermost(fault: BaseException, *first: type[BaseException]) -> BaseException:
    """The one exception to speak of inside nested groups: of one of the kinds in `first`, else the first."""
    if not isinstance(fault, BaseExceptionGroup):
        return fault
    group = cast("BaseExceptionGroup[BaseException]", fault)
    leaves = [innermost(inner, *first) for inner in group.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, first)), leaves[0])


class ToolsetError(Exception):
    """Root of every error that this package raises by itself."""


class DefinitionError(ToolsetError):
    """A tool or toolset is declared wrongly; raised where it is defined."""


class NameConflictError(DefinitionError):
    """Two tools answer to one public name; the message names both places and the mend."""


class UnknownNameError(DefinitionError):
    """A hook, a middleware or a verb names a tool that does not exist; the message has near matches."""


class ConfigError(ToolsetError):
    """A configuration file is missing, malformed, or asks for something impossible."""


class TargetError(ToolsetError):
    """A command-line target names nothing that can be served or inspected."""


class CallError(ToolsetError):
    """One call cannot go on; served as an `isError` result so that the model can act on it."""


class UnknownToolError(CallError):
    """No tool of that name for this caller.

    Raised alike for names that do not exist and names that this caller may not use, so that the
    error tells nothing about hidden tools.
    """

    def __init__(self, name: str, hint: str = "") -> None:
        """Name the tool that was asked for, as the caller wrote it; `hint` is for the host alone."""
        super().__init__(f"Unknown tool: {name}{hint}")
        self.name = name


class ToolNotReadyError(UnknownToolError):
    """The tool is not in the toolset, and a mounted server that may have it is starting or offline."""

    def __init__(self, name: str, reason: str, hint: str = "") -> None:
        """Name the tool as the caller wrote it; `reason` says which server is in which state, and why."""
        super().__init__(name, hint)
        self.args = (f"{name} is not available: {reason}{hint}",)
        self.reason = reason


class InvalidArgumentsError(CallError):
    """The arguments do not fit the tool's input schema; nothing ran."""


class InvalidOutputError(CallError):
    """The tool ran, but its result does not fit its own output schema."""


class PermissionDeniedError(CallError):
    """A policy refused the call; nothing ran."""


class GrantError(CallError):
    """A deferred tool was called without a live grant for this caller; nothing ran."""


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
    """The state that came with a repeated request was altered, has ended, or belongs to another one."""


class RetrySuggestedError(CallError):
    """The tool cannot do it now, and another try may succeed. `after` is in seconds."""

    def __init__(self, message: str, *, after: float) -> None:
        """Add to the message when to try again; `message` says what stands in the way."""
        super().__init__(f"{message}; try again in {after:g} s")
        self.after = after


class ToolExecutionError(CallError):
    """The tool ran and failed; the message is the tool's own."""


class UpstreamError(ToolsetError):
    """A mounted server failed. `upstream` is the name it is mounted under."""

    def __init__(self, upstream: str, reason: str) -> None:
        """Prefix the reason with the server's name, as every such message must carry it."""
        super().__init__(f"{upstream}: {reason}")
        self.upstream = upstream
        self.reason = reason


class UpstreamUnavailableError(UpstreamError):
    """The mounted server is down, starting or broken; the call was not sent, or was not answered."""


class UpstreamTimeoutError(UpstreamError):
    """The mounted server did not answer within the deadline; it was told to cancel."""


class UpstreamProtocolError(UpstreamError):
    """The mounted server answered with a JSON-RPC error; its code and data are kept for the caller."""

    def __init__(self, upstream: str, code: int, message: str, data: object = None) -> None:
        """Keep the server's own code, message and data."""
        super().__init__(upstream, message)
        self.code = code
        self.data = data


class GrantStoreError(ToolsetError):
    """The store of grants cannot be opened, read or written; nothing is granted and nothing runs.

    Where it is opened the message names the file and the mend; later it may reach a model, and names none.
    """


class CapabilityError(ToolsetError):
    """A tool asked for a capability that it was not granted."""

    def __init__(self, capability: str, way: str = "") -> None:
        """Name the capability and the way to grant it: that of a server, unless `way` says another."""
        served = f"ToolsetServer(…, capabilities=[…, {capability!r}]) or Toolset.granting({capability!r})"
        super().__init__(f"capability {capability!r} was not granted; grant it with {way or served}")
        self.capability = capability


class NextConsumedError(ToolsetError):
    """A middleware used its `next` a second time; a call runs at most once."""


class ToolMismatchError(ToolsetError):
    """A call was decoded or completed by a tool that is not its own; nothing has changed."""


class RoundError(ToolsetError):
    """A round was committed or advanced wrongly; the round is exactly as before."""


class StateError(ToolsetError):
    """An object is used outside its `async with` block, or in a state that forbids it."""


class StaleStateError(StateError):
    """A state is of another generation than the one that it would change; nothing has changed."""


class InvalidStateError(StateError):
    """A saved state is corrupt, foreign, or cannot be read or written; the file is untouched."""
