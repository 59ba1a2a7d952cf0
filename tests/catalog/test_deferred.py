import json
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.calling import Caller, listed, tool_table

from mcp_toolset import SourceStatus, ToolBinding, ToolCall, ToolContext, ToolDefinition, ToolResult
from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.grants import AccessDenied, GrantLedger

pytestmark = pytest.mark.anyio


def session(name: str | None, replay: str = "") -> Caller:
    return Caller(name, replay=replay)


SESSION = session("one")
NO_SUCH = (
    'no such tool; use the id of a search hit\nNext: search_tools {"query": "<what the tool should do>"}'
)


def deferred(name: str, *, source: str = "erp", text: str = "Do it.", read_only: bool = False) -> ToolBinding:
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text(f"{name} {json.dumps(call.arguments)}")

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    definition = ToolDefinition(name, text, schema, annotations={"readOnlyHint": read_only})
    return listed(definition, execute, name=name, source=source, deferred=True)


@dataclass(frozen=True)
class Server:
    status: SourceStatus


class Desk:
    """A catalog behind a dispatch table, as a server has it."""

    def __init__(self, *tools: ToolBinding, state: Any = "ready") -> None:
        self.state: Any = state
        self.others: dict[str, Any] = {}
        self.ledger = GrantLedger()
        self.catalog = DeferredCatalog(self.ledger, lambda: {**self.others, "erp": self.server()})
        self.update(*tools)

    def server(self) -> Any:
        return Server(SourceStatus(self.state, "it is down", 12.0))

    def update(self, *tools: ToolBinding) -> None:
        self.catalog.update(tools)
        self.dispatch = tool_table(self.catalog.bindings())

    async def call(self, name: str, context: ToolContext = SESSION, /, **arguments: Any) -> ToolResult:
        with anyio.fail_after(30):
            return await self.dispatch.call(ToolCall(name, arguments), context)

    async def resolve(self, *ids: str, context: ToolContext = SESSION) -> list[dict[str, Any]]:
        return (await self.call("resolve_tools", context, ids=list(ids))).structured["tools"]

    async def grant(self, name: str, context: ToolContext = SESSION) -> str:
        return (await self.resolve(name, context=context))[0]["grant"]


READ = deferred("read_invoice", text="Read an invoice.", read_only=True)
WIPE = deferred("wipe_disk", text="Erase the disk.", source="ops")


async def test_h22_the_surface_is_four_tools_that_never_move():
    desk = Desk(READ, WIPE)
    surface = [one for one in desk.catalog.bindings() if not one.deferred]
    assert [one.name for one in surface] == [
        "search_tools",
        "resolve_tools",
        "call_tool",
        "call_read_only_tool",
    ]
    assert [one.definition.read_only for one in surface] == [True, True, False, True]
    assert all(one.definition.title and one.definition.annotations for one in surface)
    before = [one.to_wire() for one in surface]
    await desk.grant("wipe_disk")
    assert [one.to_wire() for one in desk.catalog.bindings() if not one.deferred] == before


async def test_x1_search_resolve_call():
    desk = Desk(READ, WIPE)
    found = (await desk.call("search_tools", query="read an invoice")).structured
    assert found["hits"][0]["id"] == "erp_read_invoice" and "state" not in found["hits"][0]
    (resolved,) = await desk.resolve("read_invoice")
    assert resolved["status"] == "granted" and resolved["definition"] == READ.to_wire()
    result = await desk.call("call_tool", grant=resolved["grant"], arguments={"n": 1})
    assert result.text == 'read_invoice {"n": 1}'
    assert (await desk.call("call_tool", grant="read_invoice")).text == "read_invoice {}"
    assert (await desk.call("read_invoice", n=2)).text == 'read_invoice {"n": 2}'


async def test_x1_a_search_can_resolve_its_first_hits_at_once():
    desk = Desk(READ, WIPE)
    found = (await desk.call("search_tools", query="read an invoice", resolve=1)).structured
    assert [one["id"] for one in found["resolved"]] == ["erp_read_invoice"]
    assert (await desk.call("call_tool", grant=found["resolved"][0]["grant"])).text == "read_invoice {}"
    with pytest.raises(UnknownToolError):
        await desk.call("wipe_disk")


