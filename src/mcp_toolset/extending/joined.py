"""`Extensions`: the extensions of one server, and what they say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from mcp_toolset._index import homes, marked
from mcp_toolset._records import replace
from mcp_toolset._rule import is_ours, refuse_unasked_in
from mcp_toolset.context.offer_kinds import MountedSource, Offers
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension, find, overrides
from mcp_toolset.tools.binding import DEFERRED_CATALOG, ToolBinding
from mcp_toolset.tools.definition import ALWAYS_LOADED

if TYPE_CHECKING:
    from mcp_toolset.calls.middleware import Guard
    from mcp_toolset.calls.observers import CallObserver
    from mcp_toolset.calls.permissions import EventRecorder
    from mcp_toolset.catalog.search.entry import SearchListener
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.extension import Answer, HttpPage
    from mcp_toolset.extending.host import FindView, Host, ServedView, ViewOptions
    from mcp_toolset.security.patterns import ToolFacts
    from mcp_toolset.security.policy import Policy
    from mcp_toolset.tools.call import ToolCall, ToolContext
    from mcp_toolset.tools.result import ToolResult
    from mcp_toolset.tools.source import ToolSource
    from mcp_toolset.tools.tool import Tool

    Sent = Callable[[ToolCall, ToolContext], ToolCall]
    ListsAll = Callable[[ToolContext], bool | None]
    Answered = Callable[[ToolResult, ToolCall, ToolContext], ToolResult]


class Extensions:
    """The extensions of one server, in order: the first is the outermost.

    Attributes:
        sent: Changes a call before it runs; `None` without such extensions.
        answered: Changes a result; `None` without such extensions.
        listener: Gets reports of searches; `None` without such extensions.
        lists_all: True if tools behind search are listed to a client; `None` for never.
        record: Gets reports of events that are no calls; `None` without such extensions.
        catalog_tools: The tools that they have beside those that search and grant.
        readers: Readers of resources that no list has, in order.
        notified: Handlers of notifications of clients that the server does not know, in order.
        schemes: The schemes of addresses that name their mounted server; see `Extension.schemes`.
        reshapes: True if results may differ from output schemas.
    """

    def __init__(
        self,
        every: Iterable[Extension],
        host: Host,
        late: Sequence[str] = (),
        shared: Collection[Extension] = (),
    ) -> None:
        """Bind the extensions to their server.

        Args:
            every: The extensions.
            host: The server.
            late: The keys of those that a file may turn on later.
            shared: Some of `every`, which belong to another server and stay with it.
        """
        self._host, self._late = host, [*late]
        self._every = tuple(one if one in shared else one.bind(host) for one in every)
        self._here = tuple(one for one in self._every if one not in shared)  # those that live with the server
        self.sent = _sent([one.sent for one in self._of("sent")])
        self.answered = _answered([one.answered for one in reversed(self._of("answered"))])
        self.listener = self._one_listener()
        self.lists_all = _lists_all([one.lists_all for one in self._of("lists_all")])
        self.record = _record([one.event for one in self._of("event")])
        self._compiled = [one.compiled for one in self._of("compiled") if one in self._here]
        self.readers = [one.read_resource for one in self._of("read_resource")]
        self.reshapes = any(one.reshapes for one in self._every)
        self._guarding = sorted(self._of("guard"), key=lambda one: one.key not in marked("adds"))
        self._answering = self._of("answer")
        self._intercepting = self._of("intercept")
        self._finding = self._of("findable")
        self.notified = [one.notified for one in self._of("notified")]
        given = {scheme for one in self._every for scheme in one.schemes}
        self.schemes = frozenset((*homes("schemes"), *given))
        self.catalog_tools = [
            _placed(tool) for one in self._of("catalog_tools") for tool in one.catalog_tools()
        ]

    def __getitem__(self, key: str) -> Any:
        """The extension of a key.

        Raises:
            KeyError: the server has none.
        """
        if (found := self.get(key)) is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[Extension]:
        """The extensions, the outermost first."""
        return iter(self._every)

    def get(self, key: str) -> Any:
        """The extension of a key, or `None`."""
        return next((one for one in self._every if one.key == key), None)

    def leave_served(self) -> None:
        """Leave out what `serve` turns on, before the server is opened for something else."""
        self._every = tuple(one for one in self._every if not one.served)
        self._here = tuple(one for one in self._here if not one.served)

    def facts(self) -> dict[str, dict[str, str]]:
        """The lines of each about itself, by key."""
        return {one.key: {**said} for one in self._every if (said := one.facts())}

    def tools(self) -> list[Tool[..., Any]]:
        """The tools that they add, in order."""
        return [tool for one in self._here for tool in one.tools()]

    def services(self) -> dict[type, object]:
        """Services for tools and for other extensions, by type; the first in order counts."""
        every = reversed(self._of("services"))
        return {kind: service for one in every for kind, service in one.services().items()}

    def advertised(self) -> dict[str, dict[str, Any]]:
        """The value of `capabilities.extensions`: the settings of those that have an identifier."""
        return {one.identifier: one.settings() for one in self._every if one.identifier}

    def observers(self) -> list[CallObserver]:
        """The observers of calls."""
        return [found for one in self._every if (found := one.observer()) is not None]

    def guards(self) -> list[Guard]:
        """The stages of tools, as they are now."""
        late = [one for one in self._late if one in marked("adds")]
        for key in late:
            if any(map(any, self._host.stated_by_file(key))):
                self._guarding.insert(0, self._turned_on(key))
        found = (one.guard() for one in self._guarding)
        each = (one if isinstance(one, tuple) else (one,) for one in found if one is not None)
        return [guard for guards in each for guard in guards]

    def guard_of(self, policy: Policy) -> Guard | None:
        """The guard that applies a policy to calls; `None` if the server's own does."""
        for key in [one for one in self._late if one in marked("with_policy")]:
            self._turned_on(key)
        found = (one.guard_of(policy, self.record) for one in self._of("guard_of"))
        return next((one for one in found if one is not None), None)

    def _turned_on(self, key: str) -> Extension:
        self._late.remove(key)
        made = cast("Any", find(key)).of(None, None, self._host).bind(self._host)
        self._every += (made,)
        self._here += (made,)
        return made

    def compiled(self, sources: Mapping[str, ToolSource]) -> None:
        """Tell of the mounted servers, after turning on what carries extensions that they declare."""
        if any(one in marked("carries") for one in self._late):
            self._turn_on_carriers(sources)
        for told in self._compiled:
            told(sources)

    def _turn_on_carriers(self, sources: Mapping[str, ToolSource]) -> None:
        carriers = homes("carries")
        offers = [one.offers for one in sources.values() if isinstance(one, MountedSource)]
        declared = {name for one in offers for name in _declared(one)}
        wanted = {carriers.get(name, carriers.get("*")) for name in declared}
        if not all(one.known for one in offers):
            # Clients that connect now are told what a server may turn out to have.
            wanted |= {home for name, home in carriers.items() if name != "*"}
        keys = [one for one in self._late if homes("key")[one] in wanted and one in marked("carries")]
        for key in keys:
            made = self._turned_on(key)
            self._compiled += [made.compiled] if overrides(made, "compiled") else []
            self._intercepting += [made] if overrides(made, "intercept") else []
            self.notified += [made.notified] if overrides(made, "notified") else []
            self._finding += [made] if overrides(made, "findable") else []
        if keys:
            self._host.judge_again()

    async def findable(self, context: ToolContext) -> list[Mapping[str, str]]:
        """The things beside tools that a caller finds, in the order of the extensions."""
        return [each for one in self._finding for each in await one.findable(context)]

    def judged(self) -> list[ToolFacts]:
        """The things beside tools that policies judge by name."""
        return [fact for one in self._of("judged") for fact in one.judged()]

    def unjudged(self) -> list[str]:
        """The mounted servers whose things beside tools are not known yet."""
        found = [server for one in self._of("unjudged") for server in one.unjudged()]
        late_homes = {homes("key")[one] for one in self._late if one in marked("carries")}
        if late := {name for name, home in homes("carries").items() if home in late_homes}:
            # Their extensions are turned on once these tools are compiled, and then say it themselves.
            servers = self._host.servers(None).items()
            found += (name for name, offers in servers if late & {*_declared(offers)})
        return found

    def http_pages(self) -> dict[str, HttpPage]:
        """Their pages over HTTP by path; the first extension that has a path answers there."""
        return {path: page for one in reversed(self._every) for path, page in one.http_pages().items()}

    def views(self) -> dict[str, FindView]:
        """The functions that find views, by the beginning of their addresses."""
        return {one.views_at: one.view for one in reversed(self._of("view"))}

    def shown(self) -> ViewOptions | None:
        """The differences of the view in place of the server; `None` for none."""
        return next((found for one in self._of("shown") if (found := one.shown()) is not None), None)

    async def entered(self) -> ServedView | None:
        """The view in place of the server for one client; `None` for none."""
        for one in self._of("entered"):
            if (found := await one.entered()) is not None:
                return found
        return None

    def methods(self) -> dict[str, Answer]:
        """Functions that answer methods unknown to the server; the first extension in order counts."""
        return {name: answer for one in reversed(self._every) for name, answer in one.methods().items()}

    def declare(self, sources: Iterable[ToolSource]) -> None:
        """Tell mounted servers of the extensions that declare something to them.

        Raises:
            DefinitionError: two declare one identifier.
        """
        found = [said for one in self._of("declared") if (said := one.declared())]
        _require_single(said.identifier for said in found)
        if not found:
            return
        for source in sources:
            # A source that declares extensions to its server; this holds from the next connection on.
            if (declared := getattr(source, "declared", None)) is not None:
                declared.update((said.identifier, said) for said in found)

    def intercepting(self, answers: dict[str, Answer]) -> None:
        """Stand around the answers to calls, then around those to all methods, and to unknown ones."""
        for one in reversed(self._answering):
            answers["tools/call"] = one.answer(answers["tools/call"])
        for one in reversed(self._intercepting):
            for method, answer in answers.items():
                answers[method] = one.intercept(method, answer)

    async def open(self, stack: AsyncExitStack) -> None:
        """Enter what lives longer than mounted servers."""
        for one in self._here:
            if (block := one.lifespan()) is not None:
                await stack.enter_async_context(block)

    async def run(self, stack: AsyncExitStack) -> None:
        """Enter what runs while tools can be called."""
        for one in self._here:
            if (block := one.running()) is not None:
                await stack.enter_async_context(block)

    def alone(self) -> None:
        """Take all callers without authentication for one user."""
        for one in self._here:
            one.alone()

    def _of(self, method: str) -> list[Extension]:
        return [one for one in self._every if overrides(one, method)]

    def _one_listener(self) -> SearchListener | None:
        found = [(one, listens) for one in self._every if (listens := one.listener()) is not None]
        if len(found) > 1:
            names = " and ".join(one.key or type(one).__name__ for one, _ in found)
            raise DefinitionError(f"{names} both listen to searches; leave one of them out")
        return found[0][1] if found else None


