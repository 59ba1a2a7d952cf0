"""`JournalGuard`: records the calls of a server or a loop, so that a repeat of one has no second effect.

It stands right at the tool: the arguments are final, approvals are given, and what middleware repeats under
the same key is a repeat.

The unit of work that a call is comes from a key that a repeat of it has too. The key itself is recorded
nowhere. The id of a record is a digest of it, and the outcome is encrypted with another one: who has the
journal alone can read no result, unless a key is easy to guess.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast, get_args
from uuid import UUID

import anyio
import anyio.lowlevel
from cryptography.fernet import Fernet, InvalidToken
from pydantic_core import PydanticSerializationError, from_json, to_json

from mcp_toolset import errors
from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import Rule
from mcp_toolset.calls.decision import error_result
from mcp_toolset.calls.middleware import CallNext, Run, ToolMiddleware
from mcp_toolset.calls.observers import VIEW
from mcp_toolset.calls.permissions import shown_arguments
from mcp_toolset.concurrency.tasks import answer_of
from mcp_toolset.extensions.journal import journal_store
from mcp_toolset.security.patterns import Section, SectionRules, check_pattern, precision
from mcp_toolset.security.policy import facts_of
from mcp_toolset.stores.store import StorePlace
from mcp_toolset.tools.binding import DEFERRED_CATALOG, EVERY_TOOL, Gate, ToolBinding
from mcp_toolset.tools.call import EFFECTS, ToolCall, ToolContext, digest_of_json
from mcp_toolset.tools.hidden_text import plain_to_see
from mcp_toolset.tools.result import REPLAY_META_KEY, InputRequired, ToolResult, encodable

LONGEST_KEY: Final = 400
"""Characters of a key that a client sends."""

GUESSABLE: Final = 16
"""Below so many characters, a key counts in its session alone, if its caller is not authenticated."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work."""

    id: str  # its name in the journal
    source: str  # where its key is from: `client`, `call id`, or `none` if no repeat can have it
    is_bound: bool  # whether it is of one session, as its key may be guessed in another
    _secret: bytes

    @property
    def is_repeatable(self) -> bool:
        """True if a repeat of the call can have the same key."""
        return self.source != "none"

    @property
    def uuid(self) -> str:
        """The idempotency key for mounted servers: the same for a repeat, and for no other caller or key."""
        return str(UUID(self.id[:32]))

    def part(self, key: str) -> Unit:
        """A step of this work, which has a record of its own."""
        told = self._secret + key.encode("utf-8", "surrogatepass")
        return Unit(_digest(b"step", told).hex(), "effect", False, _digest(b"outcome of a step", told))

    def sealed(self, value: Any) -> bytes:
        """A JSON value, encrypted."""
        return self._cipher().encrypt(to_json(value))

    def opened(self, sealed: bytes) -> Any:
        """The value again; `None` if it is damaged."""
        try:
            return from_json(self._cipher().decrypt(sealed))
        except (InvalidToken, ValueError):
            return None

    def _cipher(self) -> Fernet:
        return Fernet(base64.urlsafe_b64encode(self._secret))


def unit_of(call: ToolCall, context: ToolContext, served: str, view: str) -> Unit:
    """The unit of work of a call: by the client's replay key, the id of a round's call, or none.

    A call without either has a key that no other call has: a crash in it is seen, and no call is taken for a
    repeat of it. The grant of a deferred tool is no key, as it is used for many calls. Each view of the
    server has keys of its own, as its clients know of no call of another one.
    """
    served = f"{served}#{view}" if view else served
    said: object = context.meta.get(REPLAY_META_KEY)
    caller, has_login = _caller(context)
    if said is not None:
        if not isinstance(said, str) or not 0 < len(said) <= LONGEST_KEY:
            raise errors.InvalidArgumentsError(
                f"{call.name} did not run: {REPLAY_META_KEY} in _meta is a text of 1 to {LONGEST_KEY} "
                "characters"
            )
        guessable = not has_login and len(said) < GUESSABLE and context.protocol_version is not None
        return _unit("client", served, caller, encodable(said), guessable)
    if call.id:
        return _unit("call id", served, caller, encodable(call.id), False)
    return _unit("none", served, caller, secrets.token_hex(16), False)


