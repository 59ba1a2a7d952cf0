"""`Contracts`: the whole definitions of tools that a provider lists by manifests, fetched when wanted.

The last ones are kept, so that a call finds the one that its caller was shown. What was dropped is fetched
again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.extensions.dynamic_tools.manifest import ANY_ARGUMENTS, merged
from mcp_toolset.tools.binding.binding import Contract, StoreMiss
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.schema.validation import SchemaCheck, checks_of

MAX_CONTRACTS: Final = 1000
"""Contracts that one toolset keeps."""


class Contracts:
    """The contracts of one provider that were fetched last."""

    def __init__(self, resolve: Callable[[str], Awaitable[ToolDefinition | None]], source: str) -> None:
        """Fetch by `resolve`, which has a deadline; `source` is named in errors."""
        self._resolve = resolve
        self._source = source
        self._kept: OrderedDict[str, Contract] = OrderedDict()

    def known(self, listed: ToolDefinition) -> Contract | None:
        """The contract of a tool, if it is kept."""
        found = self._kept.get(listed.name)
        return found if found is not None and found.listed is listed else None

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
        """Stand for the tool of a manifest; nothing is fetched."""
        super().__init__(ANY_ARGUMENTS, tool=listed.name, part="inputSchema")
        self._contracts = contracts
        self._listed = listed

    def known(self) -> Contract | None:
        """The contract, if it is kept."""
        return self._contracts.known(self._listed)

    async def fetch(self) -> Contract:
        """The present contract; see `Contracts.fetch`."""
        return await self._contracts.fetch(self._listed)

    def gate(self, call: ToolCall, context: ToolContext) -> None:
        if self.known() is None:
            raise StoreMiss(self.fetch)

    def is_valid(self, value: object) -> bool:
        """Whether arguments fit the contract; none do while it is not there."""
        known = self.known()
        return known is not None and known.arguments.is_valid(value)

    def problems(self, value: object) -> list[str]:
        known = self.known()
        return ["the definition must be resolved again"] if known is None else known.arguments.problems(value)
