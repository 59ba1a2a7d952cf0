"""Copying the next call of an error leads to a result: slips of every kind, tools of several shapes."""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

import pytest
from mcp import Client
from pydantic import BaseModel

from mcp_toolset import Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio

NEXT: Final = re.compile(r"^Next: (\S+) (\{.*\})$", re.MULTILINE)
STEPS: Final = 3


class Place(BaseModel):
    city: str
    zip: int | None = None


class Address(BaseModel):
    name: str
    place: Place


@tool(read_only=True)
def get_time(timezone: str) -> str:
    """Get the current time in a timezone."""
    return f"done {timezone}"


@tool
def create_issue(owner: str, repo: str, number: int, labels: list[str] | None = None) -> str:
    """Create an issue in a repository."""
    return f"done {owner}/{repo}"


@tool
def ship(address: Address, speed: Literal["slow", "fast"], stops: list[Place] | None = None) -> str:
    """Ship a parcel to an address."""
    return f"done {address.place.city}"


@tool(read_only=True)
def ping() -> str:
    """Answer."""
    return "done"


@tool
def forward(grant: str, arguments: dict[str, Any]) -> str:
    """Forward arguments with a grant of another service."""
    return f"done {grant}"


TOOLS: Toolset[Any] = Toolset(get_time, create_issue, ship, ping, forward).deferred()
GOOD: dict[str, dict[str, Any]] = {
    "get_time": {"timezone": "UTC"},
    "create_issue": {"owner": "a", "repo": "b", "number": 1},
    "ship": {"address": {"name": "A", "place": {"city": "B"}}, "speed": "slow"},
    "ping": {},
    "forward": {"grant": "g", "arguments": {"a": 1}},
}


def slips(name: str, grant: str) -> list[tuple[str, dict[str, Any]]]:
    good = GOOD[name]
    given: list[Any] = [
        {},
        {f"{key}s": value for key, value in good.items()},
        {**good, "extra": 1},
        {key: [value] for key, value in good.items()},
        dict.fromkeys(good),
        json.dumps(good)[:-1],
        [good],
    ]
    return [
        *(("call_tool", {"grant": grant, "arguments": one}) for one in given),
        ("call_tool", {"grant": f"{grant[:-2]}zz", "arguments": good}),
        ("call_tool", {"grant": name, "arguments": good}),
        ("call_tool", {"arguments": good}),
        ("call_tool", {}),
        ("call_read_only_tool", {"grant": grant, "arguments": good}),
        (f"{name}s", good),
        ("resolve_tools", {"ids": [f"{name}_x"]}),
        ("resolve_tools", {"ids": []}),
        ("search_tools", {"query": name, "server": "gitt"}),
        ("search_tools", {}),
    ]


def filled(value: Any) -> Any:
    """A next call as a model completes it: a value of the type in the place of each placeholder."""
    if isinstance(value, dict):
        return {key: filled(each) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each) for each in value]
    if not isinstance(value, str) or not (found := re.fullmatch(r"<(.*)>", value)):
        return value
    kind = found[1].split("|")[0]
    return {"integer": 1, "object": {}, "string": "x"}.get(kind, kind)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_m3_the_next_call_of_every_error_leads_to_a_result(mode: Any) -> None:
    server = ToolsetServer(TOOLS)
    stuck: list[Any] = []
    async with server, Client(server.lowlevel, mode=mode) as client:

        async def call(name: str, arguments: dict[str, Any]) -> tuple[bool, str]:
            try:
                result = await client.call_tool(name, arguments)
            except Exception as fault:  # the SDK's client raises protocol errors of several kinds
                return True, str(fault)
            return bool(result.is_error), "\n".join(getattr(block, "text", "") for block in result.content)

        _, resolved = await call("resolve_tools", {"ids": list(GOOD)})
        for name in GOOD:
            found = re.search(rf"{name}\.[\w-]+", resolved)
            assert found is not None
            for slip in slips(name, found[0]):
                trail = [slip]
                failed, text = await call(*slip)
                while failed and len(trail) <= STEPS and (following := NEXT.search(text)):
                    trail.append((following[1], filled(json.loads(following[2]))))
                    failed, text = await call(*trail[-1])
                if failed:
                    stuck.append((trail, text))
    assert not stuck
