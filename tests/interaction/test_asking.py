"""Questions, samples, halts and manual calls, over every transport and in both protocol eras.

All tests of a transport and an era share two clients: one that can be asked, and one that cannot. Each run
has each transport and each era; `scripts/doors` has each pair of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.interaction.conftest import Connect, way_of
from tests.support.asking import Model, Person, text_of
from tests.support.every_run import in_every_run

EVERY_RUN = ("memory legacy", "stdio modern", "sse legacy", "http legacy", "http modern")
pytestmark = [pytest.mark.anyio, in_every_run(EVERY_RUN, way_of)]

Opened = Callable[..., AbstractAsyncContextManager[Client]]


class Home:
    """Who is at the client that can be asked, for the time of a test."""

    def __init__(self) -> None:
        self.person, self.model = Person(), Model()

    async def elicit(self, context: Any, params: Any) -> Any:
        return await self.person(context, params)

    async def sample(self, context: Any, params: Any) -> Any:
        return await self.model(context, params)


@pytest.fixture(scope="module")
async def clients(connect: Connect) -> AsyncGenerator[tuple[Client, Client, Home]]:
    home, always = Home(), float("inf")
    async with (
        connect(within=always) as mute,
        connect(within=always, elicitation_callback=home.elicit, sampling_callback=home.sample) as asked,
    ):
        yield mute, asked, home


@pytest.fixture
def opened(clients: tuple[Client, Client, Home]) -> Opened:
    """Has the client at which there is this person; without one, the client that cannot be asked."""
    mute, asked, home = clients

    @asynccontextmanager
    async def client(person: Person | None = None, model: Model | None = None) -> AsyncGenerator[Client]:
        home.person, home.model = person or Person(), model or Model()
        with anyio.fail_after(90):
            yield mute if person is None else asked

    return client


async def test_a14_a_tool_asks_the_user_and_the_answer_is_its_result(opened: Opened) -> None:
    person = Person({"size": "large"}, "decline", "cancel")
    async with opened(person) as client:
        booked = await client.call_tool("book", {"room": "attic"})
        assert booked.structured_content == {"size": "large"}
        declined = await client.call_tool("book", {"room": "attic"})
        assert declined.is_error and "declined" in text_of(declined)
        left = await client.call_tool("book", {"room": "attic"})
        assert left.is_error and "unanswered" in text_of(left)
    assert person.questions == ["Which size for attic?"] * 3


async def test_a14_a_client_that_shows_no_questions_gets_them_in_words(opened: Opened) -> None:
    async with opened() as client:
        result = await client.call_tool("book", {"room": "attic"})
    assert result.is_error and "ask in your own words: Which size for attic?" in text_of(result)


async def test_p5_each_of_several_callers_gets_its_own_question(opened: Opened) -> None:
    class Echo(Person):
        async def __call__(self, context: Any, params: Any) -> Any:
            size = "large" if "attic" in params.message else "small"
            self.answers = [{"size": size}]
            return await super().__call__(context, params)

    results: dict[str, Any] = {}

    async with opened(Echo()) as client:

        async def one(room: str) -> None:
            results[room] = (await client.call_tool("book", {"room": room})).structured_content

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(one, f"{'attic' if number % 2 else 'cellar'} {number}")
    assert len(results) == 6
    assert all(found == {"size": "large" if "attic" in room else "small"} for room, found in results.items())


async def test_h5_a_handler_asks_twice_and_samples_and_each_answer_finds_its_place(opened: Opened) -> None:
    person, model = Person({"answer": "sea"}, {"answer": "salt"}), Model()
    async with opened(person, model) as client:
        result = await client.call_tool("compose", {})
    assert text_of(result) == "sample 1" and person.questions == ["A word?"] * 2
    (params,) = model.asked
    assert params["messages"][0]["content"]["text"] == "sea and salt"
    meta = params["_meta"]
    assert meta["mcp-toolset/call"]["tool"] == "compose" and meta["mcp-toolset/replay-key"]


async def test_n4_a_permission_is_asked_for_and_obeyed(opened: Opened) -> None:
    person = Person({}, "decline")
    async with opened(person) as client:
        assert text_of(await client.call_tool("wipe", {"disk": "sda"})) == "sda is empty"
        refused = await client.call_tool("wipe", {"disk": "sda"})
        assert refused.is_error and "not permitted" in text_of(refused)
    assert person.questions == ["Allow the call of wipe with {'disk': 'sda'}?"] * 2


async def test_n4_a_permission_that_cannot_be_asked_for_is_refused(opened: Opened) -> None:
    async with opened() as client:
        refused = await client.call_tool("wipe", {"disk": "sda"})
    assert refused.is_error and "this client shows no questions" in text_of(refused)


async def test_a5_a_halt_arrives_as_a_result(opened: Opened) -> None:
    async with opened() as client:
        result = await client.call_tool("finish", {"n": 4})
    assert result.structured_content == {"result": 4} and not result.is_error
    assert "asks to stop here: enough" in text_of(result)
    assert result.meta is not None and result.meta["mcp-toolset/halt"] == "enough"


async def test_a7_a_manual_call_waits_for_the_application_and_others_go_on(opened: Opened) -> None:
    results: list[Any] = []
    noted = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        noted.set()

    async with opened() as client:

        async def approve() -> None:
            results.append(await client.call_tool("approve", {"amount": 5}, progress_callback=note))

        async with anyio.create_task_group() as group:
            group.start_soon(approve)
            await noted.wait()
            waiting = await client.call_tool("desk_pending", {})
            assert waiting.structured_content == {"result": [5]} and not results
            await client.call_tool("desk_answer", {"yes": True})
        assert results[0].structured_content == {"yes": True}
        assert (await client.call_tool("desk_pending", {})).structured_content == {"result": []}


async def test_a7_a_client_that_cancels_takes_its_manual_call_away(opened: Opened) -> None:
    async with opened() as client:

        async def waiting() -> Any:
            return (await client.call_tool("desk_pending", {})).structured_content

        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "approve", {"amount": 7})
            while await waiting() != {"result": [7]}:
                pass
            group.cancel_scope.cancel()
        while await waiting() != {"result": []}:
            pass
