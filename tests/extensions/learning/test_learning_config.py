"""`learning` of a configuration: per caller, bounded, shared by processes, and forgotten by a command."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.commandline import CommandLine
from tests.support.configured import BOUND, Folder
from tests.support.direct_callers import Caller
from tests.support.warm import Warm

from mcp_toolset import Identity, ToolCall, ToolContext, ToolsetServer
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError
from mcp_toolset.extensions.learning.extension import ONE_USER
from mcp_toolset.search import SearchLearning

pytestmark = pytest.mark.anyio

ANN, BEN = Identity.of("ann"), Identity.of("ben")
QUERY = "show the monthly figures"
TOOLS = [f"figures_of_{name}" for name in ("sales", "costs", "staff", "stock")]
EXAMPLE = Path(__file__).parents[3] / "examples" / "config" / "learning.json"
TOKENS = {"tokens": {"ann": "a-token-of-ann", "ben": "a-token-of-ben"}}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    return folder


def configured(folder: Folder, **section: Any) -> ToolsetServer:
    entry = {**folder.entry(*TOOLS), "deferred": True, "prefix": False}
    folder.write({"a": entry}, **section)
    return folder.server()


async def ids(caller: Caller, query: str = QUERY) -> list[str]:
    return [hit["id"] for hit in (await caller.found(query))["hits"]]


async def use(caller: Caller, tool: str, query: str = QUERY) -> None:
    await caller.found(query)
    resolved = await caller.call("resolve_tools", ids=[tool])
    grant = resolved["structuredContent"]["tools"][0]["grant"]
    assert not (await caller.call("call_tool", grant=grant)).get("isError")


async def test_m8_a_key_of_the_configuration_lets_each_caller_teach_its_own_search(folder: Folder) -> None:
    server = configured(folder, learning={"path": "kept/learnt.json"})
    with anyio.fail_after(BOUND):
        async with server:
            ann, ben = Caller(server, ANN), Caller(server, BEN)
            before = await ids(ann)
            last = before[-1]
            for _ in range(3):
                await use(ann, last)
            taught = await ids(ann)
            assert taught.index(last) < before.index(last) and sorted(taught) == sorted(before)
            assert await ids(ben) == before
            nobody = Caller(server, None)
            await use(nobody, last)
            assert await ids(nobody) == before, "callers who cannot be told apart teach nothing"
    kept = folder.path / "kept" / "learnt.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "ann" not in kept.read_text() and "monthly" not in kept.read_text()


async def test_m8_a_poisoner_reaches_only_its_own_search_and_only_the_bound(folder: Folder) -> None:
    server = configured(
        folder, learning={"path": "learnt.json", "max_bonus": 0.1, "max_pairs": 40, "max_callers": 2}
    )
    with anyio.fail_after(BOUND):
        async with server:
            ann, ben = Caller(server, ANN), Caller(server, BEN)
            before, named = await ids(ann), await ids(ann, "figures_of_sales")
            bad = next(one for one in reversed(before) if "sales" not in one)
            for number in range(30):
                await use(ann, bad, f"{QUERY} {number}")
            assert sorted(await ids(ann)) == sorted(before), "nothing joins an answer and nothing leaves it"
            assert (await ids(ann, "figures_of_sales"))[0] == named[0] != bad
            assert await ids(ben) == before
            learn = server.extensions["learning"]
            assert learn is not None
            bonus = learn.bonus(_as(ANN), QUERY)
            assert bonus and 0 < max(bonus.values()) <= 0.1
            assert learn.bonus(_as(BEN), QUERY) == {}
            assert learn.learnt[0] == 1 and learn.learnt[1] <= 40


async def test_m8_without_the_key_no_file_is_made(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(folder.path / "data"))
    assert configured(folder).extensions.get("learning") is None
    assert configured(folder, learning=False).extensions.get("learning") is None
    assert not (folder.path / "data").exists()
    assert configured(folder, learning=True).extensions.get("learning") is not None
    (kept,) = (folder.path / "data").rglob("*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def test_m8_the_example_of_the_page_learns_within_its_bounds() -> None:
    found = load_config(EXAMPLE).extensions["learning"]
    assert found is not None and (found.max_bonus, found.max_callers, found.max_pairs) == (0.1, 20, 2000)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"max_bonus": 0.5}, "`max_bonus` as a number above 0 and below 0.2"),
        ({"halflife": 3}, "did you mean `half_life`"),
        ({"half_life": 0}, "a positive number of seconds"),
        ("perhaps", "learning"),
    ],
)
def test_m8_a_wrong_setting_is_refused_with_its_place(folder: Folder, said: Any, told: str) -> None:
    with pytest.raises(ConfigError, match="toolset") as fault:
        configured(folder, learning=said)
    assert told in str(fault.value)


def _as(identity: Identity) -> ToolContext:
    class _Context(ToolContext):
        principal = identity.key

    return _Context()


def taught(learn: SearchLearning, tool: str, context: ToolContext) -> None:
    learn.searched(context, QUERY, [tool])
    learn.resolved(context, tool)
    learn.called(context, tool)


def test_m8_processes_share_a_file_and_what_is_forgotten_stays_so(tmp_path: Path) -> None:
    time = [100.0]

    def process() -> SearchLearning:
        return SearchLearning(tmp_path / "learnt.json", clock=lambda: time[0])

    one, two, ann, ben = process(), process(), _as(ANN), _as(BEN)
    taught(one, "sums", ann)
    taught(two, "costs", ann)
    taught(two, "costs", ben)
    for each in (one, two, one):
        each.save()
    assert one.bonus(ann, QUERY).keys() == two.bonus(ann, QUERY).keys() == {"sums", "costs"}
    assert one.bonus(ben, QUERY) == two.bonus(ben, QUERY) != {}
    taught(one, "sums", ann)
    time[0] = 101.0
    process().forget(ANN.key)
    one.save()
    two.save()
    assert one.bonus(ann, QUERY) == two.bonus(ann, QUERY) == process().bonus(ann, QUERY) == {}
    assert one.bonus(ben, QUERY)
    time[0] = 102.0
    taught(one, "sums", ann)
    one.save()
    assert process().bonus(ann, QUERY), "what is used afterwards counts"
    (tmp_path / "learnt.json").unlink()
    two.save()
    assert two.bonus(ben, QUERY) == {}, "a file that was removed is forgotten as well"


def test_m8_the_one_user_of_a_process_is_a_tenant_and_a_command_forgets(tmp_path: Path, warm: Warm) -> None:
    cli, folder = CommandLine(tmp_path, warm), Folder(tmp_path)
    server = configured(folder, learning={"path": "learnt.json"}, auth=TOKENS)
    server.extensions.alone()
    learn = server.extensions["learning"]
    assert learn is not None
    taught(learn, "read_costs", ToolContext())
    taught(learn, "read_costs", _as(ANN))
    learn.save()
    path = str(tmp_path / "learnt.json")
    shown = json.loads(cli.run("search", "mcp.json", "--learned", "--json").stdout)
    assert shown == {"file": path, "on": True, "callers": 2, "pairs": shown["pairs"]} and shown["pairs"] > 0
    assert cli.run("search", "mcp.json", "--forget", "--yes", "--as", "bob").returncode == 1
    unasked = cli.run("search", "mcp.json", "--forget")
    assert (unasked.returncode, unasked.stdout) == (2, "") and "add --yes" in unasked.stderr
    assert (
        cli.run("search", "mcp.json", "--forget", "--yes", "--as", "ann").stdout
        == f"forgotten: ann; {path}\n"
    )
    learn.save()
    assert learn.bonus(_as(ANN), QUERY) == {} and learn.bonus(ToolContext(), QUERY)
    assert "every caller" in cli.run("search", "mcp.json", "--forget", "--yes").stdout
    learn.save()
    assert learn.bonus(ToolContext(), QUERY) == {} and ONE_USER not in Path(path).read_text()
    folder.write({"a": folder.entry("read")})
    assert '"learning": true' in cli.run("search", "mcp.json", "--learned").stdout


async def test_m8_a_call_on_the_server_itself_teaches_nothing(folder: Folder) -> None:
    server = configured(folder, learning={"path": "learnt.json"})
    with anyio.fail_after(BOUND):
        async with server:
            await server.call(ToolCall("search_tools", {"query": QUERY}), ToolContext())
    assert json.loads((folder.path / "learnt.json").read_text())["tenants"] == {}