def fingerprint_of(binding: ToolBinding, call: ToolCall) -> str:
    """A digest of a tool and the arguments as they were sent, and one of those that it runs with.

    A key stands for one call as it was sent: hooks may add to each run of it what no other run has.
    """
    return f"{digest_of_json([binding.source, binding.own_id, call.digest])}.{digest_of_json(call.arguments)}"


def same_call(one: str, other: str) -> bool:
    """True if two fingerprints are of the same call as it was sent."""
    return one.partition(".")[0] == other.partition(".")[0]


def session_of(context: ToolContext) -> str:
    """A digest of the caller's session; empty without one."""
    return hashlib.sha256(context.session.encode()).hexdigest()[:32] if context.session else ""


def _caller(context: ToolContext) -> tuple[str, bool]:
    """The owner of the keys: callers without a login are one owner together, and so is the program itself."""
    if context.principal:
        return f"principal:{context.principal}", True
    if context.protocol_version is None:
        return f"host:{context.session or ''}", True
    return "anonymous", False


def _unit(source: str, served: str, caller: str, key: str, is_bound: bool) -> Unit:
    told = json.dumps([source, served, caller, key]).encode()
    return Unit(_digest(b"id", told).hex(), source, is_bound, _digest(b"outcome", told))


def _digest(use: bytes, told: bytes) -> bytes:
    return hashlib.sha256(b"mcp-toolset journal " + use + b"\0" + told).digest()


JOURNAL_META_KEY: Final = "mcp-toolset/journal"
"""In the `_meta` of a result that is from the journal, or whose call may have happened: its id and state."""

UNKNOWN: Final = journal_store.Outcome("unknown")

_NOT_RUN: Final = frozenset({-32700, -32600, -32601, -32602, -32042})
"""Codes of JSON-RPC and MCP by which a server says that a call did not run."""


def marked(result: ToolResult, id: str, state: str, **more: float) -> ToolResult:
    """A result that says in `_meta` how its call stands in the journal."""
    meta: Any = result.wire.get("_meta") or {}
    told = {"id": id[: journal_store.SHOWN], "state": state, **more}
    return replace(result, wire={**result.wire, "_meta": {**meta, JOURNAL_META_KEY: told}})


def outcome_of(unit: Unit, result: ToolResult, most: int) -> journal_store.Outcome:
    if result.stopped:
        return UNKNOWN
    return _sealed(unit, {"result": dict(result.wire), "unstructured": result.unstructured}, most)


def outcome_of_fault(
    unit: Unit, fault: errors.ToolsetError, *, mounted: bool, most: int
) -> journal_store.Outcome | None:
    """The outcome to record for a call that ended with an error; `None` if it has certainly not happened."""
    if isinstance(fault, errors.UpstreamProtocolError):
        if fault.code in _NOT_RUN:
            return None
        told = {"upstream": fault.upstream, "code": fault.code, "message": fault.reason, "data": fault.data}
        return _sealed(unit, {"error": told}, most)
    if isinstance(fault, errors.UpstreamError):
        return UNKNOWN if fault.sent else None
    if isinstance(fault, errors.InvalidArgumentsError | errors.UnknownToolError | errors.RetrySuggestedError):
        return None
    if mounted and not isinstance(fault, errors.InvalidOutputError):
        # Such as a server that asks on and on, or whose question the client cannot answer.
        return UNKNOWN
    return _sealed(unit, {"result": dict(error_result(fault).wire)}, most)


def replayed(unit: Unit, record: journal_store.Record) -> ToolResult:
    """The result of a call that has ended."""
    kept: Any = None if record.outcome is None else unit.opened(record.outcome)
    if not isinstance(kept, Mapping):
        text = record.note or "its result cannot be read any more"
        told = ToolResult.of_error(f"{_named(record.intent)} ran before under this key, and is done: {text}")
        return marked(told, unit.id, "done", began=record.began)
    table = cast("Mapping[str, Any]", kept)
    if (fault := table.get("error")) is not None:
        raise errors.UpstreamProtocolError(fault["upstream"], fault["code"], fault["message"], fault["data"])
    result = ToolResult(table["result"], unstructured=table.get("unstructured", False))
    return marked(result, unit.id, "replayed", began=record.began)


def refusal(unit: Unit, found: journal_store.Found, what: str) -> ToolResult:
    """Why a call does not run now."""
    record = found.record
    told = f"{_named(record.intent)} {what}"
    return marked(ToolResult.of_error(told), unit.id, found.standing, began=record.began)


