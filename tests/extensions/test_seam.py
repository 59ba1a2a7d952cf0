"""What an extension can do in a server, and how it is given: at the doors of programs, files and clients."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, cast

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.server.apps import Apps
from mcp.server.extension import Extension as SdkExtension
from mcp.server.extension import MethodBinding
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    Request,
    RequestParams,
    Result,
    TextContent,
    ToolAnnotations,
)
from tests.extensions.indexed import indexed
from tests.support.asking import ERAS, connected, text_of
from tests.support.callers import Callers
from tests.support.code_client import code_client
from tests.support.direct_callers import MODERN, Caller
from tests.support.served import served

from mcp_toolset import (
    CallReport,
    Identity,
    RemoteToolset,
    SamplingRequest,
    Tool,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
    Toolset,
    ToolsetServer,
    _index,
    load_toolset,
    serve,
    tool,
)
from mcp_toolset.calls.permissions import AskingGuard
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.code import CodeMode
from mcp_toolset.config import load_config
from mcp_toolset.config.models import ServerConfig
from mcp_toolset.config.schema import parts
from mcp_toolset.config.tables import Table
from mcp_toolset.errors import CallError, ConfigError, DefinitionError, NameConflictError
from mcp_toolset.extending import Extension, HttpPage, Meaning, Place, ServerSettings, Settings, key
from mcp_toolset.extending.mounts import DeclaredToMounts, MountExtension
from mcp_toolset.policy import Limits, Policy
from mcp_toolset.tools.services import ProcessesOf

pytestmark = pytest.mark.anyio

Sent = Callable[[], Awaitable[ToolResult]]
ONCE: Any = {"type": "int", "gt": 0, "strict": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class LampSettings(Settings):
    """What a file says of lamps."""

    says: ClassVar = Meaning("Whether there is light.", True)
    short: ClassVar = "watts"

    watts: int = key(ONCE, "a number of watts", 40, meaning="Watts.", example=60)
    colour: str = key({"type": "str"}, "a colour", "white", meaning="Colour.", example="red", live=True)


class Lamp(Extension):
    """Says how bright it is."""

    key = "lamp"
    identifier = "com.example/lamp"
    Settings = LampSettings

    def __init__(self, watts: int = 40, colour: str = "white") -> None:
        self.watts, self.colour = watts, colour
        self.lit = 0

    def settings(self) -> dict[str, Any]:
        return {"watts": self.watts}

    def tools(self) -> Sequence[Tool[..., Any]]:
        @tool(read_only=True)
        def light() -> str:
            """Say how bright it is."""
            self.lit += 1
            now = self.host.stated("lamp")
            return f"{self.watts} {now.colour if isinstance(now, LampSettings) else self.colour} {self.lit}"

        return [light]


@pytest.fixture
def lamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The distribution of the lamp is installed."""
    info = tmp_path / "packages" / "lamp-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lamp\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mcp_toolset.extensions]\nlamp = lamp_of_a_test:Lamp\n")
    module = ModuleType("lamp_of_a_test")
    module.Lamp = Lamp  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "lamp_of_a_test", module)
    monkeypatch.syspath_prepend(str(info.parent))
    _index.others.cache_clear()
    yield
    monkeypatch.undo()
    _index.others.cache_clear()


@tool(read_only=True)
def echo(text: str) -> str:
    """Say it again."""
    return text


def kit() -> Toolset:
    return Toolset(echo)


def configured(folder: Path, section: Mapping[str, Any], **options: Any) -> ToolsetServer:
    write(folder, section)
    return ToolsetServer(load_toolset(load_config(folder / "mcp.json")), **options)


def write(folder: Path, section: Mapping[str, Any]) -> None:
    (folder / "mcp.json").write_text(json.dumps({"toolset": section, "mcpServers": {}}))


def keys(server: ToolsetServer) -> list[str]:
    return [one.key for one in server.extensions if not one.always]


async def lit(server: ToolsetServer) -> str:
    """What the lamp says."""
    async with Client(server.lowlevel, cache=None) as client:
        return text_of(await client.call_tool("light", {}))


# How it is given


async def test_an_object_a_keyword_and_a_key_of_the_file_make_the_same(lamp: None, tmp_path: Path) -> None:
    servers = [
        ToolsetServer(kit(), extensions=[Lamp(60)]),
        ToolsetServer(kit(), lamp=Lamp(60)),  # pyright: ignore[reportCallIssue]
        ToolsetServer(kit(), lamp=60),  # pyright: ignore[reportCallIssue]
        configured(tmp_path, {"lamp": 60}),
        configured(tmp_path, {"lamp": {"watts": 60}}, lamp=True),
    ]
    for server in servers:
        async with server:
            assert await lit(server) == "60 white 1"
            assert server.extensions["lamp"].watts == 60
            assert server.extensions.get("lamp") is server.extensions["lamp"]
            assert server.extensions.get("radio") is None
            with pytest.raises(KeyError, match="radio"):
                server.extensions["radio"]


@pytest.mark.parametrize(
    ("said", "section", "watts"),
    [
        (None, {}, None),
        (None, {"lamp": True}, 40),
        (None, {"lamp": False}, None),
        (None, {"lamp": None}, None),
        (False, {"lamp": True}, None),
        (True, {}, 40),
        (True, {"lamp": False}, 40),
        (True, {"lamp": 60}, 60),
        (25, {"lamp": 60}, 25),
    ],
)
def test_a_keyword_comes_before_the_file(
    lamp: None, tmp_path: Path, said: Any, section: dict[str, Any], watts: int | None
) -> None:
    made = configured(tmp_path, section, lamp=said).extensions.get("lamp")
    assert (made and made.watts) == watts


def test_an_object_comes_before_the_file(lamp: None, tmp_path: Path) -> None:
    server = configured(tmp_path, {"lamp": 60}, extensions=[Lamp(25)])
    assert [one.watts for one in server.extensions if isinstance(one, Lamp)] == [25]


def test_a_file_turns_statistics_off_and_not_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOOLSET_STATS", str(tmp_path / "stats"))
    for section, said, there in [
        ({}, True, True),
        ({"stats": False}, True, False),
        ({"stats": True}, None, False),
        ({"stats": True}, False, False),
        ({"stats": False}, tmp_path / "own", True),
    ]:
        server = configured(tmp_path, section, stats=said)
        assert ("stats" in keys(server)) is there, (section, said)


