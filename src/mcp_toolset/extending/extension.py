"""`Extension`: an opt-in part of a server. Override only what you need. `find` imports one by its key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

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
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extending.mounts import DeclaredToMounts
    from mcp_toolset.extensions.keywords import Keywords
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
        answer: Returns the body and its content type, from the caller and what it accepts (`Accept`).
        public: Whether everyone may read it: without a token, and under any name of the host.
    """

    answer: Callable[[Identity | None, str], tuple[bytes, str]]
    public: bool = False


class Extension:
    """Base class of an opt-in part of a server. Override only the methods that you need.

    Which methods a class overrides is looked up once, when the server is made: what no extension overrides
    costs a call nothing. The members of the MCP SDK's `mcp.server.extension.Extension` have the same names.

    Attributes:
        key: Its keyword of `ToolsetServer`, and its key in the section `toolset` of a configuration.
        identifier: Its name in `capabilities.extensions` (SEP-2133); an empty one is not advertised.
        Settings: What a configuration can say of it; `None` if nothing. An extension of this package has it
            apart from the class, so that a file is read without importing the extension.
        reshapes: Whether results may differ from output schemas, which lists then do not promise.
        always: Whether each server has it unless it is told otherwise. This mark and the next two are for
            extensions of this package.
        served: Whether `serve` and the command line turn it on unless told otherwise.
        keeps_calls: Whether it keeps calls that wait: turned off, what replicas share keeps none either.
        host: The server, from `bind` on.
    """

    key: ClassVar[str] = ""
    identifier: str = ""
    Settings: ClassVar[type[Settings] | None] = None
    reshapes: ClassVar[bool] = False
    always: ClassVar[bool] = False
    served: ClassVar[bool] = False
    keeps_calls: ClassVar[bool] = False
    host: Host

    # How it is made

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self | None:
        """The extension that a keyword or a configuration asks for: by default `cls(said)`.

        Args:
            said: The value of the keyword, such as a path; `True` and `None` stand for the configuration's.
            stated: What the configuration says; by default, its fields are the arguments of the class.
            host: The server.
        """
        make = cast("Any", cls)
        if said is not None and said is not True:
            return make(said)
        named = () if stated is None else fields(cast("Any", stated))
        return make(**{one.name: getattr(stated, one.name) for one in named})

    @classmethod
    def at_restart(cls, before: Settings | None, now: Settings | None) -> bool:
        """True if a change in a configuration holds from the next start of the server on."""
        from mcp_toolset.config.extensions import at_restart

        return at_restart(before, now)

    @classmethod
    def mounted(cls, server: str, stated: ServerSettings, tools: Toolset) -> Toolset:
        """The tools of a mounted server whose entry has settings of this extension."""
        return tools

    def bind(self, host: Host) -> Self:
        """The extension as it belongs to a server: a copy, if it belongs to another one already."""
        bound = copy(self) if hasattr(self, "host") else self
        bound.host = host
        return bound

    def alone(self) -> None:
        """Take all callers without authentication for one user from now on, as over stdio."""

    # What it adds

    def settings(self) -> dict[str, Any]:
        """Its value in `capabilities.extensions`, if it has an identifier."""
        return {}

    def tools(self) -> Sequence[Tool[..., Any]]:
        """Tools, which policies, limits and names treat like the program's own."""
        return ()

    def catalog_tools(self) -> Sequence[Tool[..., Any]]:
        """Tools beside `search_tools` and `call_tool`; where no tool is deferred, they are not there.

        Each caller may call them, whatever the policy says: it decides about the calls that they make by
        `Host.call`.
        """
        return ()

    def read_resource(
        self, uri: str, context: ToolContext
    ) -> list[dict[str, Any]] | Awaitable[list[dict[str, Any]]] | None:
        """The contents of a resource that no list has; `None` if the address is not one of these.

        No policy stands before it: check the caller of `context` yourself.

        Raises:
            LookupError: the address is one of these, and there is nothing for this caller.
        """
        return None

    def observer(self) -> CallObserver | None:
        """The observer of each call's end."""
        return None

    def listener(self) -> SearchListener | None:
        """The listener to searches."""
        return None

    def http_pages(self) -> Mapping[str, HttpPage]:
        """Pages over HTTP by path, such as `/lamps`; a route of the program's at this path comes before."""
        return {}

    def methods(self) -> Mapping[str, Answer]:
        """Functions that answer methods of the protocol that the server itself does not know, by name."""
        return {}

    def services(self) -> Mapping[type, object]:
        """Services for tools and for other extensions, by type; see `Host.need`.

        Of two services of one type, the program's comes first, then that of the first extension.
        """
        return {}

    def declared(self) -> DeclaredToMounts | None:
        """The declaration to mounted servers, from their next connection on."""
        return None

    # What it is told of, beside calls

    def event(self, kind: str, /, **facts: Any) -> None:
        """Told of what is no call: a `decision`, a `login`, `reloaded`; it must return at once."""

    def compiled(self, sources: Mapping[str, ToolSource]) -> None:
        """Told of the mounted servers, by name, whenever the tools were compiled."""

    @classmethod
    def event_elsewhere(cls, stated: Settings, kind: str, /, **facts: Any) -> None:
        """Told of what a command has done in a process of its own, such as `login`."""

    # How long it lives

    def lifespan(self) -> AbstractAsyncContextManager[object] | None:
        """Entered before mounted servers are opened, left after they are closed: for stores."""
        return None

    def running(self) -> AbstractAsyncContextManager[object] | None:
        """Entered when tools can be called, left before mounted servers are closed: for loops that save."""
        return None

    # Where it stands in a request and in a call, from the outside to the inside

    def intercept(self, method: str, answer: Answer) -> Answer:
        """The function that answers a method of the protocol; `answer` itself to change nothing.

        An empty `method` stands for all those that the server does not know. Asked as often as `answer` is.
        """
        return answer

    def answer(self, answer: Answer) -> Answer:
        """The function that answers calls of clients, within all `intercept`; `answer` to change nothing.

        Asked whenever the tools were compiled, or the state of a mounted server has changed.
        """
        return answer

    def sent(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The call of a client, or of code that runs for one, before its tool is looked up.

        Raises:
            CallError: the call is answered with this error.
        """
        return call

    def answered(self, result: ToolResult, call: ToolCall, context: ToolContext) -> ToolResult:
        """The complete result of a client's call, as the client gets it; not that of a call of code."""
        return result

    def guard(self) -> Guard | tuple[Guard, ...] | None:
        """Stages of each tool, of one or several guards: `gate`, `layers` and `recorded`.

        Asked by each compilation of the tools: the same objects for the same stages.
        """
        return None

    def guard_of(self, policy: Policy, record: EventRecorder | None) -> Guard | None:
        """The guard that applies a policy to calls, in place of the server's own, which asks clients.

        Args:
            policy: The policy; asked again for each new one.
            record: Notes decisions.
        """
        return None


def overrides(extension: Extension, method: str) -> bool:
    """True if a class has a method of its own."""
    return getattr(type(extension), method) is not getattr(Extension, method)


def find(key: str) -> type[Extension] | None:
    """The extension of a key: of this package, else of another distribution; `None` if there is none.

    Raises:
        DefinitionError: another distribution names what is no extension of this key.
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
    """The keywords of the extensions that `serve` turns on unless told otherwise."""
    return cast("Keywords", dict.fromkeys(marked("served"), on))
