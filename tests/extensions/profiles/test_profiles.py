"""Profiles of one server: what each has at every door, and that nothing of another one is there."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from tests.extensions.profiles.office import PROFILES, office
from tests.support.audit_logs import lines
from tests.support.callers import Callers, client_of
from tests.support.piped import handshake
from tests.support.served import served

from mcp_toolset import ToolsetServer
from mcp_toolset.audit import AuditLog
from mcp_toolset.middleware import LargeResults
from mcp_toolset.policy import Limits, Policy

pytestmark = pytest.mark.anyio

MODES = ("legacy", "sse", "auto")
"""Streamable HTTP up to 2025-11-25, HTTP+SSE, and 2026-07-28."""


@asynccontextmanager
async def at(
    url: str, profile: str, mode: str = "auto", name: str = "ann", **more: Any
) -> AsyncGenerator[Client]:
    async with client_of(f"{url}/p/{profile}", name, mode, **more) as client:
        yield client


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def said(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def refusal(work: Any) -> tuple[int, str]:
    with pytest.raises(MCPError) as caught:
        await work
    return caught.value.error.code, caught.value.error.message


@pytest.mark.parametrize("mode", MODES)
async def test_k4_a_profile_has_its_tools_under_its_names_at_every_door(mode: str) -> None:
    async with served(office()) as url:
        async with at(url, "reading", mode) as reading, at(url, "mail", mode) as mail:
            assert await names(reading) == {"find_notes", "mail_search", "who"}
            assert await names(mail) == {"mail_search", "mail_write"}
            assert await said(reading, "find_notes", query="tea") == "notes has tea"
            assert await said(mail, "mail_write", text="hi") == "mail wrote hi"
            assert "find_notes" in await said(reading, "find_notes", wrong=1)
            assert "notes_search" not in await said(reading, "find_notes", wrong=1)
            for client, others in (
                (reading, ("notes_search", "notes_write", "mail_drop")),
                (mail, ("notes_search", "mail_drop", "who", "find_notes")),
            ):
                unknown = await refusal(client.call_tool("made_up", {}))
                for other in others:
                    told = await refusal(client.call_tool(other, {"query": "x"}))
                    assert told == (unknown[0], unknown[1].replace("made_up", other))
        async with client_of(url, "ann", mode) as whole:
            assert {"who", "notes_search", "mail_drop"} <= await names(whole)


@pytest.mark.parametrize("mode", MODES)
async def test_k4_what_a_server_offers_is_there_where_its_tools_are(mode: str) -> None:
    async with served(office()) as url:
        async with at(url, "reading", mode) as reading, at(url, "mail", mode) as mail:
            assert reading.instructions is not None and mail.instructions is not None
            assert reading.instructions.startswith("Only for reading.")
            assert "Words of notes." in reading.instructions and "Words of mail." in mail.instructions
            assert "notes" not in mail.instructions
            assert [str(one.uri) for one in (await mail.list_resources()).resources] == ["mail://all"]
            assert [one.name for one in (await mail.list_prompts()).prompts] == ["mail_letter"]
            assert {one.name for one in (await reading.list_prompts()).prompts} == {
                "notes_letter",
                "mail_letter",
            }
            hidden = await refusal(mail.read_resource("notes://all"))
            other = await refusal(mail.read_resource("other://all"))
            assert hidden == (other[0], other[1].replace("other:", "notes:"))
            asked = types.PromptReference(type="ref/prompt", name="notes_letter")
            missing = types.PromptReference(type="ref/prompt", name="made_up")
            told = await refusal(mail.complete(asked, {"name": "to", "value": ""}))
            unknown = await refusal(mail.complete(missing, {"name": "to", "value": ""}))
            assert told == (unknown[0], unknown[1].replace("made_up", "notes_letter"))
            assert await refusal(mail.get_prompt("notes_letter", {"to": "ann"})) == (
                unknown[0],
                unknown[1].replace("made_up", "notes_letter"),
            )


@pytest.mark.parametrize("mode", MODES)
async def test_k4_search_and_grants_of_a_profile_are_its_own(mode: str) -> None:
    profiles = {"one": {"tools": ["notes/*"], "surface": "search", "names": {"notes_write": "jot"}}}
    profiles["two"] = {"tools": ["notes/*", "mail/*"], "surface": "search"}
    async with served(office(profiles)) as url:
        async with at(url, "one", mode) as one, at(url, "two", mode) as two:
            found = json.loads(await said(one, "search_tools", query="write something down"))
            assert {hit["id"] for hit in found["hits"]} <= {"notes_write", "notes_search", "notes_drop"}
            assert found["hits"][0]["signature"] == "jot(text)"
            given = json.loads(await said(one, "resolve_tools", ids=["jot", "mail_write", "made_up"]))[
                "tools"
            ]
            jot, other, missing = given
            assert (jot["status"], other["status"]) == ("granted", "not_available")
            assert {**other, "id": ""} == {**missing, "id": ""}
            done = await said(one, "call_tool", grant=jot["grant"], arguments={"text": "x"})
            assert done == "notes wrote x"
            elsewhere = await two.call_tool("call_tool", {"grant": jot["grant"], "arguments": {"text": "x"}})
            unknown = await two.call_tool("call_tool", {"grant": "jot.made-up", "arguments": {"text": "x"}})
            assert elsewhere.is_error
            assert str(elsewhere.content).replace(jot["grant"], "jot.made-up") == str(unknown.content)


async def test_k4_sessions_of_one_profile_are_unknown_in_another() -> None:
    async with served(office()) as url, httpx2.AsyncClient(timeout=60) as http:
        accept = {"Accept": "application/json, text/event-stream"}
        opened = await http.post(f"{url}/p/mail/mcp", json=handshake(1), headers=accept)
        session = {**accept, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await http.post(f"{url}/p/mail/mcp", json=listed, headers=session)).status_code == 200
        for other in ("/p/reading/mcp", "/mcp"):
            assert (await http.post(url + other, json=listed, headers=session)).status_code == 404


async def test_k4_rules_of_the_server_hold_in_profiles_by_its_own_names() -> None:
    profiles = {
        "quick": {"names": {"notes_write": "safe_note", "notes_drop": "safe_drop"}, "tools": ["notes/*"]}
    }
    policy = Policy(allow=["safe_*", "notes_write", "notes_search"], deny=["notes_drop"])
    async with served(office(profiles, policy=policy, limits={"notes_write": Limits(calls=2)})) as url:
        async with at(url, "quick") as quick, client_of(url, "ann", "auto") as whole:
            assert await names(quick) == {"safe_note", "notes_search"}
            assert await said(quick, "safe_note", text="1") == "notes wrote 1"
            assert await said(whole, "notes_write", text="2") == "notes wrote 2"
            # Profiles and the server count together.
            assert "limited to 2 calls" in await said(quick, "safe_note", text="3")
            assert "limited to 2 calls" in await said(whole, "notes_write", text="3")


async def test_k4_rules_of_a_profile_hold_in_it_alone() -> None:
    async with served(office()) as url:
        async with at(url, "mail") as mail, at(url, "reading") as reading:
            for number in range(3):
                assert await said(mail, "mail_search", query=str(number)) == f"mail has {number}"
            assert "limited to 3 calls" in await said(mail, "mail_search", query="x")
            assert await said(reading, "mail_search", query="x") == "mail has x"


async def test_k4_a_profile_that_needs_a_login_does_not_exist_for_others() -> None:
    profiles = {
        "any": {"auth": True, "tools": ["who"]},
        "oncall": {"auth": {"roles": ["oncall"]}, "tools": ["notes/*"]},
        "bob": {"auth": {"principals": ["bob"]}, "tools": ["mail/*"]},
    }
    auth = Callers({"eve": {"roles": {"oncall"}}})
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with served(office(profiles, auth=auth)) as url, httpx2.AsyncClient(timeout=60) as http:

        async def status(name: str, profile: str, door: str = "mcp") -> tuple[int, bytes]:
            headers = {"Authorization": f"Bearer token-of-{name}"} if name else {}
            answer = await http.post(f"{url}/p/{profile}/{door}", json=body, headers=headers)
            return answer.status_code, answer.content

        for profile in ("any", "oncall", "bob", "none"):
            # Without a login, none is there or not there.
            assert (await status("", profile))[0] == 401
        missing = await status("ann", "none")
        assert missing[0] == 404
        assert (
            await status("ann", "oncall")
            == await status("ann", "bob")
            == await status("eve", "bob")
            == missing
        )
        assert await status("ann", "bob", "messages/") == await status("ann", "none", "messages/")
        async with at(url, "oncall", name="eve") as eve, at(url, "any", name="ann") as ann:
            assert await names(eve) == {"notes_search", "notes_write", "notes_drop"}
            assert json.loads(await said(ann, "who"))[2] == "ann"


async def test_k4_audit_lines_and_decisions_name_the_profile(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", key="x" * 16)
    async with served(office(audit=log)) as url:
        async with (
            at(url, "mail") as mail,
            at(url, "reading") as reading,
            client_of(url, "a", "legacy") as whole,
        ):
            for _ in range(4):
                await mail.call_tool("mail_search", {"query": "x"})
            await reading.call_tool("find_notes", {"query": "x"})
            await whole.call_tool("notes_search", {"query": "x"})
            await reading.get_prompt("mail_letter", {"to": "x"})
    found = lines(tmp_path / "audit.jsonl", "call", "request")
    calls = [(one.get("view"), one["tool"], one["outcome"]) for one in found if one["event"] == "call"]
    assert calls == [
        *[("mail", "mail_search", "result")] * 3,
        ("mail", "mail_search", "refused"),
        ("reading", "find_notes", "result"),
        (None, "notes_search", "result"),
    ]
    assert {one.get("view") for one in found if one.get("method") == "prompts/get"} == {"reading"}


async def test_k4_a_server_without_profiles_has_no_such_addresses() -> None:
    async with served(office({})) as url, httpx2.AsyncClient(timeout=60) as http:
        assert (await http.post(f"{url}/p/mail/mcp", json={})).status_code == 404


async def test_k4_in_process_calls_of_a_profile_are_its_own() -> None:
    async with office() as server:
        view = await server.extensions["profiles"].view("reading", None)
        assert isinstance(view, ToolsetServer)
        assert {tool["name"] for tool in view.tools()} == {"find_notes", "mail_search", "who"}
        statuses = view.statuses()
        assert {name: one.tools for name, one in statuses.items()} == {"notes": 1, "mail": 1}
        assert PROFILES["reading"]["names"]["notes_search"] == "find_notes"
        assert (await view.call_tool("find_notes", {"query": "x"})).text == "notes has x"


async def test_k4_what_extensions_keep_is_of_one_profile(tmp_path: Path) -> None:
    profiles: dict[str, Any] = {"one": {"tools": ["notes/*"]}, "two": {"tools": ["notes/*"]}}
    kept = LargeResults(200, preview=50)
    async with served(office(profiles, extensions=[kept], processes=tmp_path / "processes")) as url:
        async with at(url, "one") as one, at(url, "two") as two:
            long = await one.call_tool("notes_search", {"query": "x" * 500})
            (id,) = set(re.findall(r"r_[0-9a-f]{16}", str(long.content)))
            assert "xxx" in str((await one.call_tool("read_result", {"result": id})).content)
            missing = await two.call_tool("read_result", {"result": "r_0123456789abcdef"})
            other = await two.call_tool("read_result", {"result": id})
            assert other.is_error
            assert str(other.content).replace(id, "r_0123456789abcdef") == str(missing.content)


async def test_k4_a_pattern_and_a_name_that_fit_nothing_are_told() -> None:
    profiles = {
        "work": {"tools": ["notes_*", "mail_serch"], "names": {"notes_write": "jot", "note_drop": "x"}}
    }
    async with office(profiles) as server:
        view = await server.extensions["profiles"].view("work", None)
        assert [str(one) for one in view.unbound()] == [
            "profiles.work.tools('mail_serch') has no effect: there is no such tool; "
            "did you mean mail_search or mail/search or mail_drop?",
            "profiles.work.names('note_drop') has no effect: there is no such tool; did you mean notes_drop?",
        ]


async def test_k4_middleware_of_the_program_is_never_passed_by(caplog: pytest.LogCaptureFixture) -> None:
    async def guard(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    server = office()
    async with served(server) as url, at(url, "reading") as client:
        assert await said(client, "who") == "nobody"
        middleware: Any = server.lowlevel.middleware
        middleware.append(guard)
        await refusal(client.call_tool("who", {}))
        assert "give it to the server as middleware" in caplog.text
        middleware.remove(guard)
        assert await said(client, "who") == "nobody"


@pytest.mark.parametrize("path", ["/sse", "/p/mail/sse"])
async def test_k4_an_event_stream_is_opened_by_get_alone(path: str) -> None:
    async with served(office()) as url, httpx2.AsyncClient(timeout=30) as http:
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            answer = await http.request(method, f"{url}{path}", json={})
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), method
        assert (await http.head(f"{url}{path}")).status_code == 200