async def written(request: SamplingRequest) -> str:
    return "written"


def test_each_of_our_own_is_an_object_and_a_keyword(tmp_path: Path) -> None:
    limits = {"*": Limits(calls=1)}
    own: dict[str, tuple[Any, list[Any]]] = {
        "suspended": (tmp_path / "w", [tmp_path / "w"]),
        "audit": (tmp_path / "a", [tmp_path / "a"]),
        "processes": (tmp_path / "p", [tmp_path / "p"]),
        "stats": (tmp_path / "s", [tmp_path / "s"]),
        "telemetry": ("prometheus", ["prometheus"]),
        "large_results": (500, []),
        "learning": (str(tmp_path / "l"), [tmp_path / "l"]),
        "limits": (limits, [limits]),
        "approvals": (tmp_path / "w", [tmp_path / "w"]),
        "journal": (tmp_path / "j", [tmp_path / "j"]),
        "registry_url": ("https://registry.example.com", ["https://registry.example.com"]),
        "sampler": (written, [written]),
        "code": (CodeMode(max_compute_seconds=5), []),
        "task_after": (20, [20]),
    }
    assert set(own) == set(_index.homes("key")) - {*_index.marked("always"), "auth"}
    for name, (said, given) in own.items():
        by_keyword = ToolsetServer(kit(), **{name: said})
        made = type(by_keyword.extensions[name])
        for server in (
            by_keyword,
            ToolsetServer(kit(), extensions=[made(*given)]),
            ToolsetServer(kit(), **{name: made(*given)}),
        ):
            assert keys(server) == [name]
            assert isinstance(server.extensions[name], made)


def test_what_is_given_twice_is_refused(lamp: None) -> None:
    with pytest.raises(DefinitionError, match="'lamp' is given twice; leave one of them out"):
        ToolsetServer(kit(), extensions=[Lamp(), Lamp()])
    with pytest.raises(DefinitionError, match="lamp= is given by keyword and among the extensions"):
        ToolsetServer(kit(), extensions=[Lamp()], lamp=25)  # pyright: ignore[reportCallIssue]
    with pytest.raises(DefinitionError, match="'io.modelcontextprotocol/ui' is given twice"):
        ToolsetServer(kit(), extensions=[Apps(), Apps()])


async def test_a_served_program_may_give_as_an_object_what_is_served_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp_toolset.serving.serve import capturing

    taken: list[ToolsetServer] = []
    token = capturing.set(taken.append)
    try:
        own = type(ToolsetServer(kit(), stats=tmp_path / "other").extensions["stats"])
        serve(kit(), extensions=[own(tmp_path / "own")])
    finally:
        capturing.reset(token)
    assert keys(taken[0]) == ["stats"]


def test_a_class_and_what_is_no_extension_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"extensions takes instances; write Lamp\(\)"):
        ToolsetServer(kit(), extensions=[Lamp])
    with pytest.raises(
        DefinitionError, match="takes subclasses of mcp_toolset.extending.Extension and .* not 5"
    ):
        ToolsetServer(kit(), extensions=[5])


def test_a_keyword_of_no_extension_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'jurnal'"):
        ToolsetServer(kit(), jurnal=True)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="unexpected keyword argument 'jurnal'"):
        serve(kit(), jurnal=True)  # pyright: ignore[reportCallIssue]


async def test_a_second_server_gets_a_copy(lamp: None) -> None:
    given = Lamp(60)
    first = ToolsetServer(kit(), name="first", extensions=[given])
    second = first.derived(toolset=kit(), name="second")
    assert first.extensions["lamp"] is given
    assert second.extensions["lamp"] is not given
    assert (first.extensions["lamp"].host.name, second.extensions["lamp"].host.name) == ("first", "second")
    async with first, second:
        assert [await lit(first), await lit(first), await lit(second)] == [
            "60 white 1",
            "60 white 2",
            "60 white 1",
        ]
    third = ToolsetServer(kit(), lamp=given).derived(toolset=kit())  # pyright: ignore[reportCallIssue]
    assert third.extensions["lamp"].watts == 60


# What it does for tools and for others


class Clock:
    """Knows the time."""

    def __init__(self, hour: int) -> None:
        self.hour = hour


class Clocks(Extension):
    """Knows the time, and shows what another one knows of it."""

    def __init__(self, hour: int) -> None:
        self.clock = Clock(hour)

    def bind(self, host: Any) -> Any:
        assert host.need(Clock) is None, "not all are bound yet"
        return super().bind(host)

    def services(self) -> Mapping[type, object]:
        return {Clock: self.clock}

    def tools(self) -> Sequence[Tool[..., Any]]:
        @tool(name=f"after_{self.clock.hour}")
        def shown() -> int:
            """Show the hour."""
            found = self.host.need(Clock)
            assert found is not None and self.host.need(Lamp) is None
            return found.hour

        return [shown]


async def test_an_extension_finds_the_service_of_another_one_the_first_in_order() -> None:
    server = ToolsetServer(kit(), extensions=[Clocks(7), Clocks(9)])
    async with server:
        assert [(await server.call_tool(name)).text for name in ("after_7", "after_9")] == ["7", "7"]


class Board(Extension):
    """Keeps the processes of callers in its own way."""

    def services(self) -> Mapping[type, object]:
        return {ProcessesOf: self}

    def owned_by(self, context: ToolContext) -> Any:
        return f"those that {context.name} has on the board"


async def test_a_tool_finds_the_service_of_any_extension_by_its_type() -> None:
    @tool
    async def look(context: ToolContext) -> str:
        """Look."""
        return str(context.processes)

    server = ToolsetServer(Toolset(look), capabilities=["processes"], extensions=[Board()])
    async with server:
        assert (await server.call_tool("look")).text == "those that look has on the board"


# The order