def unknown(record: journal_store.Record, standing: str) -> str:
    """Why a call does not run again whose outcome is not known."""
    began = f"was not run again: a call under its key began at {journal_store.moment(record.began)}"
    if standing == "asked":
        return f"{began}, and asked the client a question; answer it, or make the call under another key"
    place = f"on the server {record.intent.server}" if record.intent.server else "where it has its effect"
    return (
        f"{began}, and its outcome is not known. Find out {place} whether it has happened, then record that "
        f"with `mcp-toolset journal settle {record.intent.id[: journal_store.SHOWN]}`, with --done or --never"
    )


def _named(intent: journal_store.Intent) -> str:
    return f"{intent.server}/{intent.tool}" if intent.server else intent.tool


def _sealed(unit: Unit, value: Mapping[str, Any], most: int) -> journal_store.Outcome:
    if not unit.is_repeatable:
        return journal_store.Outcome("done")
    sealed = unit.sealed(value)
    if len(sealed) <= most:
        return journal_store.Outcome("done", sealed)
    return journal_store.Outcome("done", note=f"its result takes {len(sealed)} bytes, and {most} are kept")


Step = Callable[[Awaitable[Any], str], Awaitable[Any]]
"""One step of the journal, and what it is for in the error."""

_BEGIN_STEP: Final = "record a step of the call, which was not done"


@dataclass(frozen=True, slots=True)
class CallEffects:
    """The steps of one call."""

    journal: journal_store.JournalStore  # where they are recorded
    unit: Unit  # the unit of work of the call
    intent: journal_store.Intent  # how the call is recorded
    most: int  # bytes of a value that are kept
    step: Step  # does one step of the journal

    async def once(
        self, key: str, work: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...], *, repeat: bool
    ) -> Any:
        """Do a step, or give the recorded value of it; see `ToolContext.effect`."""
        if not 0 < len(key) <= LONGEST_KEY:
            raise errors.DefinitionError(
                f"the key of an effect has 1 to {LONGEST_KEY} characters, not {len(key)}"
            )
        unit, intent = self.unit.part(key), self._intent(key)
        found = cast("journal_store.Found | None", await self.step(self.journal.begin(intent), _BEGIN_STEP))
        attempt = 1
        if found is not None:
            record, standing = found
            if standing == "done":
                return self._recorded(unit, record, key)
            if standing == "running":
                raise errors.CallError(
                    f"the step {key!r} runs already; give each step of a call a key of its own"
                )
            if not repeat:
                raise errors.CallError(self._unknown(record, key))
            if not await self.step(self.journal.take_over(intent, record.attempt), _BEGIN_STEP):
                raise errors.CallError(f"another process does the step {key!r} now; make the call again")
            attempt = record.attempt + 1
        return await self._done(unit, intent, attempt, work, arguments, key)

    def _intent(self, key: str) -> journal_store.Intent:
        name = f"{self.intent.tool} · {key[:80]}"
        told = hashlib.sha256(
            f"{self.intent.fingerprint}\n{key}".encode("utf-8", "surrogatepass")
        ).hexdigest()
        return self.intent._replace(id=self.unit.part(key).id, fingerprint=told, tool=name, source="effect")

    async def _done(
        self,
        unit: Unit,
        intent: journal_store.Intent,
        attempt: int,
        work: Callable[..., Awaitable[Any]],
        arguments: tuple[Any, ...],
        key: str,
    ) -> Any:
        outcome: journal_store.Outcome | None = None
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            outcome = UNKNOWN
            written = _json(await work(*arguments), key)
            outcome = self._kept(unit, written)
            return from_json(written)
        except errors.UpstreamError as fault:
            outcome = UNKNOWN if fault.sent else None
            raise
        finally:
            if outcome is None:
                end = self.journal.release(intent.id, attempt)
            else:
                end = self.journal.end(intent.id, attempt, outcome)
            await self.step(end, "record the outcome of a step")

    def _kept(self, unit: Unit, written: bytes) -> journal_store.Outcome:
        sealed = unit.sealed(from_json(written))
        if len(sealed) > self.most:
            return journal_store.Outcome("done", note=f"its value of {len(written)} bytes was not kept")
        return journal_store.Outcome("done", sealed)

    def _recorded(self, unit: Unit, record: journal_store.Record, key: str) -> Any:
        if record.outcome is not None:
            return unit.opened(record.outcome)
        if record.attempt and record.note.startswith("its value of "):
            raise errors.CallError(f"the step {key!r} is done, and {record.note}; return less from it")
        return record.note

    def _unknown(self, record: journal_store.Record, key: str) -> str:
        return (
            f"the step {key!r} began at {journal_store.moment(record.began)}, and its outcome is not known. "
            f"Look where it has its effect whether it has happened, then say so by `mcp-toolset journal "
            f"settle {record.intent.id[: journal_store.SHOWN]}` with --done or --never"
        )


