"""A round that waits for an answer is a text: another process goes on with it, and repeats no call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_toolset import Rules, ToolCall, Toolset, tool
from mcp_toolset.errors import RoundError, SecretError
from mcp_toolset.journal import JournalGuard
from mcp_toolset.middleware import PermissionChecker
from mcp_toolset.rounds import RoundContext, SuspendedRounds, ToolRound
from mcp_toolset.shared import KeyRing

pytestmark = pytest.mark.anyio

ANN = RoundContext(principal="ann", session="conversation 17")
CALLS = [ToolCall("invoice", {"number": 7}, "call_1"), ToolCall("pay", {"amount": 70}, "call_2")]


class Shop:
    """Two tools with effects that are counted; one of them needs an approval."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def toolset(self, words: str = "Pay an amount.") -> Toolset:
        @tool
        def invoice(number: int) -> str:
            """Send an invoice."""
            self.ran.append("invoice")
            return f"invoice {number} is sent"

        @tool(description=words)
        def pay(amount: int) -> str:
            self.ran.append("pay")
            return f"paid {amount}"

        return Toolset(invoice, pay)

    @staticmethod
    def rules(guard: JournalGuard | None = None) -> Rules:
        guards = [] if guard is None else [guard]
        asked = PermissionChecker(lambda call: "ask" if call.name == "pay" else "allow")
        return Rules(middleware=[asked], guards=guards)

    async def waiting(self, rounds: SuspendedRounds, guard: JournalGuard | None = None) -> str:
        """What an application keeps in its database while a person decides."""
        plan = await ToolRound.from_calls(CALLS, self.toolset().view()).apply(self.rules(guard))
        report = await plan.run_pending(context=ANN)
        assert [asked.name for asked in report.questions] == ["pay"]
        return rounds.suspend(plan, context=ANN)

    async def finished(
        self, rounds: SuspendedRounds, text: str, guard: JournalGuard | None = None, **more: Any
    ) -> list[str]:
        """What another process makes of it."""
        more = {"context": ANN, **more}
        round = await rounds.resume(text, self.toolset().view(), rules=self.rules(guard), **more)
        round.plan.answer("call_2", True)
        report = await round.plan.run_pending(context=ANN)
        return [each.result.text for each in report]


def ring(letter: bytes = b"k") -> KeyRing:
    return KeyRing([letter * 32])


async def test_j6_a_round_goes_on_in_another_process_and_repeats_no_call(tmp_path: Path) -> None:
    shop = Shop()
    for place in ("one.sqlite3", "two.sqlite3"):
        async with SuspendedRounds(tmp_path / place) as rounds:
            text = await shop.waiting(rounds)
        assert "invoice" not in text
        async with SuspendedRounds(tmp_path / place) as again:
            assert await shop.finished(again, text) == ["invoice 7 is sent", "paid 70"]
            with pytest.raises(RoundError, match="used before; see what its calls have done"):
                await shop.finished(again, text)
    assert shop.ran == ["invoice", "pay"] * 2


async def test_j6_with_a_journal_a_round_that_is_resumed_twice_runs_each_call_once(tmp_path: Path) -> None:
    shop = Shop()
    async with JournalGuard(tmp_path / "journal", served="shop") as guard:
        text = await shop.waiting(SuspendedRounds(ring()), guard)
        for _ in range(2):
            told = await shop.finished(SuspendedRounds(ring()), text, guard)
            assert told == ["invoice 7 is sent", "paid 70"]
    assert shop.ran == ["invoice", "pay"]


async def test_j6_a_call_whose_definition_has_changed_does_not_run() -> None:
    shop, rounds = Shop(), SuspendedRounds(ring())
    text = await shop.waiting(rounds)
    view = shop.toolset("Pay an amount, and add a tip.").view()
    round = await rounds.resume(text, view, context=ANN, rules=shop.rules())
    assert [issue.reason for issue in round.issues] == ["changed_tool"]
    assert shop.ran == ["invoice"]


@pytest.mark.parametrize(
    ("context", "why"),
    [
        (RoundContext(principal="bob", session="conversation 17"), "it belongs to another caller"),
        (RoundContext(session="conversation 17"), "it belongs to another caller"),
        (RoundContext(principal="ann", session="conversation 18"), "it belongs to another call"),
    ],
)
async def test_j6_a_round_goes_on_for_its_caller_alone(context: RoundContext, why: str) -> None:
    shop, rounds = Shop(), SuspendedRounds(ring())
    text = await shop.waiting(rounds)
    with pytest.raises(RoundError, match=f"{why}.*; show the model its turn again"):
        await shop.finished(rounds, text, context=context)
    assert shop.ran == ["invoice"]


async def test_j6_a_round_ends_after_its_ttl() -> None:
    shop, now = Shop(), [1000.0]
    rounds = SuspendedRounds(ring(), ttl=60, clock=lambda: now[0])
    text = await shop.waiting(rounds)
    now[0] = 1060.5
    with pytest.raises(RoundError, match="it came too late, and was due within 60 s"):
        await shop.finished(rounds, text)


async def test_j6_keys_rotate_and_a_removed_key_is_said() -> None:
    shop = Shop()
    text = await shop.waiting(SuspendedRounds(ring(b"a")))
    rotated = SuspendedRounds(KeyRing([b"b" * 32, b"a" * 32]))
    assert await shop.finished(rotated, text) == ["invoice 7 is sent", "paid 70"]
    with pytest.raises(RoundError, match="the key that sealed it is gone"):
        await shop.finished(SuspendedRounds(ring(b"b")), text)
    with pytest.raises(SecretError):
        KeyRing([])


async def test_j6_no_change_of_a_round_is_accepted() -> None:
    shop, rounds = Shop(), SuspendedRounds(ring())
    text = await shop.waiting(rounds)
    for place in range(0, len(text), 7):
        changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        with pytest.raises(RoundError, match="altered|none of this server's"):
            await shop.finished(rounds, changed)
    assert shop.ran == ["invoice"]
