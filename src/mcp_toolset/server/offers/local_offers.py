"""`LocalOffers`: the resources, prompts and completions of the server itself, as a source like any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import to_json, to_jsonable_python

from mcp_toolset.context.offer_kinds import PROMPTS, RESOURCES, Ending, Kind, Offers, Wire
from mcp_toolset.errors import InvalidOutputError
from mcp_toolset.protocol.cache_hints import STRICTEST, CacheHint
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.declare.providers import (
    CompletionProvider,
    PromptProvider,
    ResourceProvider,
    UpdatingResources,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcp_toolset.tools.declare.providers import Reference

MAX_COMPLETIONS: Final = 100
"""Values in one answer (server/utilities/completion)."""

Reader = Callable[[str, ToolContext], list[dict[str, Any]] | Awaitable[list[dict[str, Any]]] | None]
"""What reads resources that are not listed; it returns `None` for an address that is not one of its own."""


class LocalOffers(Offers):
    """Adapts the providers that an application gives to its server."""

    def __init__(
        self,
        resources: Sequence[ResourceProvider],
        prompts: Sequence[PromptProvider],
        completions: CompletionProvider | None,
        logs: Callable[[], bool],
        hint: CacheHint = STRICTEST,
        readers: Sequence[Reader] = (),
    ) -> None:
        """Adapt the given providers.

        Args:
            resources: What can be read; of two resources with one URI, that of the first provider.
            prompts: What users can pick; of two prompts with one name, that of the first provider.
            completions: Proposes values for arguments.
            logs: Tells whether there are tools that may send log messages.
            hint: How long clients may keep the lists.
            readers: Read resources that are not listed.
        """
        self._hint = hint
        self._logs = logs
        self._resources = resources
        self._prompts = prompts
        self._completions = completions
        self._readers = readers

    def declares(self, capability: str, feature: str = "") -> bool:
        """Whether there is a provider for a capability; see `Offers`."""
        match capability:
            case "resources":
                if feature == "subscribe":
                    return any(isinstance(one, UpdatingResources) for one in self._resources)
                return bool(self._resources) or (bool(self._readers) and not feature)
            case "prompts":
                return bool(self._prompts)
            case "completions":
                return self._completions is not None
            case "logging":
                return self._logs()
            case _:
                return False

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when a provider's list has changed."""
        ends = [part.on_change(callback) for part in (*self._resources, *self._prompts)]

        def end() -> None:
            for each in ends:
                each()

        return end

    async def listed(self, kind: Kind) -> Sequence[Wire]:
        """The entries of a kind, as the provider gives them now."""
        key = "name"
        if kind is PROMPTS:
            entries = [entry for one in self._prompts for entry in await one.list_prompts()]
        elif kind is RESOURCES:
            key, entries = "uri", [entry for one in self._resources for entry in await one.list_resources()]
        else:
            key, entries = (
                "uriTemplate",
                [entry for one in self._resources for entry in await one.list_resource_templates()],
            )
        if len(self._prompts if kind is PROMPTS else self._resources) < 2:
            return [_wire(entry) for entry in entries]
        found: dict[Any, Wire] = {}
        for wire in map(_wire, entries):
            found.setdefault(wire.get(key), wire)
        return list(found.values())

    def hint(self, kind: Kind) -> CacheHint:
        """What the application says of all its lists: a provider says nothing of it."""
        return self._hint

    def meta(self, kind: Kind) -> Wire:
        """Providers give entries, and nothing about their list."""
        return {}

    async def read(self, uri: str, context: ToolContext) -> Wire:
        """Read a resource; raises `LookupError` where there is none such."""
        for read in self._readers:
            if (contents := read(uri, context)) is not None:
                return {"contents": await contents if isinstance(contents, Awaitable) else contents}
        fault = LookupError("Resource not found")
        for one in self._resources:
            try:
                return {"contents": [_wire(part) for part in await one.read_resource(uri)]}
            except LookupError as missing:
                fault = missing
        raise fault

    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Wire:
        """Get a prompt; raises `LookupError` where there is none such."""
        fault = LookupError(f"Unknown prompt: {name}")
        for one in self._prompts:
            try:
                return _wire(await one.get_prompt(name, arguments, context))
            except LookupError as missing:
                fault = missing
        raise fault

    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """Complete an argument; no values where there is no provider."""
        if self._completions is None:
            return {"completion": {"values": [], "total": 0, "hasMore": False}}
        argument = params["argument"]
        settled: Any = params.get("context")
        others: Any = settled.get("arguments") if settled else None
        reference = _reference(params["ref"])
        found = await self._completions(reference, argument["name"], argument["value"], others or {})
        if isinstance(found, Mapping) or hasattr(found, "model_dump"):
            return {"completion": _wire(cast("BaseModel | Mapping[str, Any]", found))}
        values = list(cast("Sequence[str]", found))
        completion = {
            "values": values[:MAX_COMPLETIONS],
            "total": len(values),
            "hasMore": len(values) > MAX_COMPLETIONS,
        }
        return {"completion": _wire(completion)}

    async def watch(self, uri: str, updated: Callable[[], None], context: ToolContext) -> Ending:
        """Call `updated` whenever the provider says that the resource has changed."""
        stops = [
            one.on_update(lambda changed: updated() if changed == uri else None)
            for one in self._resources
            if isinstance(one, UpdatingResources)
        ]

        async def end() -> None:
            for stop in stops:
                stop()

        return end


def _reference(wire: Mapping[str, Any]) -> Reference:
    """What an argument belongs to, as the model of the SDK that completion functions take."""
    from mcp_types import PromptReference, ResourceTemplateReference

    model = PromptReference if wire["type"] == "ref/prompt" else ResourceTemplateReference
    return model.model_validate(wire, by_name=False)


def _wire(given: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """What a provider gives, in wire form."""
    try:
        if isinstance(given, Mapping):
            wire = cast("dict[str, Any]", to_jsonable_python(given, by_alias=True))
        else:
            wire = given.model_dump(by_alias=True, mode="json", exclude_none=True)
        to_json(wire)
    except ValueError as fault:
        raise InvalidOutputError(f"a provider gave what has no JSON form: {fault}") from None
    return wire