def _json(value: Any, key: str) -> bytes:
    try:
        return to_json(value)
    except (PydanticSerializationError, ValueError) as fault:
        raise errors.DefinitionError(
            f"the step {key!r} is done, and its value has no JSON form ({fault}); return plain values"
        ) from None


class _ToolMode(NamedTuple):
    precision: tuple[bool, int, bool, bool]
    server: str
    rules: SectionRules
    mode: journal_store.Mode


class JournalRules:
    """The mode of each tool: the most specific pattern decides, as with limits, else the tool's own hints.

    Without a pattern a tool that only reads is not recorded, and an idempotent one may be repeated.
    """

    def __init__(
        self,
        general: journal_store.Modes | None = None,
        servers: Mapping[str, journal_store.Modes] | None = None,
        *,
        reads: bool = False,
    ) -> None:
        """Take the modes for all tools, and those for the tools of mounted servers.

        Args:
            general: For all tools.
            servers: By mounted server, for its tools; such a pattern is used before one for all tools.
            reads: True if tools that only read are recorded too.

        Raises:
            DefinitionError: a pattern names nothing, or there is no such mode.
        """
        sections = [("journal", "", general or {})]
        sections += [(f"{name}.journal", name, own) for name, own in (servers or {}).items()]
        found = [
            _entry(place, server, pattern, mode)
            for place, server, modes in sections
            for pattern, mode in modes.items()
        ]
        self._entries = sorted(found, key=lambda entry: entry.precision, reverse=True)
        self._reads = reads

    def mode(self, binding: ToolBinding) -> journal_store.Mode:
        """The mode of a tool; the tools of the bridge itself have no effects of their own."""
        if binding.redirect is not None or binding.place == DEFERRED_CATALOG:
            return "off"
        definition, facts = binding.definition, facts_of(binding)
        for entry in self._entries:
            if entry.server in ("", facts.server) and entry.rules.first(facts) is not None:
                return entry.mode
        if definition.read_only and not self._reads:
            return "off"
        return "repeat" if definition.repeatable else "once"

    def unused(self, bindings: Iterable[ToolBinding]) -> Iterator[tuple[str, str]]:
        """The patterns that fit none of the tools, each with its place."""
        tools = [facts_of(one) for one in bindings]
        for entry in self._entries:
            among = [one for one in tools if entry.server in ("", one.server)]
            for _, pattern in entry.rules.unused(among):
                if pattern != EVERY_TOOL:
                    yield entry.rules.section.place, pattern


def _entry(place: str, server: str, pattern: str, mode: journal_store.Mode) -> _ToolMode:
    check_pattern(pattern, place)
    if mode not in get_args(journal_store.Mode):
        raise errors.DefinitionError(
            f"{place}: {pattern!r} is one of {', '.join(get_args(journal_store.Mode))}, not {mode!r}"
        )
    rules = SectionRules(Section(place, allow=(pattern,)), of_server=bool(server))
    return _ToolMode(precision(pattern, server), server, rules, mode)


TIMEOUT: Final = 30.0
"""Seconds that a repeat waits for the call that runs."""

MAX_RESULT_BYTES: Final = 1_000_000
"""Bytes of an outcome that are kept."""

STORE_TIMEOUT: Final = 10.0
"""Seconds that the journal has for one step."""

MOST_OWED: Final = 100
"""Outcomes that are kept here while the journal cannot be written."""

LARGEST_OWED: Final = 10_000
"""Bytes of such an outcome."""

_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 0.5
"""Seconds between two looks at a call that runs."""

_BEGIN: Final = "record the call, which did not run"