class Noting(Extension):
    """Notes what it is told, under its name."""

    def __init__(self, name: str, noted: list[str]) -> None:
        self.name, self.noted = name, noted

    def intercept(self, method: str, answer: Any) -> Any:
        if method != "tools/call":
            return answer

        async def around(request: Any) -> dict[str, Any]:
            self.noted.append(f"intercept {self.name}")
            result = await answer(request)
            self.noted.append(f"{self.name} intercepted")
            return result

        return around

    def sent(self, call: ToolCall, context: ToolContext) -> ToolCall:
        self.noted.append(f"sent {self.name}")
        return call

    def answered(self, result: ToolResult, call: ToolCall, context: ToolContext) -> ToolResult:
        self.noted.append(f"answered {self.name}")
        return result

    def guard(self) -> Any:
        return self

    def gate(self, binding: Any) -> Any:
        return None

    def layers(self, binding: Any) -> Any:
        async def layer(call: ToolCall, context: ToolContext, next: Any) -> ToolResult:
            self.noted.append(f"guard {self.name}")
            result = await next()
            self.noted.append(f"{self.name} guarded")
            return result

        return [layer]

    @asynccontextmanager
    async def _block(self, what: str) -> AsyncGenerator[None]:
        self.noted.append(f"{what} {self.name}")
        yield
        self.noted.append(f"{self.name} {what}")

    def lifespan(self) -> Any:
        return self._block("lifespan")

    def running(self) -> Any:
        return self._block("running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Colours(Table):
    """What a file says of one pattern."""

    colour: str = key({"type": "str"}, "a colour", "white", meaning="Colour.", example="red")
    callers: Any = key({"type": "any"}, "a list", alias="for", meaning="Other ones.", example=[])


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomsSettings(Settings):
    """What a file says of the light in rooms, by pattern."""

    says: ClassVar = Meaning("The light.", {"hall": {"colour": "red"}})
    by_pattern: ClassVar = "rooms"
    below_pattern: ClassVar = Colours
    adds: ClassVar = True

    rooms: Mapping[str, Any] = key({"type": "dict"}, 'an object such as {"hall": {}}', {})

    def for_callers(self, place: Place) -> Iterator[tuple[Any, Place]]:
        for room, said in self.rooms.items():
            for number, one in enumerate(said.get("for", ())):
                yield SimpleNamespace(**one), place.at(room, "for", number)


class Rooms(Extension):
    """Has a guard for each room of each file."""

    key = "lamp"
    Settings = RoomsSettings

    def __init__(self, rooms: Any = None) -> None:
        self.noted: list[str] = []
        self._made: dict[str, Noting] = {}

    def guard(self) -> Any:
        files = cast("list[Any]", [said for said, _ in self.host.stated_by_file("lamp") if said])
        rooms = [room for said in files for room in said.rooms]
        return tuple(self._made.setdefault(room, Noting(room, self.noted)) for room in rooms)


async def test_keys_of_patterns_add_up_over_files_and_each_may_have_a_guard(
    lamp: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["lamp_of_a_test"], "Lamp", Rooms)
    toolsets: list[Toolset] = []
    for name in ("hall", "attic"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, {"lamp": {name: {"colour": "red"}}})
        toolsets.append(load_toolset(load_config(tmp_path / name / "mcp.json")))
    server = ToolsetServer(Toolset(echo, *toolsets))
    async with connected(server, "auto") as client:
        await client.call_tool("echo", {"text": "a"})
    noted = server.extensions["lamp"].noted
    assert [one for one in noted if one.startswith("guard")] == ["guard hall", "guard attic"]
    for said, told in ((5, "must be an object such as"), ({"hall": 5}, "")):
        write(tmp_path, {"lamp": said})
        if told:
            with pytest.raises(ConfigError, match=f"toolset.lamp: {told}"):
                load_config(tmp_path / "mcp.json")
    schema = parts()["lamp"].schema["properties"]
    assert {*schema} == {"colour", "for"} and {"colour", "roles"} <= {*schema["for"]["items"]["properties"]}


def test_what_is_for_some_callers_needs_somebody_who_says_who_calls(
    lamp: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["lamp_of_a_test"], "Lamp", Rooms)
    some = {"lamp": {"hall": {"for": [{"principals": ["roberd"], "colour": "blue"}]}}}
    with pytest.raises(ConfigError, match=r"toolset\.lamp\.hall\.for: is for some callers, and nothing says"):
        configured(tmp_path, some).http_app()
    token = {"auth": {"tokens": {"robert": {"token": "${TOKEN}"}}}}
    with pytest.raises(ConfigError, match=r"principals\[0\]: no token has it; did you mean `robert`"):
        configured(tmp_path, {**some, **token})


async def test_limits_refuse_before_the_guards_of_extensions_are_asked() -> None:
    noted: list[str] = []
    server = ToolsetServer(kit(), extensions=[Noting("a", noted)], limits={"*": Limits(calls=1)})
    async with connected(server, "auto") as client:
        assert not (await client.call_tool("echo", {"text": "a"})).is_error
        assert (await client.call_tool("echo", {"text": "a"})).is_error
    assert noted.count("guard a") == 1


class Lenient(Extension):
    """Applies policies in a way of its own: what would be asked about is noted, and allowed."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def guard_of(self, policy: Policy, record: Any) -> Any:
        lenient = self

        class Allowing(AskingGuard):
            async def unasked(self, why: str, rule: str, binding: Any, *rest: Any) -> ToolResult:
                lenient.noted.append(f"{binding.name}: {rule}")
                return await rest[-1]()

        return Allowing(policy, record=record)


async def test_an_extension_decides_about_calls_that_a_policy_asks_about() -> None:
    lenient, policy = Lenient(), Policy(ask=["echo"])
    given: Any
    for given, runs in (([], False), ([lenient], True)):
        server = ToolsetServer(kit(), extensions=given, policy=policy, approvals=False)
        async with connected(server, "auto") as client:
            told = await client.call_tool("echo", {"text": "a"})
            assert told.is_error is not runs
            assert runs or "needs an approval" in text_of(told)
        assert server.extensions.get("approvals") is None
    assert lenient.noted == ["echo: policy.ask: echo"]


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_the_first_of_the_list_is_the_outermost_in_each_stage(order: str) -> None:
    noted: list[str] = []

    @tool
    def note() -> str:
        """Note it."""
        noted.append("tool")
        return "noted"

    first, last = order
    server = ToolsetServer(Toolset(note), extensions=[Noting(name, noted) for name in order])
    async with connected(server, "auto") as client:
        noted.clear()
        await client.call_tool("note", {})
        called = noted.copy()
    assert called == [
        f"intercept {first}",
        f"intercept {last}",
        f"sent {first}",
        f"sent {last}",
        f"guard {first}",
        f"guard {last}",
        "tool",
        f"{last} guarded",
        f"{first} guarded",
        f"answered {last}",
        f"answered {first}",
        f"{last} intercepted",
        f"{first} intercepted",
    ]


async def test_lifespans_are_around_the_mounts_and_what_runs_is_within() -> None:
    noted: list[str] = []

    @asynccontextmanager
    async def mounted(server: Any) -> AsyncGenerator[None]:
        noted.append("mount")
        try:
            yield
        finally:
            noted.append("mount closed")

    mount = RemoteToolset(Server("desk", lifespan=mounted), name="desk")
    server = ToolsetServer(Toolset(mount), extensions=[Noting(name, noted) for name in "ab"])
    with anyio.fail_after(30):
        async with server:
            await server.settled()
            assert noted == ["lifespan a", "lifespan b", "mount", "running a", "running b"]
            noted.clear()
    assert noted == ["b running", "a running", "mount closed", "b lifespan", "a lifespan"]


async def functions_of_a_call(server: ToolsetServer) -> int:
    """The Python functions that a warm call runs, without what else the loop has to do."""
    counts: list[int] = []

    def count(frame: Any, event: str, argument: Any) -> None:
        counts[-1] += event == "call"

    async with server:
        caller = Caller(server, None)
        before = sys.getprofile()
        for _ in range(10):
            counts.append(0)
            sys.setprofile(count)
            try:
                assert "error" not in await caller.call("echo", text="x")
            finally:
                sys.setprofile(before)
    return min(counts)


async def test_a_slot_that_nothing_overrides_costs_a_call_nothing() -> None:
    await functions_of_a_call(ToolsetServer(kit()))  # what a process does once is done
    without = await functions_of_a_call(ToolsetServer(kit()))
    inert = [Extension() for _ in range(5)]
    assert await functions_of_a_call(ToolsetServer(kit(), extensions=inert)) == without
    sending = await functions_of_a_call(ToolsetServer(kit(), extensions=[Refusing()]))
    assert without < sending <= without + 5


class Parking(Extension):
    """Answers calls itself while it is full, and has a method of the protocol."""

    def __init__(self) -> None:
        self.is_full = False
        self.asked = 0

    def answer(self, answer: Any) -> Any:
        self.asked += 1
        return self._parked if self.is_full else answer

    async def _parked(self, request: Any) -> dict[str, Any]:
        return {"resultType": "complete", "content": [{"type": "text", "text": "parked"}]}

    def methods(self) -> Mapping[str, Any]:
        async def leave(request: Any) -> dict[str, Any]:
            return {"left": request.params["car"]}

        return {"cars/leave": leave, "tools/list": leave}


async def test_what_answers_calls_is_asked_again_with_the_tools_and_costs_nothing_until_then() -> None:
    await functions_of_a_call(ToolsetServer(kit()))  # what a process does once is done
    without = await functions_of_a_call(ToolsetServer(kit()))
    noted: list[str] = []
    server = ToolsetServer(kit(), extensions=[parking := Parking(), Noting("a", noted)])
    assert await functions_of_a_call(ToolsetServer(kit(), extensions=[Parking()])) == without
    async with connected(server, "auto") as client:
        assert text_of(await client.call_tool("echo", {"text": "x"})) == "x"
        parking.is_full = True
        assert text_of(await client.call_tool("echo", {"text": "x"})) == "x"
        noted.clear()
        await server.settled()
        assert text_of(await client.call_tool("echo", {"text": "x"})) == "parked"
        assert noted == ["intercept a", "a intercepted"]


async def test_a_method_of_the_protocol_is_answered_and_none_of_the_server_s_is_replaced() -> None:
    async with ToolsetServer(kit(), extensions=[Parking()]) as server:
        caller = Caller(server, None)
        assert (await caller.ask("cars/leave", {"car": "mini"}))["left"] == "mini"
        assert "tools" in await caller.ask("tools/list")


# What it adds


async def test_its_tools_obey_policy_and_limits(lamp: None) -> None:
    hidden = ToolsetServer(kit(), extensions=[Lamp()], policy=Policy(deny=["light"]))
    async with connected(hidden, "auto") as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["echo"]
        with pytest.raises(MCPError, match="Unknown tool: light"):
            await client.call_tool("light", {})
    assert hidden.extensions["lamp"].lit == 0
    limited = ToolsetServer(kit(), extensions=[Lamp()], limits={"light": Limits(calls=1)})
    async with connected(limited, "auto") as client:
        assert not (await client.call_tool("light", {})).is_error
        assert (await client.call_tool("light", {})).is_error
        assert limited.extensions["lamp"].lit == 1


class Drawer(Extension):
    """Has a paper for each caller."""

    def read_resource(self, uri: str, context: ToolContext) -> list[dict[str, Any]] | None:
        if not uri.startswith("paper://"):
            return None
        if context.identity is None or not uri.endswith(context.identity.key):
            raise LookupError("Resource not found")
        return [{"uri": uri, "mimeType": "text/plain", "text": f"for {context.identity.key}"}]


class Later(Drawer):
    """Has to fetch its paper."""

    def read_resource(self, uri: str, context: ToolContext) -> Any:
        return self._fetched(uri) if uri == "later://paper" else None

    async def _fetched(self, uri: str) -> list[dict[str, Any]]:
        return [{"uri": uri, "text": "fetched"}]


async def test_an_unlisted_resource_is_read_by_its_address_alone() -> None:
    server = ToolsetServer(kit(), extensions=[Drawer(), Later()])
    ann = Identity("ann")
    with anyio.fail_after(30):
        async with server:
            for version in (MODERN, "2025-11-25"):
                caller = Caller(server, ann, version)
                opened = await caller.open()
                assert "resources" in opened["capabilities"]
                read = await caller.ask("resources/read", {"uri": "paper://ann"})
                assert read["contents"][0]["text"] == "for ann"
                fetched = await caller.ask("resources/read", {"uri": "later://paper"})
                assert fetched["contents"][0]["text"] == "fetched"
                for uri in ("paper://bob", "other://x"):
                    assert "not found" in str(await caller.ask("resources/read", {"uri": uri})).lower()
                assert await caller.listed("resources/list", "resources", "uri") == []


class Watching(Extension):
    """Keeps reports."""

    def __init__(self) -> None:
        self.reports: list[CallReport] = []

    def observer(self) -> Any:
        return self.reports.append


async def test_an_observer_is_told_of_each_call() -> None:
    watching = Watching()
    server = ToolsetServer(kit(), extensions=[watching])
    async with connected(server, "auto") as client:
        await client.call_tool("echo", {"text": "x"})
        await server.call_tool("echo", {"text": "y"})
    assert [(one.tool, one.outcome) for one in watching.reports] == [("echo", "result")] * 2


class Hearing(Extension):
    """Listens to searches."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def listener(self) -> Any:
        return self

    def bonus(self, context: ToolContext, query: str) -> Mapping[str, float]:
        return {}

    def searched(self, context: ToolContext, query: str, tools: Sequence[str]) -> None:
        self.heard.append(f"searched {query}")

    def resolved(self, context: ToolContext, tool: str) -> None:
        self.heard.append(f"resolved {tool}")

    def called(self, context: ToolContext, tool: str) -> None:
        self.heard.append(f"called {tool}")


class Notice(Extension):
    """A page that tells a caller of mounted servers and tools, and one that everybody may read."""

    key = "board"

    def http_pages(self) -> dict[str, HttpPage]:
        return {"/board": HttpPage(self.told), "/door": HttpPage(lambda *_: (b"open", "text/plain"), True)}

    def told(self, identity: Identity | None, accepted: str) -> tuple[bytes, str]:
        sees, every = self.host.seen_by(identity), self.host.statuses()
        seen = [name for name, one in every.items() if one.is_up and sees(name, "")]
        tools = [f"{one}_echo" for one in every if sees(one, f"{one}_echo") and sees(one, "echo")]
        return json.dumps([accepted, seen, tools]).encode(), "application/json"


async def test_pages_tell_a_caller_what_exists_for_it_and_anyone_what_is_public() -> None:
    mounts = [
        RemoteToolset(ToolsetServer(kit()).lowlevel, name=name).prefixed(name) for name in ("work", "rest")
    ]
    server = ToolsetServer(
        Toolset(echo, *mounts), extensions=[Notice()], auth=Callers(), policy=Policy(deny=["rest/*"])
    )
    probe, alice = {"Host": "10.1.2.3"}, {"Authorization": "Bearer token-of-alice", "Accept": "text/x"}
    async with served(server) as url, httpx2.AsyncClient(timeout=30) as http:
        await server.settled()
        refused = [
            (await http.get(f"{url}/board")).status_code,
            (await http.get(f"{url}/board", headers=probe)).status_code,
            (await http.post(f"{url}/door")).status_code,
            (await http.get(f"{url}/door", headers={"Origin": "https://evil.example"})).status_code,
        ]
        told = await http.get(f"{url}/board", headers=alice)
        opened = await http.get(f"{url}/door", headers=probe)
    assert refused == [401, 401, 405, 403]
    assert told.json() == ["text/x", ["work"], ["work_echo"]]
    assert told.headers["content-type"] == "application/json"
    assert (opened.text, opened.headers["cache-control"]) == ("open", "no-store")


async def test_without_a_policy_every_name_is_seen_also_of_what_is_gone() -> None:
    server = ToolsetServer(kit(), extensions=[board := Notice()])
    async with server:
        assert board.host.seen_by(None)("gone", "gone_tool")


async def test_a_method_that_the_server_does_not_know_is_intercepted_as_well() -> None:
    class Listening(Extension):
        def intercept(self, method: str, answer: Any) -> Any:
            async def heard(request: Any) -> dict[str, Any]:
                seen.append((method, request.method))
                return await answer(request)

            return heard

    seen: list[tuple[str, str]] = []
    async with ToolsetServer(kit(), extensions=[Listening()]) as server:
        assert "error" in await Caller(server, None).ask("lamps/dim")
    assert seen == [("", "lamps/dim")]


def test_a_derived_server_can_leave_out_what_was_given_as_an_object(lamp: None) -> None:
    server = ToolsetServer(kit(), extensions=[Lamp(), Notice()])
    assert keys(server.derived(lamp=False)) == ["board"]  # pyright: ignore[reportCallIssue]
    assert keys(server.derived(name="other")) == ["lamp", "board"]


async def test_a_listener_hears_of_searches_and_one_server_has_one() -> None:
    hearing = Hearing()
    async with connected(ToolsetServer(kit().deferred(), extensions=[hearing]), "auto") as client:
        await client.call_tool("search_tools", {"query": "say again"})
        found = await client.call_tool("resolve_tools", {"ids": ["echo"]})
        (granted,) = (found.structured_content or {})["tools"]
        await client.call_tool("call_tool", {"grant": granted["grant"], "arguments": {"text": "x"}})
    assert [one.partition(" ")[0] for one in hearing.heard] == ["searched", "resolved", "called"]
    with pytest.raises(DefinitionError, match="Hearing and learning both listen to searches; leave one"):
        ToolsetServer(kit(), extensions=[Hearing()], learning=True)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_identifier_is_advertised_with_its_settings(mode: str) -> None:
    async with connected(ToolsetServer(kit(), extensions=[Lamp(60)]), mode) as client:
        assert client.server_capabilities.extensions is not None
        assert client.server_capabilities.extensions["com.example/lamp"] == {"watts": 60}
    async with connected(ToolsetServer(kit(), extensions=[Watching()]), mode) as client:
        assert "com.example/lamp" not in (client.server_capabilities.extensions or {})


class Refusing(Extension):
    """Refuses what it does not like."""

    def sent(self, call: ToolCall, context: ToolContext) -> ToolCall:
        if call.arguments["text"] == "bad":
            raise CallError("say something better")
        return call


async def test_a_call_that_is_refused_as_sent_is_answered_with_the_error() -> None:
    async with connected(ToolsetServer(kit(), extensions=[Refusing()]), "auto") as client:
        assert text_of(await client.call_tool("echo", {"text": "good"})) == "good"
        refused = await client.call_tool("echo", {"text": "bad"})
        assert refused.is_error and text_of(refused) == "say something better"


async def test_calls_of_code_are_told_as_sent_and_not_as_answered() -> None:
    noted: list[str] = []

    class Naming(Extension):
        def sent(self, call: ToolCall, context: ToolContext) -> ToolCall:
            noted.append(f"sent {call.name}")
            return call

        def answered(self, result: ToolResult, call: ToolCall, context: ToolContext) -> ToolResult:
            noted.append(f"answered {call.name}")
            return result

    async with code_client(kit(), "echo", extensions=[Naming()]) as (client, _):
        noted.clear()
        assert await client.value("await echo(text='x')") == "x"
    assert noted == ["sent run_code", "sent call_tool", "answered run_code"]


class Twice(Extension):
    """Calls a granted tool twice for its caller."""

    def catalog_tools(self) -> Sequence[Tool[..., Any]]:
        @tool(title="Call twice", read_only=True)
        async def call_twice(context: ToolContext, grant: str, text: str) -> str:
            """Call a tool twice."""
            granted = await self.host.in_scope([grant], context)
            arguments = {"grant": granted["echo"], "arguments": {"text": text}}
            done = [await self.host.call(ToolCall("call_tool", arguments, one), context) for one in "ab"]
            return " ".join(one.text for one in done)

        return [call_twice]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_beside_those_that_search_calls_what_its_caller_was_granted(mode: str) -> None:
    noted: list[str] = []

    class Naming(Extension):
        def sent(self, call: ToolCall, context: ToolContext) -> ToolCall:
            noted.append(f"sent {call.name}")
            return call

        def answered(self, result: ToolResult, call: ToolCall, context: ToolContext) -> ToolResult:
            noted.append(f"answered {call.name}")
            return result

    server = ToolsetServer(kit().deferred(), extensions=[Twice(), Naming()])
    async with connected(server, mode) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
        resolved: Any = (await client.call_tool("resolve_tools", {"ids": ["echo"]})).structured_content
        noted.clear()
        asked = {"grant": resolved["tools"][0]["grant"], "text": "x"}
        assert text_of(await client.call_tool("call_twice", asked)) == "x x"
        assert noted == ["sent call_twice", "sent call_tool", "sent call_tool", "answered call_twice"]
        stranger = await client.call_tool("call_twice", {**asked, "grant": "echo.none"})
        assert stranger.is_error
    assert [*listed][4:] == ["call_twice"]
    hints = listed["call_twice"].annotations
    assert hints is not None and hints.title == "Call twice"


async def test_a_tool_beside_those_that_search_is_not_listed_without_them_and_its_name_is_taken() -> None:
    async with connected(ToolsetServer(kit(), extensions=[Twice()]), "auto") as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["echo"]
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("call_twice", {"grant": "g", "text": "x"})
    with pytest.raises(NameConflictError, match="call_twice"):
        ToolsetServer(kit().renamed({"echo": "call_twice"}).deferred(), extensions=[Twice()])


async def test_the_store_of_calls_that_wait_is_a_service(tmp_path: Path) -> None:
    told: list[object] = []

    class Keeping(Extension):
        def tools(self) -> Sequence[Tool[..., Any]]:
            told.append(self.host.need(SuspendedStore))
            return ()

    ToolsetServer(kit(), suspended=tmp_path / "s.sqlite3", extensions=[Keeping()])
    ToolsetServer(kit(), extensions=[Keeping()])
    assert isinstance(told[0], SuspendedStore) and told[1] is None


def test_a_verb_turns_on_only_what_is_for_deferred_tools() -> None:
    assert keys(ToolsetServer(Toolset(kit().deferred(code=True).prefixed("a")))) == ["code"]
    assert keys(ToolsetServer(kit().deferred(code=False))) == []
    assert keys(ToolsetServer(kit().deferred(code=True), code=False)) == []
    for wrong in ("journal", "cdoe"):
        given: Any = {wrong: True}
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{wrong}'"):
            kit().deferred(**given)
    with pytest.raises(DefinitionError, match="code takes True, False or CodeMode"):
        ToolsetServer(kit(), code=5)  # pyright: ignore[reportArgumentType]


# The file


async def test_a_live_key_holds_at_once_and_another_one_at_the_next_start(lamp: None, tmp_path: Path) -> None:
    async with configured(tmp_path, {"lamp": {"watts": 60, "colour": "red"}}) as server:
        assert await lit(server) == "60 red 1"
        write(tmp_path, {"lamp": {"watts": 60, "colour": "blue"}})
        assert (await server.reload()).at_restart == ()
        assert await lit(server) == "60 blue 2"
        write(tmp_path, {"lamp": {"watts": 100, "colour": "blue"}})
        assert (await server.reload()).at_restart == ("lamp",)
        assert await lit(server) == "60 blue 3"
        write(tmp_path, {})
        assert (await server.reload()).at_restart == ("lamp",)
        write(tmp_path, {"lamp": {"wats": 5}})
        with pytest.raises(ConfigError, match="did you mean `watts`"):
            await server.reload()
        assert await lit(server) == "60 red 4"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadeOfServer(ServerSettings):
    """What an entry says of shades."""

    shade: str = key({"type": "str"}, "a word", meaning="What its tools are called.", example="dark")


class Shade(Extension):
    """Puts a word before the names of the tools of a mounted server."""

    key = "shades"

    @classmethod
    def mounted(cls, server: str, stated: ServerSettings, tools: Toolset) -> Toolset:
        assert isinstance(stated, ShadeOfServer) and server == "desk"
        return tools.prefixed(stated.shade)


async def test_an_entry_of_a_server_says_what_becomes_of_its_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("settings")
    module.SETTINGS, module.SERVER_SETTINGS = None, ShadeOfServer  # pyright: ignore[reportAttributeAccessIssue]
    extension = ModuleType("extension")
    extension.EXTENSION = Shade  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "mcp_toolset.extensions.shades.settings", module)
    monkeypatch.setitem(sys.modules, "mcp_toolset.extensions.shades.extension", extension)
    row = {"key": "shades", "marks": "stated", "entry": "shade"}
    with indexed({**_index.rows(), "shades": row}):
        await an_entry_says(tmp_path)