def _declared(offers: Offers) -> Iterator[str]:
    """The extensions that a mounted server declares."""
    return (name for kind in offers.extensions().values() for name in kind)


def _placed(made: Tool[..., Any]) -> ToolBinding:
    """A tool of the catalog: its title is among its annotations, too, where older clients look for it."""
    hints = {"title": made.definition.title, **(made.definition.annotations or {})}
    meta = {**(made.definition.meta or {}), **ALWAYS_LOADED}
    definition = replace(made.definition, annotations=hints, meta=meta)
    return replace(made.bind(), definition=definition, place=DEFERRED_CATALOG)


def _record(told: Sequence[EventRecorder]) -> EventRecorder | None:
    if len(told) < 2:
        return told[0] if told else None

    def record(kind: str, /, **facts: Any) -> None:
        for each in told:
            each(kind, **facts)

    return record


def _lists_all(stages: Sequence[Callable[[ToolContext], bool | None]]) -> ListsAll | None:
    if not stages:
        return None

    def lists_all(context: ToolContext) -> bool | None:
        return next((said for ask in stages if (said := ask(context)) is not None), None)

    return lists_all


def _sent(stages: Sequence[Sent]) -> Sent | None:
    if len(stages) < 2:
        return stages[0] if stages else None

    def sent(call: ToolCall, context: ToolContext) -> ToolCall:
        for stage in stages:
            call = stage(call, context)
        return call

    return sent


