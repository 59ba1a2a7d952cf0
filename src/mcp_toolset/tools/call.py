"""`ToolCall` and `ToolContext`: one call of a tool, its caller, and what handlers and rules may use."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar, cast, overload

from mcp_toolset._index import mend
from mcp_toolset._records import dataclass
from mcp_toolset.errors import (
    CallError,
    CannotAskError,
    CapabilityError,
    ClientCapabilityError,
    DefinitionError,
)
from mcp_toolset.tools.result import (
    ELICITATION,
    ROOTS,
    SAMPLING,
    ElicitationAnswer,
    SampledMessage,
    ToolResult,
    elicitation,
    roots_in,
    sampling,
)

if TYPE_CHECKING:
    from mcp_toolset.tools.services import OwnProcesses


_NO_CLAIMS: Final[Mapping[str, Any]] = MappingProxyType({})


def require_several(**lists: Iterable[str]) -> None:
    """Refuse one text where several are wanted: each of its letters would be a role, and match nothing."""
    for key, given in lists.items():
        if isinstance(given, str):
            raise DefinitionError(f"{key} is a list of names, such as [{given!r}], not {given!r}")


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller. Two identities with the same `key` are the same caller.

    Attributes:
        key: The value of `context.principal`, to which grants, sessions, caches and limits are bound.
        client: The id of the program that the credentials were issued to (the claim `client_id` or `azp`).
        subject: The user of the credentials (the claim `sub`).
        issuer: The issuer of the credentials (the claim `iss`).
        scopes: The scopes of the credentials (RFC 6749, section 3.3).
        roles: The roles of the user, as the issuer or the configuration names them.
        expires: Seconds since the epoch; `None` if they do not expire.
        claims: The other claims of the credentials; may be personal data, so `repr` omits them.
    """

    key: str
    client: str | None = None
    subject: str | None = None
    issuer: str | None = None
    scopes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    expires: float | None = None
    claims: Mapping[str, Any] = field(default_factory=lambda: _NO_CLAIMS, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        client: str | None,
        subject: str | None = None,
        issuer: str | None = None,
        *,
        scopes: Iterable[str] = (),
        roles: Iterable[str] = (),
        expires: float | None = None,
        claims: Mapping[str, Any] = _NO_CLAIMS,
    ) -> Self:
        """The identity of a client, an issuer and a subject; `DefinitionError` if roles are one text."""
        require_several(roles=roles, scopes=scopes)
        key = json.dumps([client, issuer, subject])
        return cls(key, client, subject, issuer, frozenset(scopes), frozenset(roles), expires, claims)

    @property
    def name(self) -> str:
        """The caller's name in policies and logs: the subject, otherwise the client, otherwise the key."""
        return self.subject or self.client or self.key

    @property
    def is_authenticated(self) -> bool:
        """Always true, for applications on Starlette, which read it from `request.user`."""
        return True

    @property
    def display_name(self) -> str:
        """The same as `name`, for applications on Starlette."""
        return self.name


CAPABILITIES: Final = {
    "progress": "report progress to the caller",
    "log": "send log messages to the caller",
    "ask": "ask the user a question",
    "sample": "have the client's model write something",
    "roots": "see which folders the client works in",
    "session": "see who calls and which tools the caller sees",
    "sessions": "see another session that the host lets the tool know of",
    "catalog": "search the deferred tools",
    "membership": "see and change which tools are members of the catalog",
    "background": "start work that outlives the call, and await it",
    "processes": "start processes whose records outlive the program, list, await and cancel them",
    "events": "append events to the record of the session",
}
"""Each capability, and what it allows."""

ALWAYS: Final = frozenset({"progress", "log"})  # Granted to every tool: reports about its own call.


