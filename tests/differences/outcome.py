"""What is compared of an answer: kind, code and shape; not the texts, nor the values of a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NOTHING = "no answer"


STAMPS = {"resultType": "complete", "ttlMs": None, "cacheScope": None}
"""What the modern era puts on results besides, with its value if it is always the same."""


def shape_of(message: Any, ids: Iterable[Any], era: str) -> str:
    """The shape of one message of a server; `ids` are those that it may answer.

    For example `result content structuredContent`, `error -32602 data.uri`, `note notifications/message`.
    """
    if isinstance(message, list):
        return f"[{', '.join(shape_of(each, ids, era) for each in message)}]"
    if not isinstance(message, dict):
        return "no message"
    if "method" in message:
        return f"{'request' if 'id' in message else 'note'} {message['method']}"
    suffix = _whose(message.get("id", "absent"), ids)
    if "error" in message:
        return f"error {message['error'].get('code')}{_data(message['error'])}{suffix}"
    return f"result{_members(message.get('result'), era)}{suffix}"


def _whose(number: Any, ids: Iterable[Any]) -> str:
    if any(number == each and type(number) is type(each) for each in ids):
        return ""
    return f" (id {'null' if number is None else 'absent' if number == 'absent' else 'other'})"


def _data(error: Mapping[str, Any]) -> str:
    data = error.get("data")
    return "".join(f" data.{key}" for key in sorted(data)) if isinstance(data, dict) else ""


def _members(result: Any, era: str) -> str:
    if not isinstance(result, dict):
        return " that is no object"
    usual = {"_meta"} | ({"isError"} if result.get("isError") is False else set())
    if era == "modern":
        usual |= {key for key, value in STAMPS.items() if value is None or result.get(key) == value}
    missing = " unstamped" if era == "modern" and "resultType" not in result else ""
    return "".join(f" {key}" for key in sorted(result.keys() - usual)) + missing


def joined(shapes: Iterable[str]) -> str:
    """Several messages as one text, whatever their order."""
    return " + ".join(sorted(shapes)) or NOTHING