def _answered(stages: Sequence[Answered]) -> Answered | None:
    if len(stages) < 2:
        return stages[0] if stages else None

    def answered(result: ToolResult, call: ToolCall, context: ToolContext) -> ToolResult:
        for stage in stages:
            result = stage(result, call, context)
        return result

    return answered


def extensions_of(
    given: Sequence[Any], keywords: Mapping[str, Any], stated: Mapping[str, Settings | None], host: Host
) -> Extensions:
    """The extensions of a server: those given, those by keyword, and those of its configuration.

    Args:
        given: Extensions of this package or of the MCP SDK; they stand outside of the others.
        keywords: Values by key; `False` turns an extension off, `None` leaves it to the configuration.
        stated: The settings of the file; `None` turns an extension off unless a keyword has its value.
        host: The server.

    Raises:
        TypeError: a keyword is not of an extension.
        DefinitionError: an extension is there twice, or is none.
    """
    every = [_ours(one) for one in given]
    held = {one.key for one in every}
    order = {key: number for number, key in enumerate(homes("key"))}
    for key in sorted(
        {*stated, *keywords, *marked("always")}, key=lambda one: (order.get(one, len(order)), one)
    ):
        said, settings = keywords.get(key), stated.get(key)
        is_unsaid = said is None and settings is None and key not in marked("always")
        # A configuration turns off what `serve` turns on.
        is_stated_off = key in marked("served") and key in stated and stated[key] is None
        is_off = said is False or is_unsaid or (said is True and is_stated_off)
        if is_off and key in order and key not in held:
            continue
        kind = find(key)
        if kind is None:
            raise TypeError(f"ToolsetServer.__init__() got an unexpected keyword argument {key!r}")
        if key in held:
            if said is not None and said is not True:
                raise DefinitionError(f"{key}= is given by keyword and among the extensions; leave one out")
            continue
        if is_off:
            continue
        made = said if isinstance(said, kind) else kind.of(said, settings, host)
        if made is not None:
            every.append(made)
    for one in every:
        if not is_ours(type(one)):
            refuse_unasked_in(one, Extension)
    _require_single(name for one in every for name in dict.fromkeys((one.key, one.identifier)))
    held = {one.key for one in every}
    late = [
        one
        for one in (*marked("adds"), *marked("with_policy"), *marked("carries"))
        if one not in held and keywords.get(one) is not False
        if one not in marked("carries") or stated.get(one, one) is not None
    ]
    return Extensions(every, host, late)