async def test_f35_without_a_grant_nothing_can_be_called_on_any_path():
    desk = Desk(READ)
    for context in (SESSION, ToolContext()):
        with pytest.raises(UnknownToolError):
            await desk.call("read_invoice", context)
        for reference in ("read_invoice", "read_invoice.AAAAAAAAAAAAAAAA", ""):
            refused = await desk.call("call_tool", context, grant=reference)
            assert refused.is_error and "search_tools, then resolve_tools" in refused.text
    assert desk.catalog.granted(SESSION) == []


async def test_f34_a_grant_is_nothing_to_another_session():
    desk = Desk(READ)
    handle = await desk.grant("read_invoice")
    for other in (session("two"), session(None)):
        mine = (await desk.call("call_tool", grant="no such")).text.replace("no such", "X")
        theirs = (await desk.call("call_tool", other, grant=handle)).text.replace(handle, "X")
        assert theirs == mine
        with pytest.raises(UnknownToolError):
            await desk.call("read_invoice", other)


async def test_x1_a_caller_without_a_session_needs_the_handle():
    desk = Desk(READ)
    handle = await desk.grant("read_invoice", session(None))
    assert (await desk.call("call_tool", ToolContext(), grant=handle)).text == "read_invoice {}"
    assert (await desk.call("call_tool", ToolContext(), grant="read_invoice")).is_error


async def test_x3_the_read_only_call_refuses_what_is_not_annotated_read_only():
    desk = Desk(READ, WIPE)
    wipe, read = await desk.grant("wipe_disk"), await desk.grant("read_invoice")
    refused = await desk.call("call_read_only_tool", grant=wipe)
    assert refused.is_error and "not annotated as read-only; use call_tool" in refused.text
    assert (await desk.call("call_read_only_tool", grant=read)).text == "read_invoice {}"


@pytest.mark.parametrize("arguments", [{"n": "x"}, {"other": 1}, []])
async def test_h2_arguments_are_checked_against_the_tool_that_is_called(arguments: Any):
    desk = Desk(READ)
    result = await desk.call("call_tool", grant=await desk.grant("read_invoice"), arguments=arguments)
    assert result.is_error and "Invalid arguments" in result.text


async def test_h17_a_changed_definition_ends_a_grant_and_a_new_one_can_be_had():
    desk = Desk(READ)
    handle = await desk.grant("read_invoice")
    desk.update(deferred("read_invoice", text="Something else.", read_only=True))
    for arguments in ({"grant": handle}, {"grant": "read_invoice"}):
        refused = await desk.call("call_tool", **arguments)
        assert refused.is_error and "has changed since it was granted" in refused.text
    assert (await desk.call("read_invoice")).is_error
    assert (await desk.call("call_tool", grant=await desk.grant("read_invoice"))).text == "read_invoice {}"


async def test_f35_a_tool_that_is_gone_is_said_to_be_gone():
    desk = Desk(READ, WIPE)
    handle = await desk.grant("read_invoice")
    desk.update(WIPE)
    refused = await desk.call("call_tool", grant=handle)
    assert refused.is_error and "no longer in the catalog" in refused.text
    assert desk.catalog.granted(SESSION) == []
    assert (await desk.resolve("read_invoice"))[0]["status"] == "not_available"


async def test_x5_what_is_offline_is_found_but_not_granted():
    desk = Desk(READ, state="offline")
    found = (await desk.call("search_tools", query="invoice")).structured
    assert found["hits"][0]["state"] == "offline"
    (resolved,) = await desk.resolve("read_invoice")
    assert resolved["status"] == "not_available" and resolved["reason"] == "erp is offline: it is down"
    assert "grant" not in resolved and resolved["retry_in"] == 12.0


