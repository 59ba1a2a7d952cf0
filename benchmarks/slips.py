"""Calls of the deferred surface as weak models write them, and what becomes of each.

    python benchmarks/slips.py [--each] [--json FILE]

`slips.jsonl` has 60 calls, each with what was meant by it. A call is *repaired* if it does what was meant. It
is *answered* if the error says a next call that does: a scripted model copies the literal next call, fills in
what only a model can know, and follows up to three of them. Everything else is *wrong*, above all a call that
ran another tool, or ran with other arguments. What can be read in two ways must be answered and not repaired.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from composite import composite

from mcp_toolset import ToolContext, ToolsetServer
from mcp_toolset.errors import UnknownToolError

DATA = Path(__file__).with_name("slips.jsonl")
STEPS = 3
_NEXT = re.compile(r"Next: (\w+) (\{.*\})")
_PLACEHOLDER = re.compile(r"<.*>")
_CALLING = ("call_tool", "call_read_only_tool")

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call; `steps` are the further calls that it took."""

    kind: str
    call: str
    outcome: str
    steps: int
    said: str


class Session(ToolContext):
    """One model in a session of its own."""

    def __init__(self, number: int) -> None:
        self.session = f"slips {number}"


class Desk:
    """The composite, and a scripted model at it that means one thing."""

    def __init__(self, server: ToolsetServer, ran: list[Call], case: Mapping[str, Any], number: int) -> None:
        self._server = server
        self._session = Session(number)
        self._ran = ran
        self._case = case
        self._meant: Mapping[str, Any] = case["meant"]

    async def outcome(self) -> Outcome:
        """Make the call as it was written, and follow what is said."""
        call = (self._case["call"], await self._with_grant(self._case["arguments"]))
        self._ran.clear()
        first = ""
        for step in range(STEPS + 1):
            answer = await self.said(call)
            first = first or answer
            done = self._done(answer)
            if done is not None:
                return self._scored(step, done, first)
            following = self._following(call, answer)
            if following is None:
                return self._scored(step, False, first)
            call = following
        return self._scored(STEPS, False, first)

    def _scored(self, steps: int, done: bool, first: str) -> Outcome:
        rightly = done and not (self._case.get("ambiguous") and steps == 0)
        outcome = "wrong" if not rightly else "repaired" if steps == 0 else "answered"
        return Outcome(self._case["kind"], self._case["call"], outcome, steps, first)

    async def _with_grant(self, arguments: dict[str, Any]) -> dict[str, Any]:
        tool = self._meant.get("run")
        if tool is None or self._case.get("granted") is False:
            return arguments
        answer = await self._server.call_tool("resolve_tools", {"ids": [tool]}, context=self._session)
        handle = answer.structured["tools"][0]["grant"]
        return json.loads(json.dumps(arguments).replace("$grant", handle))

    async def said(self, call: Call) -> str:
        try:
            return (await self._server.call_tool(*call, context=self._session)).text
        except UnknownToolError as fault:
            return str(fault)

    def _done(self, answer: str) -> bool | None:
        """True if the meant action is done; `None` if nothing is done so far."""
        if self._ran:
            wanted = (self._meant.get("run", ""), self._meant.get("with"))
            return [(name, given) for name, given in self._ran] == [wanted]
        found = _json(answer)
        if "find" in self._meant:
            return True if self._meant["find"] in [hit["id"] for hit in found.get("hits", [])] else None
        if "grant" in self._meant:
            granted = [one["id"] for one in found.get("tools", []) if one["status"] == "granted"]
            return True if granted == self._meant["grant"] else None
        return None

    def _following(self, call: Call, answer: str) -> Call | None:
        """The next call: the literal one, or what comes after a search or a resolve that went well."""
        found = _json(answer)
        if (tool := self._meant.get("run")) is not None:
            handles = [one["grant"] for one in found.get("tools", []) if one.get("grant")]
            if handles:
                return "call_tool", {"grant": handles[0], "arguments": self._meant["with"]}
            if tool in [hit["id"] for hit in found.get("hits", [])]:
                return "resolve_tools", {"ids": [tool]}
        offered = [(name, self._filled(json.loads(given))) for name, given in _NEXT.findall(_text(answer))]
        return next((one for one in offered if self._is_meant(one)), offered[0] if offered else None)

    def _is_meant(self, call: Call) -> bool:
        """The one of two readings that the model meant."""
        return call[1].get("arguments") == self._meant.get("with", {})

    def _filled(self, value: Any, key: str = "") -> Any:
        """A value with what only the model knows in place of placeholders."""
        if isinstance(value, dict):
            return {name: self._filled(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each, key) for each in value]
        if isinstance(value, str) and _PLACEHOLDER.fullmatch(value):
            return self._meant.get("with", {}).get(key, self._meant.get("run", value))
        return value


def _json(answer: str) -> dict[str, Any]:
    try:
        found = json.loads(answer)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(answer: str) -> str:
    """The texts that a model reads: of an answer in JSON, the notes and the reasons in it."""
    found = _json(answer)
    reasons = [one.get("reason") or "" for one in found.get("tools", [])]
    return "\n".join([found.get("note") or "", *reasons]) if found else answer


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in DATA.read_text().splitlines()]


async def measured(some: Iterable[Mapping[str, Any]]) -> list[Outcome]:
    """The outcome of each call, on one server, each in a session with the grants of its case."""
    ran: list[Call] = []
    async with ToolsetServer(composite(ran).deferred()) as server:
        await server.settled()
        found: list[Outcome] = []
        for number, case in enumerate(some):
            found.append(await Desk(server, ran, case, number).outcome())
        return found


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "| | repaired | answered at once | answered in two or three | wrong |"
    yield "|---|---|---|---|---|"
    for name, some in (
        ("calls", [one for one in outcomes if one.call in _CALLING]),
        ("others", [one for one in outcomes if one.call not in _CALLING]),
        ("all", list(outcomes)),
    ):
        told = Counter(_column(one) for one in some)
        yield f"| {name}, {len(some)} | {told[0]} | {told[1]} | {told[2]} | {told[3]} |"


def _column(one: Outcome) -> int:
    return 3 if one.outcome == "wrong" else min(one.steps, 2)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", action="store_true", help="say what became of each call")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there, too")
    options = parser.parse_args(arguments)
    outcomes = anyio.run(measured, cases())
    for one in outcomes if options.each else ():
        print(f"{one.outcome:9} {one.steps} {one.kind}\n    {one.said[:300]}")
    print("\n".join(table(outcomes)))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