async def an_entry_says(tmp_path: Path) -> None:
    program = tmp_path / "desk.py"
    program.write_text(
        "from mcp_toolset import serve, tool\n@tool\ndef knock() -> str:\n    '''Knock.'''\n    return 'in'\n"
        "serve(knock, stats=False)\n"
    )
    entry = {"command": sys.executable, "args": [str(program)], "prefix": False, "shade": "dark"}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"desk": entry}}))
    server = ToolsetServer(load_toolset(load_config(tmp_path / "mcp.json")))
    with anyio.fail_after(60):
        async with server:
            await server.settled()
            assert [each["name"] for each in server.tools()] == ["dark_knock"]
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"desk": {**entry, "shade": 5.5}}}))
    config = load_config(tmp_path / "mcp.json")
    assert [one.extensions["shades"].shade for one in config.servers] == ["5.5"]
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"desk": {**entry, "shade": []}}}))
    assert "write `shade` as a word" in load_config(tmp_path / "mcp.json").servers[0].fault


def test_settings_of_an_entry_say_whether_they_change_how_a_server_is_reached(tmp_path: Path) -> None:
    def reached(**said: Any) -> ServerConfig:
        entry = {"url": "https://up.example/mcp", **said}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"up": entry}}))
        config = load_config(tmp_path / "mcp.json").servers[0]
        assert not config.fault and config.extensions
        return config.reached()

    judged = {"limits": {"*": {"calls": 1}}, "retries": 2}
    plain = reached(**judged)
    assert plain == reached(retries=3)
    for other in (
        {"auth": "oauth"},
        {"oauth": {"clientId": "desk"}},
        {"forward": {"X-User": "identity.name"}},
        {"forward_authorization": True},
        {"single": True},
    ):
        assert reached(**other) != plain
        assert reached(**other) == reached(**other, **judged)


