"""The instructions of mounted servers as one text within a budget of tokens; and one line about a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mcp_toolset.tools.hidden_text import HiddenTextPolicy, cleaned

BUDGET: Final = 1000  # the default limit in tokens for the instructions of all mounted servers

_CHARACTERS_A_TOKEN: Final = 4
_LONGEST_ABOUT: Final = 80
_HEAD: Final = "What the servers behind this one say about themselves:"
_CUT: Final = " …"


def instructions_of(servers: Iterable[tuple[str, str]], budget: int = BUDGET) -> str:
    """The instructions of servers, each under its name, in `budget` tokens of four characters."""
    # Short ones are whole; long ones share the rest of the budget evenly, and are cut.
    texts = [(name, text.strip()) for name, text in servers if text.strip()]
    frames = [_framed(name, "") for name, _ in texts]
    room = _CHARACTERS_A_TOKEN * budget - len(_HEAD) - sum(len(frame) + 1 for frame in frames)
    if not texts or room <= 0:
        return ""
    limits = _shares([len(text) for _, text in texts], room)
    parts = [_framed(name, _cut(text, limit)) for (name, text), limit in zip(texts, limits, strict=True)]
    return "\n".join([_HEAD, *parts])


def clean_instructions(text: str, policy: HiddenTextPolicy) -> str:
    """A server's text without hidden characters; empty if it has some and the policy refuses that."""
    plain = cleaned(text)
    if plain == text or policy == "flag":
        return text
    return "" if policy == "refuse" else plain


def one_line(text: str) -> str:
    line = next((line.strip() for line in cleaned(text).splitlines() if line.strip()), "")
    sentence = line.partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _LONGEST_ABOUT else f"{sentence[: _LONGEST_ABOUT - 1].rstrip()}…"


def _framed(name: str, text: str) -> str:
    # A text that closes its own tag could speak in the name of another server.
    quiet = text.replace("</server", "< /server").replace("<server", "< server")
    return f'<server name="{name}">\n{quiet}\n</server>'


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - len(_CUT))].rstrip() + _CUT


def _shares(lengths: Sequence[int], room: int) -> list[int]:
    """The share of each text: its length, if that is no more than an even share."""
    limits = [0] * len(lengths)
    for left, index in zip(
        range(len(lengths), 0, -1), sorted(range(len(lengths)), key=lengths.__getitem__), strict=True
    ):
        limits[index] = min(lengths[index], room // left)
        room -= limits[index]
    return limits