def extensions_of_view(
    server: Extensions,
    keywords: Mapping[str, Any],
    stated: Mapping[str, Settings | None],
    others: Mapping[str, bool],
    host: Host,
) -> Extensions:
    """The extensions of a view of a server, in the order of the server's.

    Args:
        server: Those of the server.
        keywords: The keywords of the server, by key.
        stated: The settings of its configuration.
        others: The keys of those that the view has, or has not, otherwise.
        host: The view.
    """
    every = list[Extension]()
    for one in server:
        if one.in_views != "none" and others.get(one.key) is not False:
            every.append(one if one.in_views == "shared" else _again(one, keywords, stated, host))
    held = {one.key for one in every}
    for key, on in others.items():
        kind = find(key) if on and key not in held else None
        if kind is not None and (made := kind.of(True, stated.get(key), host)) is not None:
            every.append(made)
    late = [
        one
        for one in (*marked("adds"), *marked("with_policy"))
        if one not in held and keywords.get(one) is not False
    ]
    return Extensions(every, host, late, [one for one in every if one.in_views == "shared"])


def _again(
    one: Extension, keywords: Mapping[str, Any], stated: Mapping[str, Settings | None], host: Host
) -> Extension:
    """An extension like one of a server, made in the same way; one that was given as an object is copied."""
    said = keywords.get(one.key)
    if not one.key or one.key not in {*keywords, *stated, *marked("always")} or isinstance(said, Extension):
        return one
    made = type(one).of(said, stated.get(one.key), host)
    return one if made is None else made


def _require_single(names: Iterable[str]) -> None:
    counted = Counter(filter(None, names))
    for name, count in counted.items():
        if count > 1:
            raise DefinitionError(f"extensions: {name!r} is given twice; leave one of them out")


def _ours(one: Any) -> Extension:
    if isinstance(one, Extension):
        return one
    if isinstance(one, type):
        raise DefinitionError(f"extensions takes instances; write {one.__name__}()")
    if not hasattr(one, "identifier"):
        raise DefinitionError(
            f"extensions takes subclasses of mcp_toolset.extending.Extension and extensions of the MCP SDK, "
            f"not {one!r}"
        )
    # Few servers have extensions of the SDK.
    from mcp_toolset.extending.sdk import from_sdk

    return from_sdk(one)
