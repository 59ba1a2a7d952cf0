"""`DynamicToolset` and the protocol `ToolProvider`: tools whose definitions depend on changing outside state.

A toolset of values derives its definitions once. A `ToolProvider` is asked for its list again when it reports
a change or some time has passed, and for one tool's definition right before a call of it, so that no tool
runs with an outdated definition. A `ManifestProvider` lists names and summaries only; the definition of a
tool is fetched when a caller resolves it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.abc
import anyio.to_thread

from mcp_toolset._callbacks import Callbacks
from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import refuse_rules_in, rules_among
from mcp_toolset.errors import CallError, DefinitionError, InvalidArgumentsError, InvalidOutputError
from mcp_toolset.tools.binding import Contract, StoreMiss, ToolBinding
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition, difference, frozen, public_name
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import SourceStatus, ToolSource
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.transform import prepared_step
from mcp_toolset.tools.validation import SchemaCheck, checks_of

ANY_ARGUMENTS: Final[Mapping[str, Any]] = frozen({"type": "object", "additionalProperties": True})
"""The input schema in the definition of a manifest, shared by all of them."""

_WORST: Final = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""The meaning of a missing hint (specification, server/tools)."""


@dataclass(frozen=True, slots=True)
class ToolManifest:
    """A tool without its schemas: its name and summary for search, and its annotations for policies.

    Attributes:
        name: The tool's own name.
        summary: A summary of the tool; search reads it, and a hit shows its first line.
        id: A stable id; by default the name of the source and of the tool.
        tags: Tags for selectors and policies; clients do not see them.
        annotations: Behaviour hints in wire form. Policies use them before the contract is fetched.
    """

    name: str
    summary: str = ""
    id: str = ""
    tags: tuple[str, ...] = ()
    annotations: Mapping[str, Any] | None = None

    def listed(self) -> ToolDefinition:
        """The definition that is used until the contract is fetched."""
        return ToolDefinition(
            self.name, self.summary or None, input_schema=ANY_ARGUMENTS, annotations=self.annotations
        )


def merged(listed: ToolDefinition, contract: ToolDefinition) -> ToolDefinition:
    """The definition that is shown: the contract, with the hints by which policies have judged the tool."""
    if contract.name != listed.name:
        raise DefinitionError(f"the provider gave the contract of {contract.name!r}")
    own, known = contract.annotations or {}, listed.annotations or {}
    for hint, worst in _WORST.items():
        if own.get(hint, not worst) is worst and known.get(hint, worst) is not worst:
            raise DefinitionError(
                f"its contract says {hint} {worst}, and its manifest {known[hint]}; "
                "a provider must list it with the annotations of its contract"
            )
    # Arguments of a dataclass are copied: the digest must be of what is shown.
    return ToolDefinition(
        name=contract.name,
        description=contract.description or listed.description,
        input_schema=contract.input_schema,
        output_schema=contract.output_schema,
        title=contract.title,
        annotations=listed.annotations,
        icons=contract.icons,
        meta=contract.meta,
        extra=contract.extra,
    )


MAX_CONTRACTS: Final = 1000  # contracts that one toolset keeps


class Contracts:
    """The contracts of one provider that were fetched last."""

    def __init__(self, resolve: Callable[[str], Awaitable[ToolDefinition | None]], source: str) -> None:
        self._resolve = resolve
        self._source = source
        self._kept: OrderedDict[str, Contract] = OrderedDict()

    def known(self, listed: ToolDefinition) -> Contract | None:
        contract = self._kept.get(listed.name)
        return contract if contract is not None and contract.listed is listed else None

    async def fetch(self, listed: ToolDefinition) -> Contract:
        """The present contract of a tool; the same object as before if it has not changed."""
        name = listed.name
        try:
            given = await self._resolve(name)
        except CallError:
            raise
        # A provider is the application's code and may raise anything; the model is told of this tool.
        except Exception as fault:
            raise CallError(
                f"{self._source}: the definition of {name} could not be fetched: "
                f"{str(fault) or type(fault).__name__}"
            ) from fault
        if given is not None and not isinstance(given, ToolDefinition):  # pyright: ignore[reportUnnecessaryIsInstance]
            got = type(given).__name__
            raise CallError(
                f"{self._source}: {name} cannot be used: its contract is a {got}, no ToolDefinition"
            )
        if given is not None and given.input_schema.get("type", "object") != "object":
            raise CallError(f"{self._source}: {name} cannot be used: its inputSchema is of no object")
        if given is None:
            self._kept.pop(name, None)
            raise CallError(f"{self._source}: {name} is not offered any more; choose another tool")
        try:
            return self._keep(listed, merged(listed, given))
        except DefinitionError as fault:
            raise CallError(f"{self._source}: {name} cannot be used: {fault}") from None

    def _keep(self, listed: ToolDefinition, definition: ToolDefinition) -> Contract:
        known = self._kept.get(listed.name)
        if known is None or known.listed is not listed or known.definition != definition:
            known = self._kept[listed.name] = Contract(listed, definition, *checks_of(definition))
        self._kept.move_to_end(listed.name)
        if len(self._kept) > MAX_CONTRACTS:
            self._kept.popitem(last=False)
        return known