# Extensions of the SDK

PAGE = "ui://clock/app.html"


def apps() -> Apps:
    made = Apps()

    @made.tool(
        resource_uri=PAGE,
        visibility=["model"],
        meta={"com.example/x": 1},
        title="Clock",
        annotations=ToolAnnotations(read_only_hint=True),
    )
    def clock(zone: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Show the time."""
        return f"noon in {zone}"

    made.add_html_resource(PAGE, "<p>noon</p>", prefers_border=True)
    return made


@pytest.mark.parametrize("mode", ERAS)
async def test_apps_of_the_sdk_are_served(mode: str) -> None:
    async with connected(ToolsetServer(kit(), extensions=[Lamp(), apps()]), mode) as client:
        advertised = client.server_capabilities.extensions or {}
        assert {"com.example/lamp", "io.modelcontextprotocol/ui"} <= set(advertised)
        (clock,) = [each for each in (await client.list_tools()).tools if each.name == "clock"]
        assert clock.meta is not None
        assert clock.meta["ui"] == {"resourceUri": PAGE, "visibility": ["model"]}
        assert clock.meta["com.example/x"] == 1
        assert clock.title == "Clock" and clock.description == "Show the time."
        assert clock.annotations is not None and clock.annotations.read_only_hint is True
        assert text_of(await client.call_tool("clock", {"zone": "Ulm"})) == "noon in Ulm"
        (page,) = (await client.read_resource(PAGE)).contents
        assert page.model_dump(by_alias=True, exclude_none=True) == {
            "uri": PAGE,
            "mimeType": "text/html;profile=mcp-app",
            "text": "<p>noon</p>",
            "_meta": {"ui": {"prefersBorder": True}},
        }


@pytest.mark.parametrize("mode", ERAS)
async def test_tools_of_apps_and_their_pages_obey_the_policy(mode: str) -> None:
    server = ToolsetServer(kit(), extensions=[apps()], policy=Policy(deny=["clock"]))
    async with connected(server, mode) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["echo"]
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource(PAGE)


class Plain(SdkExtension):
    """Adds nothing."""

    identifier = "com.example/plain"


async def test_an_extension_of_the_sdk_without_pages_promises_no_resources() -> None:
    async with connected(ToolsetServer(kit(), extensions=[Plain()]), "auto") as client:
        assert client.server_capabilities.resources is None
        assert client.server_capabilities.extensions == {"com.example/plain": {}}


def wrong(**options: Any) -> Apps:
    made = Apps()

    @made.tool(resource_uri=PAGE, **options)
    def clock(zone: str, ctx: Context[Any] | None = None) -> str:  # pyright: ignore[reportUnusedFunction]
        """Show the time."""

        return zone

    made.add_html_resource(PAGE, "")
    return made


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "tool clock takes the SDK's Context, .* take a mcp_toolset.ToolContext"),
        ({"structured_output": False}, "tool clock has structured_output=, .* leave it out"),
    ],
)
def test_a_tool_of_the_sdk_that_cannot_be_served_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        ToolsetServer(kit(), extensions=[wrong(**options)])


class Doing(RequestParams):
    """What is to be done."""

    times: int


class Did(Result):
    """What was done."""

    did: int


class Methods(SdkExtension):
    """Answers methods of its own, one of them to modern clients only."""

    identifier = "com.example/methods"

    def methods(self) -> Sequence[MethodBinding]:
        async def answer(context: Any, params: Any) -> dict[str, Any]:
            return {"did": params.times}

        modern = frozenset({"2026-07-28"})
        return [
            MethodBinding("com.example/do", Doing, answer),
            MethodBinding("com.example/later", Doing, answer, protocol_versions=modern),
        ]


class Intercepting(SdkExtension):
    """Notes calls, answers one in the place of its tool, and refuses another."""

    identifier = "com.example/around"

    def __init__(self, name: str) -> None:
        self.identifier = f"com.example/{name}"
        self.name = name

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: Any, call_next: Callable[..., Awaitable[Any]]
    ) -> Any:
        text = str((params.arguments or {}).get("text", ""))
        if text == "short":
            return CallToolResult(content=[TextContent(type="text", text=f"{self.name} answers")])
        if text == "no":
            raise MCPError(-32000, f"{self.name} refuses")
        result = dict(await call_next(ctx))
        result["content"] = [*result["content"], {"type": "text", "text": self.name}]
        return result


@asynccontextmanager
async def over_http(server: ToolsetServer, mode: Any) -> AsyncGenerator[Client]:
    async with served(server) as url, Client(f"{url}/mcp", mode=mode) as client:
        yield client


DOORS = [connected, over_http]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("door", DOORS, ids=["memory", "http"])
async def test_methods_of_an_extension_of_the_sdk_are_answered(door: Any, mode: str) -> None:
    async with door(ToolsetServer(kit(), extensions=[Methods()]), mode) as client:
        do = Request[Doing, str](method="com.example/do", params=Doing(times=3))
        later = Request[Doing, str](method="com.example/later", params=Doing(times=4))
        assert (await client.session.send_request(do, Did)).did == 3
        if mode == "legacy":
            with pytest.raises(MCPError, match="Method not found"):
                await client.session.send_request(later, Did)
        else:
            assert (await client.session.send_request(later, Did)).did == 4
        assert text_of(await client.call_tool("echo", {"text": "a"})) == "a"


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("door", DOORS, ids=["memory", "http"])
async def test_an_extension_of_the_sdk_stands_around_calls_the_first_outermost(door: Any, mode: str) -> None:
    server = ToolsetServer(kit(), extensions=[Intercepting("outer"), Intercepting("inner")])
    for _ in range(2):
        async with door(server, mode) as client:
            answered = await client.call_tool("echo", {"text": "a"})
            assert [each.model_dump()["text"] for each in answered.content] == ["a", "inner", "outer"]
            assert text_of(await client.call_tool("echo", {"text": "short"})) == "outer answers"
            with pytest.raises(MCPError, match="outer refuses"):
                await client.call_tool("echo", {"text": "no"})


class Weighed(MountExtension):
    """Says before which other one it stands, and sends a call twice if it is told so."""

    def __init__(self, name: str, told: list[str], times: int = 1) -> None:
        self.name, self.told, self.times = name, told, times

    @property
    def reason(self) -> str:
        return self.name

    async def around(
        self, tool: ToolDefinition, context: ToolContext, send: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        for _ in range(self.times):
            self.told.append(f"{self.name} {tool.name}")
            result = await send()
        return result


async def test_parts_of_extensions_stand_around_calls_of_a_mount_the_first_outermost() -> None:
    told = list[str]()

    @tool
    def weigh() -> str:
        """Weigh something."""
        told.append("tool")
        return "heavy"

    mount = RemoteToolset(ToolsetServer(Toolset(weigh)), name="scales")
    mount.connection.extensions = (Weighed("outer", told), Weighed("inner", told, 2))
    with anyio.fail_after(60):
        async with ToolsetServer(Toolset(mount)) as server:
            assert (await server.call_tool("weigh")).text == "heavy"
            assert told == ["outer weigh", "inner weigh", "tool", "inner weigh", "tool"]
            assert (mount.status.state, mount.status.reason) == ("ready", "outer")


class MountsHeard(ClientExtension):
    """Declares itself to mounted servers, and hears what they notify."""

    identifier = "com.example/hearing"

    def __init__(self) -> None:
        self.heard = list[int]()
        self.told = anyio.Event()

    def settings(self) -> dict[str, Any]:
        return {"ears": 2}

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        async def hear(params: Doing) -> None:
            self.heard.append(params.times)
            self.told.set()

        return [NotificationBinding(method="notifications/com.example/did", params_type=Doing, handler=hear)]


class Claiming(ClientExtension):
    """Claims results."""

    identifier = "com.example/claiming"

    def claims(self) -> Sequence[Any]:
        return ["a claim"]


TELLING = """
import anyio, mcp_types as t
from typing import Any
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

class Did(t.NotificationParams):
    times: int

async def called(ctx: Any, params: Any) -> t.CallToolResult:
    did = t.Notification[Did, str](method="notifications/com.example/did", params=Did(times=3))
    await ctx.session.send_notification(did, related_request_id=ctx.request_id)
    declared = ctx.session.client_capabilities
    said = "nothing" if declared is None else declared.model_dump_json(by_alias=True, exclude_none=True)
    return t.CallToolResult(content=[t.TextContent(type="text", text=said)])

async def listed(ctx: Any, params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name="tell", input_schema={"type": "object"})])

