"""A turn's results have one budget, shared fairly, and what was cut says so (H26)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import AskUser, ToolCall, ToolResult, Toolset, rejection_reason, tool
from mcp_toolset.calls.checks import cut
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.calls import fair_shares
from mcp_toolset.rounds import ToolRound

pytestmark = pytest.mark.anyio

LENGTHS = st.lists(st.integers(0, 500), max_size=12)


@given(LENGTHS, st.integers(1, 3000))
def test_h26_a_budget_is_kept_and_shared_fairly(lengths: list[int], budget: int) -> None:
    shares = fair_shares(lengths, budget)
    assert sum(shares) <= budget and all(0 <= s <= n for s, n in zip(shares, lengths, strict=True))
    cut = [share for share, length in zip(shares, lengths, strict=True) if share < length]
    assert bool(cut) == (sum(lengths) > budget)
    if cut:
        assert sum(shares) == budget and max(cut) - min(cut) <= 1
        # Whoever was not cut has no more than those who were: nobody is whole at another's cost.
        assert max(shares) <= min(cut) + 1


@tool
def short() -> str:
    """Say a word."""
    return "word"


@tool
def long(letter: str) -> str:
    """Say a lot."""
    return letter * 1000


@tool
def table() -> ToolResult:
    """Give rows without a text."""
    return ToolResult({"content": [], "structuredContent": {"rows": ["r" * 990]}})


@tool
def picture() -> ToolResult:
    """Give an image and its caption."""
    image = {"type": "image", "data": "aGk=" * 500, "mimeType": "image/png"}
    return ToolResult.of_content([{"type": "text", "text": "c" * 1000}, image])


@tool
def ask() -> AskUser:
    """Ask."""
    return AskUser("Which one?")


def of(*names: str) -> ToolRound:
    calls = [
        ToolCall(name, {"letter": name[-1]} if name.startswith("long") else {}, f"c{n}")
        for n, name in enumerate(names)
    ]
    named = [ToolCall("long", call.arguments, call.id) if "long" in call.name else call for call in calls]
    return ToolRound.from_calls(named, Toolset(short, long, table, picture, ask).view())


async def committed(round: ToolRound, max_output: Any) -> list[str]:
    with anyio.fail_after(40):
        await round.plan.run_pending()
    return [message["content"] for message in round.plan.commit(max_output=max_output).to_openai()[1:]]


async def test_h26_long_results_share_what_short_ones_leave_and_say_what_was_cut() -> None:
    round = of("long_a", "short", "long_b", "absent")
    first, second, third, refused = await committed(round, 304 + len("Rejected") + 200)
    assert second == "word" and "absent" in refused and "cut off" not in refused
    for text, letter in ((first, "a"), (third, "b")):
        kept, note = text.split("\n")
        assert set(kept) == {letter} and 150 <= len(kept) < 1000
        assert note.startswith(f"[{1000 - len(kept)} characters were cut off") and "call long again" in note
    # The application has the whole of them, in the calls' order.
    assert [len(done.result.text) for done in round.plan.results][:3] == [1000, 4, 1000]


async def test_h26_what_fits_is_committed_as_it_is() -> None:
    whole = await committed(of("long_a", "short"), None)
    assert await committed(of("long_a", "short"), 1004) == whole


async def test_h26_structured_content_images_questions_and_refusals_keep_what_they_are() -> None:
    round = of("table", "picture", "ask", "absent")
    with anyio.fail_after(40):
        await round.plan.run_pending()
    commit = round.plan.commit(max_output=300)
    rows, caption, asked, refused = [done.result for done in commit.results]
    assert rows.text.startswith('{"rows"') and len(rows.content[0]["text"]) < 300
    assert rows.structured == {"rows": ["r" * 990]} and "cut off" in rows.text
    assert [block["type"] for block in caption.content] == ["text", "image", "text"]
    assert asked.ask is not None and [question.name for question in commit.questions] == ["ask"]
    assert rejection_reason(refused) is not None


async def test_h26_n5_the_address_of_a_link_counts_and_stays_whole_or_goes() -> None:
    links = [{"type": "resource_link", "name": "n", "uri": f"a://{n}/{'x' * 93}"} for n in range(10)]
    blocks, lost = cut(links, 250)
    assert blocks == links[:2] and lost == sum(len(link["uri"]) for link in links[2:])


async def test_h26_a_stored_round_keeps_the_commit_that_was_cut_and_the_whole_results() -> None:
    round = of("long_a", "long_b")
    sent = await committed(round, 500)
    again = ToolRound.from_state(round.to_state(), Toolset(short, long).view())
    assert again.committed is not None
    assert [message["content"] for message in again.committed.to_openai()[1:]] == sent
    assert [len(done.result.text) for done in again.plan.results] == [1000, 1000]


@pytest.mark.parametrize("wrong", [0, -1])
async def test_h26_a_budget_that_allows_nothing_is_refused_and_nothing_has_changed(wrong: int) -> None:
    round = of("short")
    with pytest.raises(RoundError, match="max_output"):
        await committed(round, wrong)
    assert round.state == "open" and len(round.plan.commit().results) == 1