async def test_x5_what_became_of_each_id_is_said_in_order():
    resolved = await Desk(READ).resolve("nope", "read_invoice", "nope")
    assert [(one["id"], one["status"]) for one in resolved] == [
        ("nope", "not_available"),
        ("read_invoice", "granted"),
        ("nope", "not_available"),
    ]


async def test_h22_a_request_for_too_much_is_refused():
    desk = Desk(READ)
    assert (await desk.call("resolve_tools", ids=["a"] * 21)).is_error
    assert (await desk.call("resolve_tools", ids=[])).is_error
    assert (await desk.call("search_tools", query="x" * 2001)).is_error
    assert (await desk.call("search_tools", query="x", limit=101)).is_error


async def test_h21_a_search_can_be_narrowed_and_says_when_nothing_fits():
    desk = Desk(READ, WIPE)
    found = (await desk.call("search_tools", query="disk invoice", server="ops")).structured
    assert [hit["id"] for hit in found["hits"]] == ["ops_wipe_disk"]
    found = (await desk.call("search_tools", query="invoice", exclude=["read_invoice"])).structured
    assert "erp_read_invoice" not in [hit["id"] for hit in found["hits"]]
    found = (await desk.call("search_tools", query="invoice", server="nobody")).structured
    assert found["hits"] == [] and "there is no such server. Servers: erp, ops" in found["note"]


@given(
    st.dictionaries(
        st.text("abcdefgh-", min_size=1, max_size=40), st.integers(1, 60), min_size=1, max_size=150
    )
)
def test_h22_a_preview_stays_within_its_length_and_counts_every_tool(servers: dict[str, int]):
    catalog = DeferredCatalog(GrantLedger(), scorer=None)
    base = deferred("base")
    tools = {
        f"{server}_{place}": replace(base, name=f"{server}_{place}", source=server)
        for server, count in servers.items()
        for place in range(count)
    }
    catalog.update(tools.values())
    preview = catalog.preview()
    assert len(preview) <= 900
    assert preview.startswith(f"{len(tools)} tool")


def test_h22_an_empty_catalog_has_no_preview_and_a_small_one_has_the_names():
    assert Desk().catalog.preview() == ""
    preview = Desk(READ, WIPE).catalog.preview()
    assert "erp: read_invoice" in preview and "ops: wipe_disk" in preview


async def test_x5_a_hit_says_that_its_definition_moved_to_whoever_was_granted_it():
    desk = Desk(READ)
    await desk.grant("read_invoice")
    desk.update(deferred("read_invoice", text="Read and forward an invoice.", read_only=True))
    (hit,) = (await desk.call("search_tools", query="invoice")).structured["hits"]
    assert hit["state"] == "changed"
    assert 'description: "Read an invoice." → "Read and forward an invoice."' in hit["reason"]
    (other,) = (await desk.call("search_tools", session("two"), query="invoice")).structured["hits"]
    assert other.keys().isdisjoint({"state", "reason"})
    await desk.grant("read_invoice")
    (hit,) = (await desk.call("search_tools", query="invoice")).structured["hits"]
    assert "state" not in hit


async def test_x9_a_model_is_told_that_hits_are_only_the_nearest():
    desk = Desk(deferred("book_hotel", text="Reserve a hotel room for some nights."))
    found = (await desk.call("search_tools", query="plan a wedding")).structured
    assert [hit["id"] for hit in found["hits"]] == ["erp_book_hotel"]
    assert found["note"] == "No tool fits well; these are the nearest."
    assert "note" not in (await desk.call("search_tools", query="reserve a room")).structured


@pytest.mark.parametrize("server", [None, "ghost", "GHOST", "erp"])
async def test_x5_a_server_that_cannot_be_seen_is_never_an_empty_list(server: str | None):
    desk = Desk(READ)
    desk.others = {"ghost": Server(SourceStatus("offline", "connection refused", 4.0))}
    found = (await desk.call("search_tools", query="zzz qqq", server=server)).structured
    assert found["hits"] == []
    if server == "erp":
        assert "unavailable" not in found and "Nothing in the catalog fits" in found["note"]
    else:
        assert found["unavailable"] == [
            {"server": "ghost", "state": "offline", "reason": "connection refused", "retry_in": 4.0}
        ]
        assert "ghost cannot be reached, so that more may be there" in found["note"]