class ContractOf(SchemaCheck):
    """The contract of one tool, and the check of its arguments by it."""

    __slots__ = ("_contracts", "_listed")

    def __init__(self, contracts: Contracts, listed: ToolDefinition) -> None:
        super().__init__(ANY_ARGUMENTS, tool=listed.name, part="inputSchema")
        self._contracts = contracts
        self._listed = listed

    def known(self) -> Contract | None:
        return self._contracts.known(self._listed)

    async def fetch(self) -> Contract:
        return await self._contracts.fetch(self._listed)

    def gate(self, call: ToolCall, context: ToolContext) -> None:
        if self.known() is None:
            raise StoreMiss(self.fetch)

    def is_valid(self, value: object) -> bool:
        """True if arguments fit the contract; none do while it is not there."""
        known = self.known()
        return known is not None and known.arguments.is_valid(value)

    def problems(self, value: object) -> list[str]:
        known = self.known()
        return ["the definition must be resolved again"] if known is None else known.arguments.problems(value)


LIST_TIMEOUT: Final = 30.0  # the default seconds that a provider may take to list its tools or to resolve one
_Listed = TypeVar("_Listed", ToolDefinition, ToolManifest)


class ToolProvider(ABC):
    """A source of tools that the program lists at run time, such as a database or an API."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse rules as attributes of a class of providers, where nothing would apply them."""
        super().__init_subclass__(**keywords)
        refuse_rules_in(cls, "give it to serve(…) or ToolsetServer(…), or use toolset.carrying(…)")

    if not TYPE_CHECKING:  # so that a type checker reports a name that is none

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") and (rule := next(rules_among(value), "")):
                raise DefinitionError(
                    f"provider.{name} = … applies the {rule} to no tool: give it to serve(…) or "
                    f"ToolsetServer(…), or use toolset.carrying(…); name it _{name} if you do so"
                )
            object.__setattr__(self, name, value)

    @abstractmethod
    async def list_definitions(self) -> Iterable[ToolDefinition]:
        """The current tools."""

    async def resolve(self, name: str) -> ToolDefinition | None:
        """The current definition of one tool; `None` if it no longer exists. Called before every call."""
        return next((one for one in await self.list_definitions() if one.name == name), None)

    def stable_id(self, definition: ToolDefinition) -> str:
        """The id of a tool, which stays when its name changes; empty: the source's and the tool's name.

        Grants and saved states refer to tools by id. The second of two tools with the same id is left out.
        """
        return ""

    def prepare(self, call: ToolCall, turn: Any) -> Mapping[str, Any]:
        """The arguments of a call, before they are validated; `turn` is the turn's input."""
        return call.arguments

    @abstractmethod
    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a call; `call.name` is the tool's own name, not its public name."""


class ManifestProvider(ToolProvider):
    """A source of tools whose schemas are fetched one by one, each when a caller resolves the tool.

    Its tools are deferred, because a list for clients needs every schema.
    """

    @abstractmethod
    async def list_manifests(self) -> Iterable[ToolManifest]:
        """The current tools, without their schemas."""

    @abstractmethod
    async def resolve(self, name: str) -> ToolDefinition | None:
        """The current definition of one tool; called when the tool is resolved, and before every call.

        `None` if the tool no longer exists.
        """

    async def list_definitions(self) -> Iterable[ToolDefinition]:
        """The definitions of all tools, fetched one after the other; `DynamicToolset` does not call it."""
        definitions = [await self.resolve(one.name) for one in await self.list_manifests()]
        return [one for one in definitions if one is not None]


@dataclass(frozen=True, slots=True)
class _OfferedTool:
    definition: ToolDefinition
    arguments: SchemaCheck
    output: SchemaCheck | None
    id: str
    manifest: ToolManifest | None = None