_T = TypeVar("_T")
_log = logging.getLogger("mcp_toolset.journal")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt that was begun, and how the call stood before."""

    number: int = 1
    before: journal_store.Kept | None = None


class JournalGuard(Rule):
    """Records calls in a journal: `Rules(guards=[JournalGuard("calls.sqlite3")])`.

    A call under a key that is known does not run: it gets the recorded result, waits for the call that runs,
    or is told that the outcome is not known. `async with guard:` opens the journal, which has to be open
    while calls run; a server opens the one that is its `journal=`.
    """

    def __init__(
        self,
        journal: StorePlace | None = None,
        tools: journal_store.Modes | None = None,
        *,
        servers: Mapping[str, journal_store.Modes] | None = None,
        read_only: bool = False,
        served: str = "",
        ttl: float = journal_store.TTL,
        timeout: float = TIMEOUT,
        max_result_bytes: int = MAX_RESULT_BYTES,
    ) -> None:
        """Record calls.

        Args:
            journal: The path of a file, the URL of a store, or a `Store`; the user's file unless given.
            tools: By pattern of tools: `off`, `once`, or `repeat` if a call may run again after an unknown
                outcome. Unless a pattern says more, the tool's own hints do.
            servers: The same by mounted server, for its tools; such a pattern is used before one for all.
            read_only: True if calls of tools that only read are recorded too.
            served: The name of the server or loop, so that several can share a journal.
            ttl: Seconds for which a call is remembered.
            timeout: Seconds that a repeat waits for the call that runs.
            max_result_bytes: Bytes of a result that are kept.

        Raises:
            ConfigError: the store cannot be used, or its extra is not installed.
            DefinitionError: a pattern names nothing, or there is no such mode.
        """
        require_positive("JournalGuard", ttl=ttl, max_result_bytes=max_result_bytes)
        if isinstance(cast("object", timeout), str) or not timeout >= 0:
            raise errors.DefinitionError(
                f"JournalGuard: timeout is a number of seconds, 0 or more, not {timeout!r}"
            )
        self.journal = journal_store.JournalStore(journal, ttl=ttl)
        self.serves_one = False
        self.told_keys: Mapping[str, Collection[str]] = {}  # the patterns of `idempotency`, by server
        self._rules = JournalRules(tools, servers, reads=read_only)
        self._served = served
        self._timeout = timeout
        self._most = max_result_bytes
        self._owed: OrderedDict[str, tuple[int, journal_store.Outcome | None]] = OrderedDict()
        self._unbegun: deque[str] = deque(maxlen=1000)

    async def __aenter__(self) -> Self:
        """Open the journal; several users may do so.

        Raises:
            StoreError: it cannot be used.
        """
        await self.journal.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, once its last user has left."""
        await self.journal.__aexit__(kind, fault, trace)

    def gate(self, binding: ToolBinding) -> Gate | None:
        """Nothing: the journal refuses only what would run."""
        return None

    def unused(self, bindings: Iterable[ToolBinding]) -> Iterator[tuple[str, str]]:
        """The patterns that fit none of the tools, each with its place."""
        bindings = [*bindings]
        yield from self._rules.unused(bindings)
        for server, patterns in self.told_keys.items():
            own = [one.definition.name for one in bindings if one.source == server]
            for pattern in patterns:
                if pattern not in (EVERY_TOOL, *own) and not any(fnmatchcase(one, pattern) for one in own):
                    yield f"{server}.idempotency", pattern

    def layers(self, binding: ToolBinding) -> Sequence[ToolMiddleware]:
        """None: it stands inside of all layers; see `recorded`."""
        return ()

    def replaying(self, binding: ToolBinding) -> ToolMiddleware | None:
        """The middleware that answers a repeat before it needs an approval or spends a limit."""
        mode = self._rules.mode(binding)
        return None if mode == "off" else partial(self._repeated, binding, mode == "repeat")

    async def _repeated(
        self, binding: ToolBinding, repeats: bool, call: ToolCall, context: ToolContext, next: CallNext
    ) -> ToolResult:
        unit = unit_of(call, context, self._served, VIEW.get())
        if unit.is_repeatable:
            intent = self._intent(unit, binding, call, context)
            known = await self._begun(unit, intent, repeats, context, looks=True)
            if isinstance(known, ToolResult):
                call = replace(call, recorded=known)
        return await next(call)

    def recorded(self, binding: ToolBinding, run: Run) -> Run:
        """`run` with a record of each call; `run` itself for a tool that is not recorded."""
        mode = self._rules.mode(binding)
        return run if mode == "off" else partial(self._once, binding, mode == "repeat", run)

    async def _once(
        self, binding: ToolBinding, repeats: bool, run: Run, call: ToolCall, context: ToolContext
    ) -> ToolResult:
        if call.recorded is not None:
            return call.recorded
        unit = unit_of(call, context, self._served, VIEW.get())
        intent = self._intent(unit, binding, call, context)
        began = await self._begun(unit, intent, repeats, context)
        if isinstance(began, ToolResult):
            return began
        if not binding.source:
            run = partial(_with_effects, CallEffects(self.journal, unit, intent, self._most, self._step), run)
        return await self._run(unit, began, binding, run, replace(call, key=unit.uuid), context)

    def _intent(
        self, unit: Unit, binding: ToolBinding, call: ToolCall, context: ToolContext
    ) -> journal_store.Intent:
        identity = context.identity
        return journal_store.Intent(
            id=unit.id,
            fingerprint=fingerprint_of(binding, call),
            who="" if identity is None else plain_to_see(identity.name),
            session=session_of(context),
            server=binding.source,
            tool=binding.name,
            arguments=shown_arguments(call.arguments),
            source=unit.source,
            nonce=secrets.token_hex(8),
        )

    async def _begun(
        self,
        unit: Unit,
        intent: journal_store.Intent,
        repeats: bool,
        context: ToolContext,
        *,
        looks: bool = False,
    ) -> _Attempt | ToolResult:
        """The attempt that may run now, or what the caller is told instead.

        If it only `looks`, nothing is recorded, and the attempt has not begun.
        """
        pause, until = _FIRST_PAUSE, anyio.current_time() + self._timeout
        while (found := await self._found(intent, looks)) is not None:
            record, standing = found
            if problem := self._foreign(unit, intent, found):
                return refusal(unit, found, f"did not run: {problem}")
            if standing == "done":
                return replayed(unit, record)
            if standing == "running" and not self._is_idle(found):
                if await self._pay():
                    continue
                if anyio.current_time() >= until:
                    told = (
                        "was not run again: the same call is still running; make it again to get its result"
                    )
                    return refusal(unit, found, told)
                await anyio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
            elif why := self._unrepeatable(intent, found, repeats, context):
                return refusal(unit, found, why)
            elif looks:
                return _Attempt()
            elif await self._began(self.journal.take_over(intent, record.attempt), intent):
                return _Attempt(record.attempt + 1, _before(record, standing))
        await self._pay()
        return _Attempt()

    async def _found(self, intent: journal_store.Intent, looks: bool) -> journal_store.Found | None:
        """Look a call up, or record it as begun if the journal has nothing of it."""
        if looks:
            return await self._step(self.journal.find(intent.id), "look the call up, which did not run")
        return await self._began(self.journal.begin(intent), intent)

    async def _began(self, step: Awaitable[_T], intent: journal_store.Intent) -> _T:
        """A step after which a call runs; if it fails, the call does not run, even if recorded later."""
        try:
            return await self._step(step, _BEGIN)
        except errors.StoreError:
            self._unbegun.append(intent.nonce)
            raise

    def _is_idle(self, found: journal_store.Found) -> bool:
        """True if the journal has recorded a call after it was given up here, so that nothing has run."""
        return found.standing == "running" and found.record.intent.nonce in self._unbegun

    def _unrepeatable(
        self, intent: journal_store.Intent, found: journal_store.Found, repeats: bool, context: ToolContext
    ) -> str:
        """Why a call that has not ended may not run again; empty if it may."""
        record, standing = found
        if (self._is_idle(found) and record.attempt == 1) or (standing != "asked" and context.follows):
            return ""
        if standing == "asked":
            return "" if context.resumed else unknown(record, standing)
        if not repeats:
            return unknown(record, standing)
        if record.intent.fingerprint == intent.fingerprint:
            return ""
        return unknown(record, standing) + "; it does not run by itself, as hooks give it other arguments now"

    def _foreign(self, unit: Unit, intent: journal_store.Intent, found: journal_store.Found) -> str:
        """Why a record is not that of the call; empty if it is."""
        kept = found.record.intent
        if not same_call(kept.fingerprint, intent.fingerprint):
            return (
                "its key stands for another call, with other arguments or of another tool; "
                "give each call a key of its own, such as a UUID"
            )
        if unit.is_bound and not self.serves_one and kept.session != intent.session:
            return (
                "its key was used in another session, and without a login so short a key counts in its "
                "session alone; use a UUID as the key"
            )
        return ""

    async def _run(
        self,
        unit: Unit,
        attempt: _Attempt,
        binding: ToolBinding,
        run: Run,
        call: ToolCall,
        context: ToolContext,
    ) -> ToolResult:
        """Run an attempt, and record what it came to; `None` stands for a call that did not happen."""
        outcome: journal_store.Outcome | None = None
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            outcome = UNKNOWN
            result = await run(call, context)
            outcome = self._of_result(unit, binding, result)
        except InputRequired:
            outcome = self._asked(binding)
            raise
        except errors.ToolsetError as fault:
            outcome = outcome_of_fault(unit, fault, mounted=bool(binding.source), most=self._most)
            raise
        finally:
            await self._ended(unit, attempt, outcome)
        return marked(result, unit.id, "unknown") if outcome is UNKNOWN else result

    def _of_result(
        self, unit: Unit, binding: ToolBinding, result: ToolResult
    ) -> journal_store.Outcome | None:
        return outcome_of(unit, result, self._most) if result.is_complete else self._asked(binding)

    def _asked(self, binding: ToolBinding) -> journal_store.Outcome | None:
        """A local tool that asks runs again from its start; a mounted one may go on meanwhile."""
        return journal_store.Outcome("asked") if binding.source else None

    async def _ended(self, unit: Unit, attempt: _Attempt, outcome: journal_store.Outcome | None) -> None:
        if outcome is None and attempt.before is not None:
            outcome = journal_store.Outcome(attempt.before)
        if outcome is not None and outcome.state == "done" and not unit.is_repeatable:
            outcome = None
        if not await self._noted(unit.id, attempt.number, outcome):
            # The caller gets the result all the same, and the journal when it can be written again.
            if outcome is not None and len(outcome.sealed or b"") > LARGEST_OWED:
                outcome = journal_store.Outcome("done", note="its result could not be recorded")
            self._owed[unit.id] = attempt.number, outcome
            if len(self._owed) > MOST_OWED:
                self._owed.popitem(last=False)

    async def _pay(self) -> bool:
        """Record outcomes that could not be recorded before; whether there was one."""
        paid = False
        while self._owed:
            id, (attempt, outcome) = self._owed.popitem(last=False)
            if not await self._noted(id, attempt, outcome):
                self._owed[id] = attempt, outcome
                # The oldest one is dropped if they become too many.
                self._owed.move_to_end(id, last=False)
                break
            paid = True
        return paid

    async def _noted(self, id: str, attempt: int, outcome: journal_store.Outcome | None) -> bool:
        """Record how an attempt has ended; false if the journal cannot be written."""
        journal = self.journal
        step = journal.release(id, attempt) if outcome is None else journal.end(id, attempt, outcome)
        try:
            await self._step(step, "record the outcome of a call")
        except errors.StoreError as fault:
            _log.error("%s", fault)
            return False
        return True

    async def _step(self, step: Awaitable[_T], to: str) -> _T:
        """One step of the journal, which is not given up half done.

        Raises:
            StoreError: the journal cannot be used.
        """
        name = self.journal.name
        try:
            with anyio.CancelScope(shield=True):
                return await answer_of(name, step, within=STORE_TIMEOUT, to=to)
        except errors.StoreError as fault:
            # Its words are for the log: callers are not told where the journal is.
            _log.error("%s", fault)
            raise errors.StoreError(
                f"{name} cannot be used now, so it could not {to}; try again later"
            ) from fault
        raise AssertionError("nothing cancels this scope")


def _before(record: journal_store.Record, standing: journal_store.Standing) -> journal_store.Kept | None:
    """The state of a call before the attempt that begins now."""
    if standing != "running":
        return standing
    return None if record.attempt == 1 else "unknown"


async def _with_effects(effects: CallEffects, run: Run, call: ToolCall, context: ToolContext) -> ToolResult:
    """Run a call of a local tool, whose handler may record steps."""
    token = EFFECTS.set(effects.once)
    try:
        return await run(call, context)
    finally:
        EFFECTS.reset(token)