async def test_x5_an_id_that_cannot_be_resolved_may_belong_to_a_server_that_is_down():
    desk = Desk(READ)
    desk.others = {"ghost": Server(SourceStatus("offline", "connection refused"))}
    (absent,) = await desk.resolve("ghost_tool")
    assert "(ghost cannot be reached, so that more may be there)\nNext: search_tools " in absent["reason"]


async def test_u94_a_server_that_is_starting_is_said_to_be_starting_and_when_to_search_again():
    desk = Desk(READ)
    desk.others = {
        "ghost": Server(SourceStatus("offline", "connection refused", 4.0)),
        "slow": Server(SourceStatus("starting", "connecting")),
    }
    found = (await desk.call("search_tools", query="zzz qqq")).structured
    assert "slow is starting: search again in 5 s; ghost cannot be reached, so that" in found["note"]
    assert {one["server"]: one["retry_in"] for one in found["unavailable"]} == {"ghost": 4.0, "slow": 5.0}
    (absent,) = await desk.resolve("slow_tool")
    assert "slow is starting: search again in 5 s" in absent["reason"]


async def test_h16_the_same_request_again_is_answered_from_its_record():
    desk = Desk(READ)
    turn = session("one", "turn 3")
    first = await desk.resolve("read_invoice", "wipe_disk", context=turn)
    desk.update(READ, WIPE)
    again = await desk.resolve("read_invoice", "wipe_disk", context=turn)
    assert [one.get("grant") for one in again] == [first[0]["grant"], None]
    assert again[1]["reason"] == first[1]["reason"] == NO_SUCH
    found = (await desk.call("search_tools", turn, query="erase the disk", resolve=1)).structured
    assert found["resolved"][0]["status"] == "not_available"
    assert (await desk.resolve("wipe_disk", context=session("one", "turn 4")))[0]["status"] == "granted"


async def test_h16_a_replay_of_what_ended_says_so_and_grants_nothing_new():
    desk = Desk(READ)
    turn = session("one", "turn 3")
    await desk.resolve("read_invoice", context=turn)
    desk.update(deferred("read_invoice", text="Other.", read_only=True))
    (moved,) = await desk.resolve("read_invoice", context=turn)
    assert moved["status"] == "not_available" and "has changed since it was granted" in moved["reason"]
    desk.update(READ)
    assert (await desk.resolve("read_invoice", context=turn))[0]["status"] == "granted"
    desk.ledger.revoke_all()
    (gone,) = await desk.resolve("read_invoice", context=turn)
    assert gone["status"] == "not_available" and "was taken back" in gone["reason"]


@pytest.mark.parametrize(
    "caller",
    [Caller(replay="turn"), *(Caller("one", replay=key) for key in ("", 7, None, "x" * 401, ["a"]))],
    ids=["callers that cannot be told apart", "empty", "number", "none", "long", "list"],
)
async def test_h16_without_an_owner_and_a_short_text_as_its_key_nothing_is_a_replay(caller: Caller):
    desk = Desk()
    assert (await desk.resolve("read_invoice", context=caller))[0]["status"] == "not_available"
    desk.update(READ)
    assert (await desk.resolve("read_invoice", context=caller))[0]["status"] == "granted"


async def test_h14_an_id_that_comes_twice_is_granted_once_and_resolving_runs_nothing():
    desk = Desk(READ)
    one, absent, two = await desk.resolve("read_invoice", "nope", "read_invoice")
    assert one == two and one["status"] == "granted" and absent["status"] == "not_available"
    assert 0 < one["expires_in"] <= 3600 and "expires_in" not in absent
    assert [record.id for record in desk.ledger.records()] == ["read_invoice", "nope"]
    assert [binding.name for binding in desk.catalog.bindings()][4:] == ["read_invoice"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"grant": "x" * 401},
        {"grant": 7},
        {"grant": None},
        {},
        {"grant": "read_invoice", "arguments": "n=1"},
        {"grants": "read_invoice", "more": 1},
    ],
)
async def test_f34_a_malformed_call_of_a_calling_tool_is_refused_alike_with_or_without_a_grant(wrong: Any):
    desk = Desk(READ)
    without = await desk.call("call_tool", **wrong)
    await desk.grant("read_invoice")
    assert (await desk.call("call_tool", **wrong)).text == without.text and without.is_error


