"""`Extension`: the base class of opt-in parts of a server. `find` imports an extension by its key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from mcp_toolset._index import declaring, homes, loaded, marked, others
from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError

if TYPE_CHECKING:
    from mcp_toolset.calls.middleware import Guard
    from mcp_toolset.calls.observers import CallObserver
    from mcp_toolset.calls.permissions import EventRecorder
    from mcp_toolset.catalog.search.entry import SearchListener
    from mcp_toolset.config.extensions import ServerSettings, Settings
    from mcp_toolset.context.connection import RequestContext
    from mcp_toolset.extending.host import Host, ServedView, ViewOptions
    from mcp_toolset.extending.mounts import DeclaredToMounts
    from mcp_toolset.extensions.keywords import Keywords
    from mcp_toolset.security.patterns import ToolFacts
    from mcp_toolset.security.policy import Policy
    from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
    from mcp_toolset.tools.result import ToolResult
    from mcp_toolset.tools.source import ToolSource
    from mcp_toolset.tools.tool import Tool
    from mcp_toolset.tools.toolset import Toolset


if TYPE_CHECKING:
    Answer = Callable[[RequestContext], Awaitable[dict[str, Any]]]
    """A function that answers a method of the protocol: from a request to its result."""


@dataclass(frozen=True, slots=True)
class HttpPage:
    """A page that a server has over HTTP, for GET and HEAD.

    Attributes:
        answer: Takes the caller and the value of `Accept`; returns the body and its content type. With
            `max_age` it takes `None` and the address of the server as the request has it, such as
            `https://host:8000`, or an empty text.
        public: True if everyone may read it: without a token, and under any host name.
        max_age: Seconds for which caches may keep it. It is public then, web pages of every origin may read
            it, and it has an ETag, so that who has it already is answered with 304.
    """

    answer: Callable[[Identity | None, str], tuple[bytes, str]]
    public: bool = False
    max_age: int | None = None


class Extension:
    """Base class of an opt-in part of a server. Override only the methods that you need.

    The server looks up once, when it is made, which methods a class overrides: a method that no extension
    overrides costs nothing during calls. The members that the MCP SDK's `mcp.server.extension.Extension` has
    too have the same names here.

    Attributes:
        key: Its keyword of `ToolsetServer`, and its key in the section `toolset` of a configuration.
        identifier: Its name in `capabilities.extensions` (SEP-2133); an empty one is not advertised.
        Settings: The class of its settings in a configuration; `None` if it has none. An extension of this
            package declares them elsewhere, so that a file is read without importing the extension.
        reshapes: True if it may change results so that they do not fit output schemas; lists then have none.
        always: True if each server has it by default. This mark and the next two are for extensions of this
            package.
        served: True if `serve` and the command line turn it on by default.
        keeps_calls: True if it keeps calls that wait for an answer; if it is off, replicas keep none either.
        carries: Identifiers of extensions of mounted servers, of which the first one turns it on, and so does
            a server of which nothing is known yet; `*` stands for all that no other extension carries.
        schemes: Schemes of addresses, such as `lamp`: if several servers are mounted, clients get
            `lamp://SERVER/…` for what a server has at `lamp://…`.
        in_views: The extension in views of the server: `own` another one, made like it; `shared` the
            same, which has one store or one count for all; `none` nothing.
        views_at: The beginning of the addresses of its views, such as `/p/`: over HTTP, `view` is asked for
            the view NAME at `/p/NAME/mcp` and `/p/NAME/sse`.
        host: The server, from `bind` on.
    """

    key: ClassVar[str] = ""
    identifier: str = ""
    Settings: ClassVar[type[Settings] | None] = None
    reshapes: ClassVar[bool] = False
    always: ClassVar[bool] = False
    served: ClassVar[bool] = False
    keeps_calls: ClassVar[bool] = False
    carries: ClassVar[tuple[str, ...]] = ()
    schemes: ClassVar[tuple[str, ...]] = ()
    in_views: ClassVar[Literal["own", "shared", "none"]] = "own"
    views_at: ClassVar[str] = ""
    host: Host

    # How it is made

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self | None:
        """The extension for a keyword or a section of a configuration: by default `cls(said)`.

        Args:
            said: The value of the keyword, such as a path; `True` and `None` use the configuration's.
            stated: The settings in the configuration; by default, they are the arguments of the class.
            host: The server.
        """
        make = cast("Any", cls)
        if said is not None and said is not True:
            return make(said)
        named = () if stated is None else fields(cast("Any", stated))
        return make(**{one.name: getattr(stated, one.name) for one in named})

    @classmethod
    def at_restart(cls, before: Settings | None, now: Settings | None) -> bool:
        """True if a change of the settings takes effect only when the server is started again."""
        from mcp_toolset.config.extensions import at_restart

        return at_restart(before, now)

    @classmethod
    def mounted(cls, server: str, stated: ServerSettings, tools: Toolset) -> Toolset:
        """The tools of a mounted server whose entry has settings of this extension."""
        return tools

    def bind(self, host: Host) -> Self:
        """The extension for one server: a copy of it if it belongs to another server already."""
        bound = copy(self) if hasattr(self, "host") else self
        bound.host = host
        return bound

    def alone(self) -> None:
        """From now on, treat all callers without authentication as the same user, as over stdio."""

    # What it adds

    def lists_all(self, context: ToolContext) -> bool | None:
        """True if the client of a request is listed the tools behind search; `None`: the next extension says.

        It then calls them without a grant; policies apply as always. A client of up to 2025-11-25 keeps the
        first answer while it is connected; about a later one it is asked at each request. Where no extension
        says anything, the client searches for now. A server with `access` never asks.
        """
        return None

    def facts(self) -> Mapping[str, str]:
        """Lines about it for `mcp-toolset list --servers`, by their headings; the server is open."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Its value in `capabilities.extensions`, if it has an identifier."""
        return {}

    def tools(self) -> Sequence[Tool[..., Any]]:
        """Tools, which policies, limits and names treat like the program's own."""
        return ()

    def catalog_tools(self) -> Sequence[Tool[..., Any]]:
        """Tools beside `search_tools` and `call_tool`; a server without deferred tools does not have them.

        The policy does not apply to these tools, but to the calls that they make by `Host.call`.
        """
        return ()

    def read_resource(
        self, uri: str, context: ToolContext
    ) -> list[dict[str, Any]] | Awaitable[list[dict[str, Any]]] | None:
        """The contents of a resource that is in no list; `None` if the address belongs to another source.

        No policy applies: check the caller of `context` yourself.

        Raises:
            LookupError: the address belongs to this extension, and this caller has nothing there.
        """
        return None

    async def findable(self, context: ToolContext) -> Sequence[Mapping[str, str]]:
        """Things beside tools that `search_tools`, `mcp-toolset search` and `list` show to a caller.

        Each thing has a `kind`, in one word such as `document`, a `name`, a `description`, which a search
        reads, the `address` of its resource, the mounted `server` that has it, which is empty for the program
        itself, and `how` a model gets it, in a few words. No policy applies: leave out what the caller may
        not know of.
        """
        return ()

    def judged(self) -> Iterable[ToolFacts]:
        """Things that the policy judges by name as it does tools: a rule about one is no slip.

        It is asked while tools are compiled, and only if a rule fits no tool.
        """
        return ()

    def unjudged(self) -> Iterable[str]:
        """Mounted servers whose things of this kind are not known yet: meanwhile no rule for them is a slip.

        Once they are known, tell `Host.judge_again`.
        """
        return ()

    def observer(self) -> CallObserver | None:
        """An observer, which is told of the end of each call."""
        return None

    def listener(self) -> SearchListener | None:
        """A listener, which is told of each search."""
        return None

    def http_pages(self) -> Mapping[str, HttpPage]:
        """Pages over HTTP by path, such as `/lamps`; a route of the program at the same path comes first."""
        return {}

    def methods(self) -> Mapping[str, Answer]:
        """Functions that answer methods that the server itself does not know, by the method's name."""
        return {}

    def services(self) -> Mapping[type, object]:
        """Services for tools and for other extensions, by type; see `Host.need`.

        If several offer a service of one type, the program's is used, else that of the first extension.
        """
        return {}

    def declared(self) -> DeclaredToMounts | None:
        """The declaration to mounted servers, from their next connection on."""
        return None

    @property
    def varies(self) -> bool:
        """True if the program gave it rules for some callers only: without a login, they match nobody."""
        return False

    # Views of the server

    async def view(self, name: str, identity: Identity | None) -> ServedView | None:
        """The view at an address, for a caller; `None` if there is none for this caller."""
        return None

    def showing(self, name: str) -> Self:
        """One like it, by which one client, or a command, gets the view of a name in place of the server."""
        raise DefinitionError(f"{self.key}: has no views to choose {name!r} from")

    def shown(self) -> ViewOptions | None:
        """The differences of the view that `showing` has chosen; `None` if none was chosen.

        Raises:
            TargetError: there is no such view.
        """
        return None

    async def entered(self) -> ServedView | None:
        """The view that the one client of stdio, or a command, gets in place of the server; `None` for none.

        Raises:
            TargetError: there is no such view.
        """
        return None

    # Events beside calls

    async def notified(self, request: RequestContext) -> None:
        """Called with each notification of a client that the server itself does not know."""

    def event(self, kind: str, /, **facts: Any) -> None:
        """Called with each event beside calls: `decision`, `login`, `reloaded`. It must return at once."""

    def compiled(self, sources: Mapping[str, ToolSource]) -> None:
        """Called with the mounted servers, by name, when the tools were compiled or a status has changed."""

    @classmethod
    def event_elsewhere(cls, stated: Settings, kind: str, /, **facts: Any) -> None:
        """Called with an event of a command that runs in another process, such as `login`."""

    # Lifetime

    def lifespan(self) -> AbstractAsyncContextManager[object] | None:
        """Entered before mounted servers are opened, left after they are closed: for stores."""
        return None

    def running(self) -> AbstractAsyncContextManager[object] | None:
        """Entered when tools can be called, left before mounted servers are closed: for loops that save."""
        return None

    # Stages of a request and of a call, the outermost first

    def intercept(self, method: str, answer: Answer) -> Answer:
        """The function that answers a method of the protocol; `answer` itself to change nothing.

        An empty `method` stands for all methods that the server does not know. It is called whenever `answer`
        is called.
        """
        return answer

    def answer(self, answer: Answer) -> Answer:
        """The function that answers calls of clients, inside all `intercept`; `answer` to change nothing.

        It is called whenever the tools were compiled, or the state of a mounted server has changed.
        """
        return answer

    def sent(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The call of a client or of its code (code mode), before its tool is looked up.

        Raises:
            CallError: the call is answered with this error.
        """
        return call

    def answered(self, result: ToolResult, call: ToolCall, context: ToolContext) -> ToolResult:
        """The complete result of a client's call, as the client gets it; calls of code are left out."""
        return result

    def guard(self) -> Guard | tuple[Guard, ...] | None:
        """One or several guards, whose stages (`gate`, `layers`, `recorded`) apply to each tool.

        It is called at each compilation of the tools; return the same objects unless the stages change.
        """
        return None

    def guard_of(self, policy: Policy, record: EventRecorder | None) -> Guard | None:
        """The guard that applies a policy to calls, in place of the server's own guard, which asks clients.

        Args:
            policy: The policy; for each new policy this method is called again.
            record: Records decisions.
        """
        return None


def overrides(extension: Extension, method: str) -> bool:
    """True if the class of an extension overrides a method."""
    return getattr(type(extension), method) is not getattr(Extension, method)


def find(key: str) -> type[Extension] | None:
    """The extension with a key: of this package, else of another distribution; `None` if there is none.

    Raises:
        DefinitionError: the entry point of another distribution is no extension with this key.
    """
    if (home := homes("key").get(key)) is not None:
        return declaring(home, "extension").EXTENSION
    if (point := others().get(key)) is None:
        return None
    found = loaded(point)
    if not isinstance(found, type) or not issubclass(found, Extension):
        raise DefinitionError(f"{key}: {point.value} is no subclass of mcp_toolset.extending.Extension")
    if found.key != key:
        raise DefinitionError(
            f"{key}: {point.value} has the key {found.key!r}; give the entry point and the class one name"
        )
    return found


def served_keywords(on: bool) -> Keywords:
    """The keywords that turn the extensions with `served` on or off."""
    return cast("Keywords", dict.fromkeys(marked("served"), on))
