"""Random steps of clients of many profiles over one hub, with reloads, that look for what crosses.

    python -m tests.extensions.profiles.steps [--steps 10000] [--profiles 100] [--servers 20] [--seed N]

Each server is a process whose every text has its mark, and each profile has texts of its own. A model says
what each profile has. After each step of a client, everything that it was sent is searched for the marks of
servers and tools that its profile does not have, and for texts of other profiles; lists have to be those of
the model. A call of what is hidden has to fail as for what does not exist, and nobody may hear of a change of
another profile's lists. Prints the seed, the steps by kind, and each crossing; exits with 1 after a crossing.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from tests.support.configured import NEWS, Folder
from tests.support.piped import handshake
from tests.support.served import listening

TOOLS = 5
WORKERS = 6
OPEN = 30
LATER = 60.0
"""Seconds in which a process has read the file again, while this machine is busy."""

SOON = 5.0
"""Seconds after a reload in which clients are told of it."""

KINDS = ("http-legacy", "http-modern", "sse")
MARK = re.compile(r"srv\d\dq")
TOOL = re.compile(r"(srv\d\dq)[_/](t\dx)")
OWN = re.compile(r"(?:al|only)-?p\d\d\d\b|al_p\d\d\d_\d+")
"""Texts of one profile: the names that it gives, and its instructions."""


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def server_name(number: int) -> str:
    return f"srv{number:02}q"


@dataclass
class Model:
    """What a profile has at one time."""

    name: str
    tools: dict[str, str]  # by the public name: the name that it has at the server
    surface: str
    there: bool = True

    @property
    def servers(self) -> set[str]:
        return {one.partition("_")[0] for one in self.tools.values()}

    def section(self) -> dict[str, Any]:
        renamed = {own: public for public, own in self.tools.items() if own != public}
        return {
            "tools": sorted(self.tools.values()),
            "names": renamed,
            "surface": self.surface,
            "instructions": f"only-{self.name}",
        }


@dataclass
class Visit:
    """One open client of a profile."""

    profile: str
    kind: str
    client: Client
    began: int
    told: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    busy: bool = False
    leave: anyio.Event = field(default_factory=anyio.Event)


class Walk:
    """The hub, its profiles and their clients."""

    def __init__(self, seed: int, servers: int, profiles: int, folder: Folder) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.servers = [server_name(number) for number in range(servers)]
        self.every = [f"{name}_t{number}x" for name in self.servers for number in range(TOOLS)]
        self.models = {f"p{number:03}": list[Model]() for number in range(profiles)}
        self.done = dict.fromkeys(self.models, 0)
        # When each profile was changed: from the writing of the file to the end of the reload.
        self.changes = {name: list[tuple[float, float]]() for name in self.models}
        self.gone = set[str]()
        for name in self.models:
            self.models[name].append(self.model(name))
        self.visits = list[Visit]()
        self.crossings = list[str]()
        self.counts = Counter[str]()
        self.grants = dict[str, str]()
        self.reloading = anyio.Lock()
        self.longest = 0.0
        self.group: Any = None

    async def keep(self, url: str, profile: str, kind: str) -> Visit | None:
        """Open a client in a task, which closes it when it is to leave."""
        return await self.group.start(self._kept, url, profile, kind)

    async def _kept(self, url: str, profile: str, kind: str, *, task_status: Any) -> None:
        started, began = False, time.perf_counter()
        try:
            async with AsyncExitStack() as stack:
                one = await opened(self, url, profile, kind, stack)
                self.visits.append(one)
                started = True
                task_status.started(one)
                try:
                    await one.leave.wait()
                finally:
                    self.visits.remove(one)
        # A server may have closed the streams of a client before the client does.
        except (BaseExceptionGroup, MCPError, httpx2.HTTPError, OSError, anyio.BrokenResourceError) as fault:
            if not started:
                # One that is added or removed meanwhile may not be there yet, or not be there any more.
                if profile not in self.gone and all(end < began for _, end in self.changes[profile]):
                    self.crossings.append(f"{profile} cannot be opened over {kind}: {fault!r}")
                    tell(f"CROSSING {self.crossings[-1]}")
                task_status.started(None)

    def model(self, name: str) -> Model:
        picked = self.random.sample(self.every, self.random.randint(2, 12))
        tools = {
            (f"al_{name}_{number}" if self.random.random() < 0.3 else own): own
            for number, own in enumerate(picked)
        }
        return Model(name, tools, self.random.choice(("list", "list", "search")))

    def write(self) -> None:
        entries = {
            name: self.folder.entry(
                *(f"t{number}x" for number in range(TOOLS)),
                label=name,
                about=f"Does something for {name}.",
                says=f"Words of {name}.",
                uri=f"{name}://all",
                prompt=f"{name}_letter",
            )
            for name in self.servers
        }
        there = {name: every[-1].section() for name, every in self.models.items() if name not in self.gone}
        self.folder.write(entries, profiles=there)

    def crossing(self, visit: Visit, what: str, seen: str) -> None:
        if "Connection closed" in seen:
            # The client's own connection broke, as when an idle one is ended while it is used again.
            self.counts["connection lost"] += 1
            visit.leave.set()
            return
        self.crossings.append(f"{visit.profile} over {visit.kind}: {what}: {seen[:300]}")
        tell(f"CROSSING {self.crossings[-1]}")

    def look(self, visit: Visit, what: str, seen: str, models: list[Model]) -> None:
        """Search everything that a client was sent."""
        servers = {one for model in models for one in model.servers}
        tools = {own for model in models for own in model.tools.values()}
        for mark in set(MARK.findall(seen)) - servers:
            self.crossing(visit, f"{what} has {mark}", seen)
        for server, tool in set(TOOL.findall(seen)):
            if f"{server}_{tool}" not in tools:
                self.crossing(visit, f"{what} has the tool {server}_{tool}", seen)
        for own in OWN.findall(seen):
            if visit.profile not in own:
                self.crossing(visit, f"{what} has {own}", seen)


async def failing(work: Any) -> tuple[bool, str]:
    """What a request is answered, as JSON, and whether with an error."""
    try:
        result = await work
    except MCPError as fault:
        return True, json.dumps([fault.error.code, fault.error.message, fault.error.data], default=str)
    told = result.model_dump_json(by_alias=True)
    return bool(getattr(result, "is_error", False)), told


async def opened(walk: Walk, url: str, profile: str, kind: str, stack: AsyncExitStack) -> Visit:
    told = list[tuple[float, str]]()

    async def hear(message: Any) -> None:
        if (kind := NEWS.get(getattr(message, "method", ""))) is not None:
            told.append((time.perf_counter(), kind))

    at = f"{url}/p/{profile}"
    if kind == "stdio":
        command = [
            "-m",
            "mcp_toolset",
            "serve",
            str(walk.folder.config),
            "--profile",
            profile,
            "--log",
            "off",
        ]
        target: Any = StdioServerParameters(command=sys.executable, args=command)
    else:
        target = sse_client(f"{at}/sse") if kind == "sse" else streamable_http_client(f"{at}/mcp")
    mode: Any = "auto" if kind == "http-modern" else "legacy"
    client = await stack.enter_async_context(Client(target, mode=mode, cache=None, message_handler=hear))
    if kind == "http-modern":
        await stack.enter_async_context(
            client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        )
    return Visit(profile, kind, client, walk.done[profile], told)


class Step:
    """One step of a client; each kind is a method."""

    def __init__(self, walk: Walk, visit: Visit) -> None:
        self.walk, self.visit = walk, visit
        self.first = walk.done[visit.profile]
        if visit.kind == "stdio":
            # A process of its own, which reads the file again some time later.
            ended = [end for _, end in walk.changes[visit.profile]]
            self.first -= sum(end > time.perf_counter() - LATER for end in ended)
            self.first = max(0, min(self.first, len(walk.models[visit.profile]) - 1))
        self.random = walk.random

    def models(self) -> list[Model]:
        return self.walk.models[self.visit.profile][self.first :]

    @property
    def model(self) -> Model:
        return self.walk.models[self.visit.profile][self.first]

    def hidden(self) -> str:
        known = {own for model in self.models() for own in model.tools.values()}
        return self.random.choice([one for one in self.walk.every if one not in known])

    async def listed(self) -> None:
        result = await self.visit.client.list_tools()
        told = result.model_dump_json(by_alias=True)
        self.walk.look(self.visit, "tools/list", told, self.models())
        names = {tool.name for tool in result.tools}
        fixed = {"search_tools", "resolve_tools", "call_tool", "call_read_only_tool"}
        wanted = [fixed if one.surface == "search" else {*one.tools} for one in self.models()]
        if not any(one <= names and (one == names or fixed <= names) for one in wanted):
            self.walk.crossing(self.visit, "tools/list is another one", str(sorted(names)))

    async def call(self) -> None:
        public, own = self.random.choice([*self.model.tools.items()])
        failed, told = await failing(self.visit.client.call_tool(public, {}))
        models = self.models()
        self.walk.look(self.visit, "a call", told.replace(public, ""), models)
        stays = all(one.there and one.tools.get(public) == own and one.surface == "list" for one in models)
        server = own.partition("_")[0]
        if stays and (failed or f" of {server} by " not in told):
            self.walk.crossing(self.visit, f"the call {public} was lost", told)

    async def call_hidden(self) -> None:
        other = self.hidden()
        answers = [await failing(self.visit.client.call_tool(one, {})) for one in (other, "made_up")]
        if answers[0][1].replace(other, "made_up") != answers[1][1] and len(self.models()) == 1:
            self.walk.crossing(self.visit, f"{other} fails otherwise than an unknown tool", answers[0][1])
        self.walk.look(self.visit, "an error", answers[0][1].replace(other, ""), self.models())

    async def search(self) -> None:
        if self.model.surface != "search":
            return await self.listed()
        mark = self.random.choice(self.walk.servers)
        query = {"query": self.random.choice((f"something for {mark}", "does something", ""))}
        _, told = await failing(self.visit.client.call_tool("search_tools", query))
        self.walk.look(
            self.visit, "a search", told.replace(mark, "") if mark in query["query"] else told, self.models()
        )

    async def grant(self) -> None:
        if self.model.surface != "search":
            return await self.call()
        public, own = self.random.choice([*self.model.tools.items()])
        other = self.hidden()
        asked = {"ids": [public, other]}
        _, told = await failing(self.visit.client.call_tool("resolve_tools", asked))
        self.walk.look(self.visit, "a resolution", told.replace(other, ""), self.models())
        found = re.search(r'\\?"grant\\?":\\?"([^"\\]+)', told)
        if found is None:
            if len(self.models()) == 1:
                self.walk.crossing(self.visit, f"no grant of {public}", told)
            return
        self.walk.grants[self.visit.profile] = found[1]
        failed, told = await failing(
            self.visit.client.call_tool("call_tool", {"grant": found[1], "arguments": {}})
        )
        self.walk.look(self.visit, "a granted call", told, self.models())
        if (failed or f" of {own.partition('_')[0]} by " not in told) and len(self.models()) == 1:
            self.walk.crossing(self.visit, f"the granted call {public} was lost", told)

    async def grant_of_another(self) -> None:
        others = [(name, one) for name, one in self.walk.grants.items() if name != self.visit.profile]
        if self.model.surface != "search" or not others:
            return await self.call_hidden()
        _, grant = self.random.choice(others)
        fake = grant[:-4] + "AAAA"
        answers = [
            await failing(self.visit.client.call_tool("call_tool", {"grant": one, "arguments": {}}))
            for one in (grant, fake)
        ]
        if answers[0][1].replace(grant, fake) != answers[1][1] and len(self.models()) == 1:
            self.walk.crossing(self.visit, "a grant of another profile is known", answers[0][1])

    async def offers(self) -> None:
        client = self.visit.client
        for what, work in (
            ("resources/list", client.list_resources),
            ("prompts/list", client.list_prompts),
            ("resources/templates/list", client.list_resource_templates),
        ):
            self.walk.look(self.visit, what, (await failing(work()))[1], self.models())

    async def offer_hidden(self) -> None:
        client = self.visit.client
        known = {one for model in self.models() for one in model.servers}
        others = [one for one in self.walk.servers if one not in known]
        if not others:
            return await self.offers()
        other = self.random.choice(others)
        made_up = "srv99q"
        for ask in (
            lambda name: client.get_prompt(f"{name}_letter", {}),
            lambda name: client.read_resource(f"{name}://all"),
            lambda name: client.complete(
                types.PromptReference(type="ref/prompt", name=f"{name}_letter"), {"name": "to", "value": ""}
            ),
        ):
            told, unknown = [(await failing(ask(name)))[1] for name in (other, made_up)]
            if told.replace(other, made_up) != unknown and len(self.models()) == 1:
                self.walk.crossing(self.visit, f"{other} is told from an unknown one", f"{told} {unknown}")

    async def introduced(self) -> None:
        client = self.visit.client
        said = [client.instructions or "", str(client.server_info), str(client.server_capabilities)]
        models = self.walk.models[self.visit.profile][self.visit.began :]
        self.walk.look(self.visit, "the handshake", " ".join(said), models)


STEPS = (
    "listed",
    "call",
    "call",
    "call_hidden",
    "search",
    "grant",
    "grant_of_another",
    "offers",
    "offer_hidden",
)


async def session_elsewhere(walk: Walk, url: str, http: httpx2.AsyncClient) -> None:
    """Use the session of one profile at another."""
    here, there = walk.random.sample([one for one in walk.models if one not in walk.gone], 2)
    accept = {"Accept": "application/json, text/event-stream"}
    hello = handshake(1)
    begun = await http.post(f"{url}/p/{here}/mcp", json=hello, headers=accept)
    if begun.status_code != 200:
        return
    session = {**accept, "Mcp-Session-Id": begun.headers["mcp-session-id"]}
    listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    for at in (f"/p/{there}/mcp", "/mcp"):
        answer = await http.post(url + at, json=listed, headers=session)
        if answer.status_code != 404:
            walk.crossings.append(f"the session of {here} is open at {at}: {answer.text[:200]}")
            tell(f"CROSSING {walk.crossings[-1]}")
    await http.delete(f"{url}/p/{here}/mcp", headers=session)


async def reload(walk: Walk, server: Any) -> None:
    """Change, remove and add some profiles in the file, while the others step."""
    async with walk.reloading:
        names = walk.random.sample(sorted(walk.models), 5)
        for name in names[:3]:
            walk.models[name].append(walk.model(name))
        back, walk.gone = walk.gone, set(names[3:])
        for name in back | walk.gone:
            walk.models[name].append(replace(walk.models[name][-1], there=name not in walk.gone))
        changed, began = {*names, *back}, time.perf_counter()
        for name in changed:
            walk.changes[name].append((began, float("inf")))
        walk.write()
        await server.reload(timeout=60)
        ended = time.perf_counter()
        for name in changed:
            walk.changes[name][-1] = (began, ended)
        walk.longest = max(walk.longest, ended - began)
        for one in walk.visits:
            if one.profile in walk.gone:
                one.busy = True
                one.leave.set()
        for name in walk.models:
            walk.done[name] = len(walk.models[name]) - 1


async def work(walk: Walk, url: str, server: Any, steps: int, http: httpx2.AsyncClient) -> None:
    while sum(walk.counts.values()) < steps:
        turn = walk.random.random()
        if turn < 0.01:
            walk.counts["reload"] += 1
            if not walk.reloading.locked():
                await reload(walk, server)
            continue
        if turn < 0.04:
            walk.counts["session_elsewhere"] += 1
            await session_elsewhere(walk, url, http)
            continue
        idle = [one for one in walk.visits if not one.busy]
        if len(walk.visits) < OPEN or not idle or turn > 0.95:
            there = [one for one in walk.models if one not in walk.gone]
            await visit(walk, url, walk.random.choice(there), walk.random.choice(KINDS))
            continue
        await step(walk, walk.random.choice(idle))


async def visit(walk: Walk, url: str, profile: str, kind: str) -> None:
    """Open a client, in a task of its own that keeps it."""
    walk.counts[f"open {kind}"] += 1
    if len(walk.visits) >= OPEN and (
        idle := [one for one in walk.visits if not one.busy and one.kind != "stdio"]
    ):
        leaving = walk.random.choice(idle)
        leaving.busy = True
        leaving.leave.set()
    if (one := await walk.keep(url, profile, kind)) is not None:
        await Step(walk, one).introduced()


async def step(walk: Walk, one: Visit) -> None:
    one.busy = True
    kind = walk.random.choice(STEPS)
    walk.counts[kind] += 1
    try:
        with anyio.fail_after(60):
            await getattr(Step(walk, one), kind)()
            for at, what in one.told if one.kind != "stdio" else ():
                # A grant is a change of the list of its own client.
                granted = what == "tools" and "search" in {
                    model.surface for model in walk.models[one.profile]
                }
                if not granted and not any(
                    start <= at <= end + SOON for start, end in walk.changes[one.profile]
                ):
                    walk.crossing(one, "heard of a change of another profile", what)
            one.told.clear()
    except TimeoutError:
        walk.counts["too slow"] += 1
        one.leave.set()
    except (MCPError, httpx2.HTTPError, anyio.ClosedResourceError, anyio.BrokenResourceError) as fault:
        # The profile was removed meanwhile; the client of one that stays must not fail.
        if len(walk.models[one.profile]) - 1 == one.began and one.profile not in walk.gone:
            walk.crossing(one, f"{kind} failed", repr(fault))
        one.leave.set()
    finally:
        one.busy = one.leave.is_set()


async def run(seed: int, steps: int, servers: int, profiles: int, stdio: int) -> int:
    with TemporaryDirectory() as folder:
        walk = Walk(seed, servers, profiles, Folder(Path(folder)))
        walk.write()
        began = time.perf_counter()
        async with walk.folder.server() as server:
            await server.settled()
            tell(f"seed {seed}: {servers} servers are ready after {time.perf_counter() - began:.1f} s")
            async with listening(server.http_app()) as url, anyio.create_task_group() as group:
                walk.group = group
                async with httpx2.AsyncClient(timeout=60) as http, anyio.create_task_group() as workers:
                    for _ in range(stdio):
                        await visit(walk, url, walk.random.choice([*walk.models]), "stdio")
                    for _ in range(WORKERS):
                        workers.start_soon(work, walk, url, server, steps, http)
                    workers.start_soon(progress, walk, steps)
                for one in walk.visits:
                    one.leave.set()
        spent = time.perf_counter() - began
    tell(f"{sum(walk.counts.values())} steps in {spent:.0f} s, the longest reload {walk.longest:.2f} s")
    for kind, count in sorted(walk.counts.items()):
        tell(f"{count:7} {kind}")
    tell(f"{len(walk.crossings)} crossings")
    for one in walk.crossings[:20]:
        tell(one)
    return 1 if walk.crossings else 0


async def progress(walk: Walk, steps: int) -> None:
    while (done := sum(walk.counts.values())) < steps:
        tell(f"{done} steps, {len(walk.visits)} clients, {len(walk.crossings)} crossings")
        await anyio.sleep(15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--profiles", type=int, default=100)
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--stdio", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    try:
        code = anyio.run(run, given.seed, given.steps, given.servers, given.profiles, given.stdio)
    except BaseExceptionGroup as group:
        for fault in leaves(group):
            tell("".join(traceback.format_exception(fault, limit=-6)))
        code = 2
    raise SystemExit(code)


def leaves(fault: BaseException) -> Iterator[BaseException]:
    """The errors in a group."""
    if isinstance(fault, BaseExceptionGroup):
        for one in cast("BaseExceptionGroup[BaseException]", fault).exceptions:
            yield from leaves(one)
    else:
        yield fault


if __name__ == "__main__":
    main()