HELD = (deferred("ops/wipe_disk", text="Erase the disk.", source="ops"), "its schema has changed")


class Hiding(Desk):
    """A catalog with a tool that is held back, where some tools are no business of the caller's."""

    def __init__(self, *tools: ToolBinding, hidden: str) -> None:
        super().__init__(*tools)
        unseen = AccessDenied(shown=False)
        self.others = {"ops": Server(SourceStatus("offline", "connection refused", 4.0))}
        self.catalog = DeferredCatalog(
            self.ledger,
            lambda: self.others,
            access=lambda tool, context: unseen if tool.name == hidden else None,
        )
        self.catalog.update(tools, [HELD])
        self.dispatch = tool_table(self.catalog.bindings())


async def test_f24_a_held_tool_is_found_as_changed_and_cannot_be_had():
    desk = Hiding(READ, hidden="")
    (hit,) = (await desk.call("search_tools", query="erase the disk")).structured["hits"]
    assert (hit["id"], hit["state"]) == ("ops_wipe_disk", "changed")
    assert hit["reason"].startswith("held since ") and HELD[1] in hit["reason"]
    (absent,) = await desk.resolve("ops/wipe_disk")
    assert (absent["status"], absent["reason"]) == ("not_available", hit["reason"]) and "grant" not in absent
    with pytest.raises(UnknownToolError):
        await desk.call("ops/wipe_disk")


async def test_f34_a_server_whose_only_tool_is_held_and_hidden_is_named_nowhere():
    desk = Hiding(READ, hidden="ops/wipe_disk")
    found = (await desk.call("search_tools", query="erase the disk")).structured
    assert found["hits"] == [] and "unavailable" not in found
    (absent,) = await desk.resolve("nope")
    (hidden,) = await desk.resolve("ops/wipe_disk")
    assert absent["reason"] == hidden["reason"] == NO_SUCH


async def test_x5_a_server_with_a_held_tool_that_may_be_seen_is_named():
    desk = Hiding(READ, deferred("format_disk", source="ops"), hidden="format_disk")
    found = (await desk.call("search_tools", query="zzz qqq")).structured
    assert [one["server"] for one in found["unavailable"]] == ["ops"]


async def test_h19_a_catalog_is_searched_with_the_scorer_that_it_is_given():
    catalog = DeferredCatalog(GrantLedger(), scorer=None)
    catalog.update([deferred("create_refund", text="Return a charge to the card it came from.")])
    assert catalog.search("give the buyer their money back") == []
    meant = DeferredCatalog(GrantLedger())
    meant.update([deferred("create_refund", text="Return a charge to the card it came from.")])
    assert [hit.name for hit in meant.search("give the buyer their money back")] == ["create_refund"]


def test_h20_a_big_catalog_is_taken_in_by_slices_between_which_it_can_be_searched():
    tools = [deferred(f"take_note_{number}", text=f"Take note number {number}.") for number in range(200)]
    catalog = Desk(READ).catalog
    sizes: list[int] = []
    for _ in catalog.updating(tools):
        found = catalog.search("take a note", limit=100)
        # What is gone is gone at once; what is found can be had.
        assert {hit.name for hit in found} <= set(catalog.digests())
        assert [hit.name for hit in catalog.search("read_invoice")].count("read_invoice") == 0
        sizes.append(len(catalog.index))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 5
    assert sizes[-1] == len(tools)
    at_once = Desk(*tools).catalog
    assert catalog.search("note number 77") == at_once.search("note number 77")
    assert catalog.digests() == at_once.digests()
