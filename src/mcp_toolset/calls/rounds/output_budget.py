"""One budget of characters for all the results of a turn, shared fairly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mcp_toolset.calls.middleware.text_limit import cut, text_of
from mcp_toolset.calls.rounds.call_result import CallResult
from mcp_toolset.tools.core.result import Block, ToolResult


def fair_shares(lengths: Sequence[int], budget: int) -> list[int]:
    """The max-min fair share of a budget for each of several texts.

    What a short text does not use is divided among the longer ones; the shares of those that are cut differ
    by at most one character.
    """
    shares, left = [0] * len(lengths), budget
    ascending = sorted(range(len(lengths)), key=lambda place: lengths[place])
    for waiting, place in zip(range(len(lengths), 0, -1), ascending, strict=True):
        shares[place] = min(lengths[place], left // waiting)
        left -= shares[place]
    return shares


def within_budget(results: Sequence[CallResult], budget: int) -> tuple[CallResult, ...]:
    """The results in their order, with at most so many characters of text in total.

    Each result that was cut says by how much, and how to get the rest; these notes, a line each, are not
    counted. Images and other blocks without text are neither counted nor cut. Structured content, which
    messages to a model never contain next to text, stays whole for the application.
    """
    contents = [_said(done.result) for done in results]
    lengths = [sum(len(text_of(block)) for block in content) for content in contents]
    shares = fair_shares(lengths, budget)
    return tuple(
        done if share == length else replace(done, result=_shortened(done, content, share, budget))
        for done, content, length, share in zip(results, contents, lengths, shares, strict=True)
    )


def _said(result: ToolResult) -> Sequence[Block]:
    """The content that a model is shown; structured content as text if there is nothing else."""
    return result.content or ([{"type": "text", "text": result.text}] if result.text else [])


def _shortened(done: CallResult, content: Sequence[Block], share: int, budget: int) -> ToolResult:
    blocks, lost = cut(content, share)
    note = (
        f"[{lost} characters were cut off: the results of this turn share {budget}; for the rest, call "
        f"{done.name} again for less at once, or alone]"
    )
    return replace(
        done.result, wire={**done.result.wire, "content": [*blocks, {"type": "text", "text": note}]}
    )