class DynamicToolset(Toolset):
    """The tools of a provider, listed while the toolset is open.

    If the provider fails, the toolset keeps its last tools, and `status` has the reason. A definition that
    cannot be used is left out and named in `status`.
    """

    def __init__(
        self,
        provider: ToolProvider,
        *,
        name: str,
        refresh: float | None = None,
        timeout: float = LIST_TIMEOUT,
    ) -> None:
        """Say where the tools come from; the provider is first called in `async with`.

        Args:
            provider: The source of the tools.
            name: The name of the source: in messages, in search, in `list`.
            refresh: Seconds between two listings; by default the tools are listed again after `changed()`.
            timeout: Seconds that a listing, or the definition of one tool, may take.

        Raises:
            DefinitionError: the name is empty, or a time is not positive.
        """
        if not name:
            raise DefinitionError("a provider needs a name; give DynamicToolset(…, name=…)")
        require_positive(f"provider {name!r}", {"refresh": refresh}, timeout=timeout)
        self._source_name = name
        self._provider = provider
        self._refresh = refresh
        self._timeout = timeout
        self._offered: dict[str, _OfferedTool] = {}
        self._bound_tools: dict[str, tuple[_OfferedTool, ToolBinding]] = {}
        self._status = SourceStatus()
        self._callbacks = Callbacks()
        self.on_change = self._callbacks.add
        self._stale = anyio.Event()
        self._listing = anyio.Lock()
        self._manifests = provider if isinstance(provider, ManifestProvider) else None
        self._contracts = Contracts(self._resolved, name)
        prepares = type(provider).prepare is not ToolProvider.prepare
        self._prepared = prepared_step(None, provider.prepare if prepares else None)
        super().__init__(name=name)

    @property
    def source_name(self) -> str:
        """The name of the source."""
        return self._source_name

    @property
    def status(self) -> SourceStatus:
        """The state of the provider."""
        return self._status

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        return iter(())

    def sources(self) -> list[ToolSource]:
        return [self]

    @property
    def defers(self) -> bool:
        """True if the provider lists manifests: their tools are always behind search."""
        return self._manifests is not None

    def listing_sources(self) -> list[ToolSource]:
        return [] if self.defers else [self]

    def compiled(self, turn: object) -> list[ToolBinding]:
        step = self._prepared.for_turn(turn)
        return [done for binding in self._bindings() if (done := step(binding)) is not None]

    def changed(self) -> None:
        """Report that the provider's tools have changed; they are listed again while the toolset is open."""
        self._stale.set()

    async def refresh(self) -> SourceStatus:
        """List the tools now; a failure changes the status and is not raised."""
        async with self._listing:
            before = (self._offered, self._status)
            try:
                with anyio.fail_after(self._timeout):
                    await self._list()
            except TimeoutError:
                self._fail(f"it did not list its tools in {self._timeout:g} s")
            # A provider is the application's code and may raise anything; its tools stay.
            except Exception as fault:
                self._fail(f"it could not list its tools: {str(fault) or type(fault).__name__}")
        if before != (self._offered, self._status):
            self._callbacks.tell()
        return self._status

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """List the tools, and again when a list is due, until cancelled; see `ToolSource.run`."""
        self._status = replace(self._status, state="starting", reason="")
        # The toolset may have been open on another event loop before.
        self._stale = anyio.Event()
        try:
            await self.refresh()
            task_status.started()
            while True:
                with anyio.move_on_after(self._refresh):
                    await self._stale.wait()
                self._stale = anyio.Event()
                await self.refresh()
        finally:
            self._status = SourceStatus(tools=len(self._offered))

    async def _list(self) -> None:
        if self._manifests is None:
            return self._take(list(await self._provider.list_definitions()), self._usable)
        listed = list(await self._manifests.list_manifests())
        # Some 100,000 of them take a second, in which the event loop has to go on.
        await anyio.to_thread.run_sync(partial(self._take, listed, self._by_manifest))

    def _take(self, listed: Sequence[_Listed], usable: Callable[[_Listed], _OfferedTool]) -> None:
        offered: dict[str, _OfferedTool] = {}
        ids: dict[str, str] = {}
        set_aside: list[tuple[str, str]] = []
        for one in listed:
            if one.name in offered:
                set_aside.append((one.name, "it is listed twice; the first one is used"))
                continue
            try:
                made = usable(one)
                if (other := ids.setdefault(made.id, one.name)) != one.name:
                    raise DefinitionError(f"it has the id {made.id!r} of {other!r}; give each its own")
                offered[one.name] = made
            except DefinitionError as fault:
                set_aside.append((one.name, str(fault)))
        self._offered = offered
        self._status = SourceStatus("ready", tools=len(offered), set_aside=tuple(set_aside))

    def _usable(self, definition: ToolDefinition) -> _OfferedTool:
        if not definition.name:
            raise DefinitionError("a tool needs a non-empty name")
        id = self._provider.stable_id(definition) or f"{self._source_name}:{definition.name}"
        known = self._offered.get(definition.name)
        if known is not None and known.definition == definition and known.id == id:
            return known
        return _OfferedTool(definition, *checks_of(definition), id)

    def _by_manifest(self, manifest: ToolManifest) -> _OfferedTool:
        if not manifest.name:
            raise DefinitionError("a tool needs a non-empty name")
        known = self._offered.get(manifest.name)
        if known is not None and known.manifest == manifest:
            return known
        listed = manifest.listed()
        id = manifest.id or f"{self._source_name}:{manifest.name}"
        return _OfferedTool(listed, ContractOf(self._contracts, listed), None, id, manifest)

    def _fail(self, reason: str) -> None:
        self._status = replace(self._status, state="offline", reason=reason, retry_in=self._refresh)

    def _bindings(self) -> list[ToolBinding]:
        offered, known = self._offered, self._bound_tools
        self._bound_tools = {
            name: before
            if (before := known.get(name)) is not None and before[0] is one
            else (one, self._binding(one))
            for name, one in offered.items()
        }
        return [binding for _, binding in self._bound_tools.values()]

    def _binding(self, offered: _OfferedTool) -> ToolBinding:
        name = offered.definition.name
        contract = offered.arguments if isinstance(offered.arguments, ContractOf) else None
        run = self._execute if contract is None else partial(self._execute_shown, contract)
        return ToolBinding(
            name=public_name(name),
            definition=offered.definition,
            execute=partial(run, offered.definition),
            arguments=offered.arguments,
            output=offered.output,
            source=self._source_name,
            place=f"provider {self._source_name!r}",
            tool_id=offered.id,
            tags=frozenset(() if offered.manifest is None else offered.manifest.tags),
            deferred=contract is not None,
            gate=None if contract is None else contract.gate,
            contract=contract,
        )

    async def _execute(self, shown: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolResult:
        current = await self._resolved(shown.name)
        if current != shown:
            self.changed()
        if current is None:
            raise CallError(f"{self._source_name}: {call.name} is not offered any more; choose another tool")
        if current.input_schema != shown.input_schema:
            check = checks_of(current)[0]
            if not check.is_valid(call.arguments):
                faults = "; ".join(check.problems(call.arguments))
                raise InvalidArgumentsError(
                    f"{call.name} has changed, and the arguments do not fit: {faults}"
                )
        return await self._provider.execute(replace(call, name=shown.name), context)

    async def _execute_shown(
        self, contract: ContractOf, listed: ToolDefinition, call: ToolCall, context: ToolContext
    ) -> ToolResult:
        """Run a call if the provider's present contract is the one that its arguments were checked by."""
        shown = contract.known()
        current = await contract.fetch()
        if shown is not None and shown is not current:
            changes = "; ".join(difference(shown.definition.to_wire(), current.definition.to_wire()))
            raise CallError(
                f"the definition of {call.name} has changed since it was shown ({changes}); resolve it again"
            )
        if not current.arguments.is_valid(call.arguments):
            raise InvalidArgumentsError(current.arguments.misfit(call.name, call.arguments))
        result = await self._provider.execute(replace(call, name=listed.name), context)
        _check_output(current, call.name, result)
        return result

    async def _resolved(self, name: str) -> ToolDefinition | None:
        try:
            with anyio.fail_after(self._timeout):
                return await self._provider.resolve(name)
        except TimeoutError:
            raise CallError(
                f"{self._source_name}: {name} could not be looked up in {self._timeout:g} s"
            ) from None


def _check_output(contract: Contract, name: str, result: ToolResult) -> None:
    if contract.output is None or result.is_error or not result.is_complete:
        return
    if not contract.output.is_valid(structured := result.wire.get("structuredContent")):
        faults = "; ".join(contract.output.problems(structured))
        raise InvalidOutputError(f"{name} returned a result that does not fit its output schema: {faults}")
