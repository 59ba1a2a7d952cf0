"""A call that is cut off between two steps, and made again: no step happens twice."""

import asyncio
import tempfile
from pathlib import Path

import anyio

from mcp_toolset import Rules, ToolContext, Toolset, tool
from mcp_toolset.journal import JournalGuard
from mcp_toolset.rounds import RoundContext, ToolRound

booked: list[str] = []
hotel_is_asked, hotel_answers = asyncio.Event(), asyncio.Event()


async def book_flight(city: str) -> str:
    booked.append(f"flight to {city}")
    return "seat 12A"


async def book_hotel(city: str) -> str:
    hotel_is_asked.set()
    await hotel_answers.wait()
    booked.append(f"hotel in {city}")
    return "room 7"


@tool(idempotent=True)
async def book(context: ToolContext, city: str) -> str:
    """Book a flight and a hotel."""
    seat = await context.effect("flight", book_flight, city)
    room = await context.effect("hotel", book_hotel, city, repeat=True)
    return f"{seat}, {room}"


reply = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_2Kd9", "type": "function", "function": {"name": "book", "arguments": '{"city": "Bern"}'}}
    ],
}


async def work(path: Path) -> None:
    async with JournalGuard(path, served="worker") as guard:
        round = ToolRound.from_openai(reply, Toolset(book).view())
        plan = await round.plan.apply(Rules(guards=[guard]))
        report = await plan.run_pending(context=RoundContext(session="conversation 17"))
        print(report.results[0].result.text)


async def main(path: Path) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(work, path)
        await hotel_is_asked.wait()
        group.cancel_scope.cancel()  # as if the worker were replaced now
    hotel_answers.set()
    await work(path)
    print(booked)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder) / "calls.sqlite3"))