async def main() -> None:
    server = Server("telling", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

anyio.run(main)
"""


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
@pytest.mark.parametrize("mode", ERAS)
async def test_an_extension_of_the_sdk_s_client_side_is_declared_to_mounts_and_hears_them(
    mode: str, protocol: Any
) -> None:
    hearing = MountsHeard()
    mount = RemoteToolset([sys.executable, "-c", TELLING], name="telling", protocol=protocol)
    server = ToolsetServer(Toolset(mount), extensions=[hearing])
    with anyio.fail_after(60):
        async with connected(server, mode) as client:
            assert "com.example/hearing" not in (client.server_capabilities.extensions or {})
            declared = json.loads(text_of(await client.call_tool("tell", {})))
            assert declared["extensions"]["com.example/hearing"] == {"ears": 2}
            await hearing.told.wait()
    assert hearing.heard == [3]


def test_an_extension_of_the_sdk_that_claims_results_is_refused_with_the_mend() -> None:
    with pytest.raises(DefinitionError, match="com.example/claiming claims results of calls.*claims"):
        ToolsetServer(kit(), extensions=[Claiming()])


class Declaring(Extension):
    """Declares something to mounted servers."""

    key = "declaring"

    def declared(self) -> DeclaredToMounts:
        return DeclaredToMounts("com.example/hearing", {"ears": 1})


class Advertised(Lamp):
    """The identifier of another one."""

    key = "advertised"
    identifier = "com.example/lamp"


@pytest.mark.parametrize("other", [MountsHeard, Declaring])
async def test_two_extensions_do_not_declare_one_identifier_to_mounts(other: type[Any]) -> None:
    server = ToolsetServer(kit(), extensions=[MountsHeard(), other()])
    with pytest.raises(DefinitionError, match="'com.example/hearing' is given twice; leave one of them out"):
        async with server:
            raise AssertionError("it was opened")


def test_an_extension_by_keyword_does_not_have_the_identifier_of_another_one(lamp: None) -> None:
    with pytest.raises(DefinitionError, match="'com.example/lamp' is given twice; leave one of them out"):
        ToolsetServer(kit(), extensions=[Advertised()], lamp=60)  # pyright: ignore[reportCallIssue]