def identity_of_token(token: Any) -> Identity | None:
    """The client, issuer and subject of an access token of the SDK; `None` if it is none.

    The display name of the SDK's user is the client's id alone, which all users of a client share.
    """
    if token is None or not hasattr(token, "client_id"):
        return None
    found: object = getattr(token, "claims", None)
    claims: Mapping[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    issuer = claims.get("iss")
    return Identity.of(
        token.client_id,
        getattr(token, "subject", None),
        None if issuer is None else str(issuer),
        scopes=getattr(token, "scopes", ()),
        expires=getattr(token, "expires_at", None),
        claims=claims,
    )


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """The session of a call at its moment, with the public names of the tools that its caller sees."""

    session: str | None
    principal: str | None
    protocol_version: str | None
    tools: tuple[str, ...]


Sessions = Callable[[str, Any], SessionSnapshot | None]
"""Tells of another session by its id, given the context of the call; `None` for one that is not for it."""


def known_session(sessions: Sessions, session: str, context: Any) -> SessionSnapshot:
    known = sessions(session, context)
    if known is None:
        raise CallError(f"there is no session {session!r} that this tool can see")
    return known


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """One event that a tool has recorded for the application; `number` is its position, from 1."""

    number: int
    kind: str
    data: Any
    tool: str = ""
    call_id: str = ""
    session: str | None = None
    principal: str | None = None


class Membership(Protocol):
    """Read and change which tools are members of the catalog (capability `membership`)."""

    @property
    def generation(self) -> int: ...

    def members(self) -> Mapping[str, bool]: ...

    def change(self, members: Mapping[str, bool], *, generation: int) -> int: ...


class Background(Protocol):
    """Work that continues after the call that started it (capability `background`)."""

    def start(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> str:
        """Run `work(*arguments)`, also after the call; return an id to get its result with."""
        ...

    async def result(self, id: str, *, timeout: float | None = None) -> Any:
        """The result of some work, once it has ended; `timeout` bounds the wait, in seconds."""

    def cancel(self, id: str) -> None: ...


@dataclass(frozen=True)
class SearchHit:
    """One found tool.

    Attributes:
        id: The id to resolve the tool by.
        name: Its public name.
        server: The source it comes from, if any.
        description: One line of at most 160 characters.
        signature: The public name with parameters and their types.
        score: From 0 to 1, 1 for the tool's exact name; comparable within one answer only.
        state: `available`, or why the tool cannot be called now; the deferred catalog sets it.
        fits: True if the tools of this answer fit the query; if not, they are only the nearest few.
    """

    id: str
    name: str
    server: str | None
    description: str
    signature: str
    score: float
    state: str = "available"
    fits: bool = True


def granted(names: Iterable[str], where: str) -> frozenset[str]:
    if isinstance(names, str):
        raise DefinitionError(f"{where}: capabilities is a list of names: capabilities=[{names!r}]")
    wanted = frozenset(names)
    unknown = sorted(wanted - CAPABILITIES.keys())
    if unknown:
        known = ", ".join(CAPABILITIES)
        raise DefinitionError(f"{where}: there is no capability {unknown[0]!r} to grant; there are {known}")
    return wanted


Once = Callable[..., Awaitable[Any]]
"""Does a step of a call, and records it: from its key, the function, its arguments and `repeat`."""

EFFECTS: Final[ContextVar[Once | None]] = ContextVar("mcp_toolset_effects", default=None)
"""The function that does the steps of the call that runs; `None` if no journal records it."""


MOST_EDITED: Final = 65_536  # Characters of edited arguments, in JSON, that are kept for a repeat.

_EMPTY: Final[Mapping[str, Any]] = {}
_log = logging.getLogger("mcp_toolset.tools")
_Wanted = TypeVar("_Wanted")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of one tool.

    Attributes:
        name: The public name that was called.
        arguments: The current arguments; hooks and middleware may have replaced them.
        id: The call's id if the caller gave one (rounds), else empty.
        original: The arguments as the caller sent them.
        grant: The grant string that the call was made with, for a deferred tool.
        repairs: The repairs of the arguments, in words and without values; empty for most calls.
        key: The idempotency key of the call; empty unless a journal records it.
        meta: Further members of `_meta` for a mounted server.
        sent: The arguments before hooks and middleware, which a repeat of the call has too.
        recorded: The answer of a journal that knows the call; such a call does not run.
    """

    name: str
    arguments: dict[str, Any]
    id: str = ""
    original: Mapping[str, Any] | None = None
    grant: str = ""
    repairs: tuple[str, ...] = ()
    key: str = ""
    meta: Mapping[str, Any] | None = None
    sent: Mapping[str, Any] | None = None
    recorded: ToolResult | None = None

    @property
    def digest(self) -> str:
        """The digest of the arguments as they were sent."""
        return digest_of_json(self.arguments if self.sent is None else self.sent)

    @property
    def edits(self) -> dict[str, Any]:
        """The changes of hooks and middleware to the arguments, as JSON; empty without one."""
        sent = self.arguments if self.sent is None else self.sent
        changed = {
            name: value
            for name, value in self.arguments.items()
            if name not in sent or _canonical(sent[name]) != _canonical(value)
        }
        if not changed and len(sent) == len(self.arguments):
            return {}
        try:
            is_kept = len(json.dumps(changed)) <= MOST_EDITED
        except (TypeError, ValueError):
            return {}
        if not is_kept:
            return {}
        return {"call": [self.name, self.digest], "names": list(self.arguments), "changed": changed}

    def with_edits(self, edits: Mapping[str, Any]) -> ToolCall:
        """The same call with the arguments that `edits` has kept; itself if they are of another call."""
        if not edits or self.sent is None or edits["call"] != [self.name, self.digest]:
            return self
        return self.with_arguments(
            {name: edits["changed"].get(name, self.sent.get(name)) for name in edits["names"]}
        )

    def with_arguments(self, arguments: dict[str, Any]) -> ToolCall:
        """The same call with other arguments; `original` keeps the caller's."""
        original = self.arguments if self.original is None else self.original
        rest = (self.grant, self.repairs, self.key, self.meta, self.sent, self.recorded)
        return ToolCall(self.name, arguments, self.id, original, *rest)


def digest_of_json(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)


class ToolContext:
    """The context of a call: who calls, and how to report to the caller and ask the client.

    Outside a served call (an owned loop, a script) this base class is used itself: progress is dropped, and
    log lines go to the logger `mcp_toolset.tools`. The bridge supplies subclasses: one for middleware and
    hooks, whose reports and questions reach the client that made the call, and one for handlers, which also
    has the call and the capabilities that the tool was granted.

    - Report: `progress`, `wants_progress`, `log`.
    - Ask the client: `ask`, `can_ask`, `elicit`, `sample`, `roots`.
    - Who calls: `identity`, `principal`, `session`, `client_info`, `client_capabilities`, `protocol_version`.
    - The call: `name`, `arguments`, `meta`, `request_id`, `turn`, `round`, `model`, `injected`, `effect`.
    - With a capability that the tool was granted (`capabilities`, `require`): `snapshot`, `search`,
      `membership`, `background`, `processes`, `append_event`.
    - For middleware and the bridge, not for tools: `params`, `notify`, `request`, `needs`, `is_task`,
      `is_inner`, `resumed`, `follows`, `edits`, `keep`, `counts`, `settled`, `injecting`, `for_handler`.
    """

    __slots__ = ()

    name: str = ""
    """The public name of the tool that is called; for its handler."""

    arguments: Mapping[str, Any] = _EMPTY
    """The arguments with which the handler runs."""

    session: str | None = None
    """The caller's session, where the protocol has one (2025-11-25 and earlier, and in memory)."""

    principal: str | None = None
    """The key of the authenticated caller, if the transport authenticates; see `identity`."""

    identity: Identity | None = None
    """The authenticated caller: name, roles and scopes; `None` without authentication."""

    protocol_version: str | None = None
    """The protocol revision of this call; `None` without a client."""

    is_inner: bool = False
    """True if the call is one of several that are made for one request, such as by code of a model."""

    capabilities: frozenset[str] = ALWAYS
    """The capabilities that the tool was granted, by name."""

    turn: Any = None
    """The turn's input for functions of `.prepared()`; see `Toolset.with_turn`."""

    injected: Mapping[Any, Any] = _EMPTY
    """The values for injected parameters, by the parameter's name or its type."""

    is_task: bool = False
    """True if the call may become a task, whose result the client gets later (2026-07-28)."""

    model: str | None = None
    """The model that the loop works with, where the loop says so; clients of MCP do not."""

    round: str = ""
    """The id of the round that the call is of; empty outside an owned loop."""

    @property
    def resumed(self) -> bool:
        """True if the client makes the call again, with answers to what it was asked (2026-07-28)."""
        return False

    @property
    def follows(self) -> bool:
        """True if the call was made before and has become a task of a mounted server, which goes on."""
        return False

    @property
    def edits(self) -> Mapping[str, Any]:
        """The edits of the run of this call that ended with a question; see `ToolCall.edits`."""
        return _EMPTY

    def keep(self, edits: Mapping[str, Any]) -> None:
        """Keep the edits of a call that ends with a question, for its next run."""

    def counts(self, what: str) -> bool:
        """True if a use is to be counted now: not if the run that ended with a question has counted it."""
        return True

    def injecting(self, values: Mapping[Any, Any]) -> ToolContext:
        """This context with more values for injected parameters; values that it has already win."""
        return InjectingContext(self, values)

    def require(self, capability: str) -> None:
        """Check that a capability was granted; `CapabilityError` says how to grant it."""
        if capability not in self.capabilities:
            raise CapabilityError(capability)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request; empty without a request."""
        return _EMPTY

    @property
    def request_id(self) -> str:
        """The id that the client gave its request; empty without a client."""
        return ""

    @property
    def params(self) -> Mapping[str, Any]:
        """The request's parameters, unchanged, for parts of the bridge that forward them."""
        return _EMPTY

    @property
    def wants_progress(self) -> bool:
        """True if the caller asked for progress reports."""
        return False

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller; ignored if the caller did not ask for progress."""

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller. `level` is one of the eight of RFC 5424, in lower case."""
        _log.log(_LEVELS.get(level, logging.INFO), "%s: %s", logger or "tool", data)

    @property
    def can_ask(self) -> bool:
        """True if the client can answer questions."""
        own = type(self)
        return own.request is not ToolContext.request or own.elicit is not ToolContext.elicit

    @overload
    async def ask(
        self, question: str, schema: type[_Wanted], *, key: str = ""
    ) -> ElicitationAnswer[_Wanted]: ...
    @overload
    async def ask(self, question: str, schema: Any = None, *, key: str = "") -> ElicitationAnswer: ...
    async def ask(self, question: str, schema: Any = None, *, key: str = "") -> ElicitationAnswer[Any]:
        """Ask the user at the client (capability `ask`).

        On 2026-07-28 the call ends here and runs again with the answer, so ask before anything that must not
        happen twice. The answer is matched by the question.

        Args:
            question: The question to the user.
            schema: The type of the answer, which is then its `value`: `str`, a number, `bool`, a `Literal`,
                an `Enum`, a list of choices, or a dataclass or model of these. Or its JSON Schema, an object
                of plain fields; one text field `answer` unless given.
            key: A name for the question, needed if its text differs from run to run.

        Raises:
            CapabilityError: the tool was not granted it.
            CannotAskError: the client cannot show a question, or the user gave no answer in time.
            CallError: the answer is not what the schema wants.
            DefinitionError: clients cannot show a form for this schema.
        """
        self.require("ask")
        if schema is None or isinstance(schema, Mapping):
            return await self.elicit(question, cast("Mapping[str, Any] | None", schema), key=key)
        # Few tools ask for types.
        from mcp_toolset.tools.json_schema import answer_form

        form, read = answer_form(schema)
        return read(await self.elicit(question, form, key=key))

    async def elicit(
        self, question: str, schema: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> ElicitationAnswer:
        """Ask the user, for middleware and hooks, which need no capability; see `ask`."""
        return ElicitationAnswer.of_wire(await self.request(ELICITATION, elicitation(question, schema)))

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 1024,
        system: str | None = None,
        key: str = "",
    ) -> SampledMessage:
        """Ask the client's model for a message (capability `sample`); the call runs again as with `ask`.

        Args:
            messages: A text of the user, or messages in wire form.
            max_tokens: The largest number of tokens that the model may write.
            system: A system prompt; the client may change it.
            key: A name for the request, needed if its text differs from run to run.

        Raises:
            CapabilityError: the tool was not granted it.
            CannotAskError: the client has no model to ask, or refused.
        """
        self.require("sample")
        return await self._sample(sampling(messages, max_tokens=max_tokens, system=system), key)

    async def _sample(self, params: dict[str, Any], key: str) -> SampledMessage:
        return SampledMessage(await self.request(SAMPLING, params))

    async def roots(self, *, key: str = "") -> Sequence[Mapping[str, Any]]:
        """The folders that the client works in, in wire form (capability `roots`); see `ask` for `key`.

        Raises `ClientCapabilityError` if the client declares none.
        """
        self.require("roots")
        return await self._roots(key)

    async def _roots(self, key: str) -> Sequence[Mapping[str, Any]]:
        return roots_in(await self.request(ROOTS, {}))

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declares, in wire form; empty without a client."""
        return _EMPTY

    @property
    def client_info(self) -> Mapping[str, Any]:
        """The client's own `name` and `version`, in wire form; empty if unknown."""
        return _EMPTY

    def settled(self, key: str, ask: Callable[[], _Answer | None]) -> _Answer | None:
        """The answer of `ask`; a client of up to 2025-11-25 keeps the first that is not `None`."""
        return ask()

    def needs(self, capability: str) -> None:
        """Check that the client declares a capability, such as `sampling`; raises `ClientCapabilityError`."""
        if capability not in self.client_capabilities:
            raise ClientCapabilityError(capability)

    def snapshot(self) -> SessionSnapshot:
        """The caller, and the tools that it sees (capability `session`)."""
        self.require("session")
        return SessionSnapshot(self.session, self.principal, self.protocol_version, ())

    def search(self, query: str, *, server: str | None = None, limit: int = 10) -> Sequence[SearchHit]:
        """Search the deferred tools (capability `catalog`); a search grants nothing."""
        self.require("catalog")
        return ()

    @property
    def membership(self) -> Membership:
        """Read and change which tools are members of the catalog (capability `membership`)."""
        raise CapabilityError("membership")

    @property
    def background(self) -> Background:
        """Work that continues after the call (capability `background`); it has no context."""
        raise CapabilityError("background")

    @property
    def processes(self) -> OwnProcesses:
        """Work whose record outlives the program, and this caller's processes (capability `processes`)."""
        raise CapabilityError("processes")

    def append_event(self, kind: str, data: Any = None) -> SessionEvent:
        """Append an event to the record for the application (capability `events`).

        Raises `CallError` if the data has no JSON form, or is too long.
        """
        raise CapabilityError("events")

    async def effect(
        self, key: str, work: Callable[..., Awaitable[Any]], *arguments: Any, repeat: bool = False
    ) -> Any:
        """Do one step of the call at most once: if the call runs again, get the recorded value of the step.

        A call runs again if its process ended in the middle and the journal allows the repeat
        (`@tool(idempotent=True)`), or if it had asked the client a question. A call is known again by its
        key, which the client or the provider gives it.

        Args:
            key: The name of the step, another one for each step of the call.
            work: An async function that has the effect.
            arguments: Its arguments.
            repeat: True to do the step again if its process ended in the middle.

        Returns:
            What the function returned, in JSON form: a tuple becomes a list.

        Raises:
            CapabilityError: no journal records this call.
            CallError: whether the step was done is not known, or it runs already.
            StoreError: the journal cannot be used; the step was not done.
            DefinitionError: the value has no JSON form, or the key is empty or too long.
        """
        once = EFFECTS.get()
        if once is None:
            raise CapabilityError("effect", mend("effect", "what records the tool"))
        return await once(key, work, arguments, repeat=repeat)

    def for_handler(self, call: ToolCall, granted: frozenset[str]) -> ToolContext:
        """The context for a call's handler in an owned loop, and what its tool was granted."""
        return ContextWith(self, name=call.name, arguments=call.arguments)

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Forward a notification to the caller, on the stream of this call."""

    async def request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Ask the caller's client (elicitation, sampling, roots), or raise `CannotAskError`."""
        raise CannotAskError(
            f"{method} cannot be asked for here: this call has no client that answers requests"
        )


_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}


class InjectingContext(ToolContext):
    """A wrapper of a context with more values for the handler's injected parameters."""

    __slots__ = ("_context", "injected")

    def __init__(self, context: ToolContext, supplied: Mapping[Any, Any]) -> None:
        self._context = context
        self.injected = {**supplied, **context.injected}

    def for_handler(self, call: ToolCall, granted: frozenset[str]) -> ToolContext:
        return InjectingContext(self._context.for_handler(call, granted), self.injected)

    def __getattribute__(self, name: str) -> Any:
        # Every attribute, so that a context of the bridge keeps more than the base class has.
        if name in {"_context", "injected", "injecting", "for_handler"}:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_context"), name)


class ContextWith(ToolContext):
    """A wrapper of a context with other values for some attributes."""

    __slots__ = ("_context", "_own")

    def __init__(self, context: ToolContext, **own: Any) -> None:
        self._context, self._own = context, own

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "_own")
        return own[name] if name in own else getattr(object.__getattribute__(self, "_context"), name)


LOCAL_CONTEXT: Final = ToolContext()
"""The context of a call without a client."""


def require_context(context: object) -> None:
    """Raise `DefinitionError` for what is no context, such as rules in its place, which would not apply."""
    if not isinstance(context, ToolContext):
        raise DefinitionError(
            f"context takes a ToolContext, not {context!r}; give rules as rules=…, to round.apply(…) or to "
            "call.hook(…)"
        )
